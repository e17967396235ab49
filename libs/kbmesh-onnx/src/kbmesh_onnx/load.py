"""How much work a process has, summed over its models."""

from dataclasses import dataclass

from kbmesh_onnx.batcher import BatchObserver, BatchReport, DropReason, Lane


@dataclass(frozen=True, kw_only=True)
class ModelLoad:
    """The work of one model."""

    queued_interactive_tokens: int = 0
    queued_bulk_tokens: int = 0
    """What is not tokenised yet counts with an estimate, in both lanes."""
    running_tokens: int = 0


class LoadMeter:
    """Keeps the load of each model, as their batchers tell it. Belongs to one event loop."""

    def __init__(self) -> None:
        self._observers: dict[str, _LoadObserver] = {}

    def loads(self) -> dict[str, ModelLoad]:
        """The load of each model now, by name."""
        return {model: observer.load for model, observer in self._observers.items()}

    def observe(self, model: str, observer: BatchObserver) -> BatchObserver:
        """What to give to the model's batcher: it keeps the load and tells `observer` everything."""
        self._observers[model] = metered = _LoadObserver(observer)
        return metered


class _LoadObserver:
    def __init__(self, observer: BatchObserver) -> None:
        self._observer = observer
        self._queued = dict.fromkeys(Lane, 0)
        self._running = 0

    @property
    def load(self) -> ModelLoad:
        return ModelLoad(
            queued_interactive_tokens=self._queued[Lane.INTERACTIVE],
            queued_bulk_tokens=self._queued[Lane.BULK],
            running_tokens=self._running,
        )

    def queued(self, lane: Lane, tokens: int) -> None:
        self._queued[lane] = tokens
        self._observer.queued(lane, tokens)

    def running(self, tokens: int) -> None:
        self._running = tokens
        self._observer.running(tokens)

    def ran(self, report: BatchReport) -> None:
        self._observer.ran(report)

    def dropped(self, lane: Lane, reason: DropReason, items: int) -> None:
        self._observer.dropped(lane, reason, items)
