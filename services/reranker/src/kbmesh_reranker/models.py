"""The models that this process was told to serve."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from kbmesh_rpc.errors import ModelNotFound, ModelNotReady
from kbmesh_rpc.logs import get_logger

from kbmesh_reranker.backends.port import RerankBackend

log = get_logger(__name__)

LOADING = "the model is still loading"


@dataclass(frozen=True, kw_only=True)
class ModelState:
    """A model by name, loaded or not yet."""

    name: str
    backend: RerankBackend | None
    not_ready_reason: str
    is_default: bool


class ModelRegistry:
    """Models by name. The first is the default."""

    def __init__(self, names: Sequence[str], open_backend: Callable[[str], Awaitable[RerankBackend]]) -> None:
        if not names:
            raise ValueError("at least one model is needed")
        self._open_backend = open_backend
        self._backends: dict[str, RerankBackend | None] = dict.fromkeys(names)
        self._default = names[0]

    async def load(self) -> None:
        """Opens and warms up each model, one after another. Raises what opening raises."""
        for name in self._backends:
            backend = await self._open_backend(name)
            try:
                await backend.warm_up()
            except BaseException:
                await backend.close()
                raise
            self._backends[name] = backend
            model = backend.description
            log.info(
                "model_ready",
                model=name,
                backend=model.backend,
                method=model.method,
                device=model.device,
                precision=model.precision,
                fingerprint=model.fingerprint,
            )

    def find(self, name: str) -> RerankBackend:
        """The model of that name; the default where it is empty. Raises ModelNotFound and ModelNotReady."""
        name = name or self._default
        if name not in self._backends:
            raise ModelNotFound(name, available=tuple(self._backends))
        backend = self._backends[name]
        if backend is None:
            raise ModelNotReady(name, LOADING)
        return backend

    def states(self) -> tuple[ModelState, ...]:
        """Every model, in the order in which they were named."""
        return tuple(
            ModelState(
                name=name,
                backend=backend,
                not_ready_reason="" if backend is not None else LOADING,
                is_default=name == self._default,
            )
            for name, backend in self._backends.items()
        )

    async def close(self) -> None:
        """Closes what is loaded."""
        for name, backend in self._backends.items():
            self._backends[name] = None
            if backend is not None:
                await backend.close()
