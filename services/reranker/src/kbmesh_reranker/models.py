"""The models that this process was told to serve."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from kbmesh_onnx.errors import DeviceUnavailable
from kbmesh_onnx.model_metrics import LiveModel
from kbmesh_onnx.model_roster import ModelRoster, Place
from kbmesh_rpc.condition import Condition
from kbmesh_rpc.errors import FeatureUnsupported, ModelNotFound, ModelNotReady
from kbmesh_rpc.logs import get_logger

from kbmesh_reranker.backends.port import ELSEWHERE, RerankBackend
from kbmesh_reranker.metrics import MODELS

log = get_logger(__name__)


@dataclass(frozen=True, kw_only=True)
class ModelState:
    """A model by name, loaded or not."""

    name: str
    backend: RerankBackend | None
    not_ready_reason: str
    is_default: bool


class ModelRegistry:
    """Models by name. The first is the default.

    A model that cannot be opened is tried again, `retry_seconds` later at first; 0 makes it an error of `load`, and so
    is a device that is required and not there, or an SDK that is not installed. A model that is lost turns `condition`,
    and is opened again where that is possible; one that runs elsewhere leaves the process alive.
    """

    def __init__(
        self,
        names: Sequence[str],
        open_backend: Callable[[str], Awaitable[RerankBackend]],
        *,
        retry_seconds: float = 0.0,
        wanted_device: str = "auto",
    ) -> None:
        """`wanted_device` is what the settings ask for, which metrics show beside the one in use."""
        self.condition = Condition()
        self._wanted_device = wanted_device
        for name in names:
            MODELS.expect(name)
        self._roster: ModelRoster[RerankBackend] = ModelRoster(
            names,
            open_backend,
            retry_seconds=retry_seconds,
            is_final=lambda error: isinstance(error, DeviceUnavailable | FeatureUnsupported),
            is_here=lambda model: model.description.device != ELSEWHERE,
            changed=self._changed,
        )

    async def load(self) -> None:
        """Opens and warms up each model; comes back once all are there. Raises what opening raises."""
        await self._roster.load()

    def find(self, name: str) -> RerankBackend:
        """The model of that name; the default where it is empty. Raises ModelNotFound and ModelNotReady."""
        place = self._roster.place(name)
        if place is None:
            raise ModelNotFound(name, available=self._roster.names)
        if place.model is None:
            raise ModelNotReady(place.name, f"{place.name} cannot answer now; ListModels tells why")
        return place.model

    def states(self) -> tuple[ModelState, ...]:
        """Every model, in the order in which they were named."""
        return tuple(
            ModelState(
                name=place.name,
                backend=place.model,
                not_ready_reason=place.reason,
                is_default=place.name == self._roster.default,
            )
            for place in self._roster.places
        )

    async def close(self) -> None:
        """Closes what is loaded."""
        await self._roster.close()

    def _changed(self, place: Place[RerankBackend]) -> None:
        self.condition.set(serving=self._roster.complete, live=not self._roster.lost)
        if place.model is None:
            MODELS.tell(place.name, None, wanted_device=self._wanted_device)
            log.error("model_lost" if place.lost else "model_not_loaded", model=place.name, reason=place.reason)
            return
        model = place.model.description
        live = LiveModel(
            backend=model.backend,
            device=model.device,
            precision=model.precision,
            reads_as=model.method,
            max_tokens=model.max_tokens,
            fingerprint=model.fingerprint,
        )
        MODELS.tell(place.name, live, wanted_device=self._wanted_device)
        log.info(
            "model_ready",
            model=place.name,
            backend=model.backend,
            method=model.method,
            device=model.device,
            precision=model.precision,
            fingerprint=model.fingerprint,
        )
