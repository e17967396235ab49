"""What a batcher tells of its work, for metrics."""

from dataclasses import dataclass
from typing import Literal, Protocol

from kbmesh_onnx.lane_queue import Lane

DropReason = Literal["cancelled", "expired", "closed", "lost"]


@dataclass(frozen=True, kw_only=True)
class BatchReport:
    """One run of the model."""

    lane: Lane
    items: int
    failed: int
    tokens: int
    padded_tokens: int
    """Tokens of the longest item times the items: what the model really computed."""
    seconds: float


class BatchObserver(Protocol):
    """Is told what the batcher does, on the event loop. For metrics."""

    def queued(self, lane: Lane, tokens: int) -> None:
        """So many tokens wait in the lane now, reserved ones included."""
        ...

    def running(self, tokens: int) -> None:
        """The model works on so many tokens now."""
        ...

    def ran(self, report: BatchReport) -> None:
        """The model finished a batch."""
        ...

    def dropped(self, lane: Lane, reason: DropReason, items: int) -> None:
        """So many items left the queue without having been worked on."""
        ...


class SilentObserver:
    """Tells nobody."""

    def queued(self, lane: Lane, tokens: int) -> None:
        return

    def running(self, tokens: int) -> None:
        return

    def ran(self, report: BatchReport) -> None:
        return

    def dropped(self, lane: Lane, reason: DropReason, items: int) -> None:
        return
