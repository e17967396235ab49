"""Which models a process serves, and on what device, as Prometheus sees it: read from the live session."""

from dataclasses import dataclass

from prometheus_client import Gauge

_LABELS = ("model", "backend", "device", "wanted_device", "precision", "reads_as", "max_tokens", "fingerprint")


@dataclass(frozen=True, kw_only=True)
class LiveModel:
    """What is true of a model that is loaded."""

    backend: str
    device: str
    """In use: "cpu", "cuda:0 (NVIDIA H200)"."""
    precision: str
    reads_as: str
    """Pooling of an encoder, method of a reranker."""
    max_tokens: int
    fingerprint: str


class ModelSeries:
    """`kbmesh_<service>_model_ready` and `_model_info`. Made once in a process."""

    def __init__(self, service: str) -> None:
        self._ready = Gauge(
            f"kbmesh_{service}_model_ready", "1 where the model is loaded and can answer, else 0.", ["model"]
        )
        self._info = Gauge(
            f"kbmesh_{service}_model_info",
            "1 for each model that is loaded: the device and precision in use, beside the device that was wanted.",
            _LABELS,
        )
        self._told: dict[str, tuple[str, ...]] = {}

    def expect(self, model: str) -> None:
        """It is configured and not there yet."""
        self._ready.labels(model).set(0)

    def tell(self, model: str, live: LiveModel | None, *, wanted_device: str) -> None:
        """What it is now; None where it is not there."""
        told = self._told.pop(model, None)
        if told is not None:
            self._info.remove(*told)
        self._ready.labels(model).set(live is not None)
        if live is None:
            return
        values = (
            model,
            live.backend,
            live.device,
            wanted_device,
            live.precision,
            live.reads_as,
            str(live.max_tokens),
            live.fingerprint,
        )
        self._info.labels(*values).set(1)
        self._told[model] = values
