"""Who may join a queue: decided on arrival, before anything is tokenised, and never taken back."""

from collections.abc import Mapping
from dataclasses import dataclass

from kbmesh_onnx.batch_errors import QueueFullError
from kbmesh_onnx.lane_queue import Lane
from kbmesh_onnx.throughput import Throughput, retry_seconds

DEADLINE_SHARE = 0.7
"""Part of the time that is left which the wait may seem to take. The rest is for those who come later and have as much
right to the model, such as another tenant. It costs no work that could be done: the queue is never empty for it."""
ATTENTIVE_SECONDS = 1.0
"""How long bulk work is run in smaller batches after somebody interactive came. A person or an agent that searches asks
again within that time; a mesh that ingests at night has its full batches."""


@dataclass(frozen=True, kw_only=True)
class QueueLimits:
    """How a model's queue is kept. Raises ValueError for shares that are out of range."""

    queue_tokens: int = 524_288
    """Tokens that may wait."""
    draw_tokens: int = 4096
    """Tokens that are drawn from the queue at once and sorted by length."""
    patient_draws: int = 4
    """As many times that are drawn at once of bulk work that has time: no deadline, or one that is far away. Sorted
    over more, like is with like, and less is padding: of passages of 126 tokens on average a twentieth, not a sixth."""
    batch_tokens: int = 1024
    """Tokens of one run of the model, padding included."""
    attentive_part: float = 0.5
    """Part of `batch_tokens` that a run of bulk work has while somebody interactive came within the last
    ATTENTIVE_SECONDS: the next one waits for half as long, and bulk work is a few per cent slower."""
    bulk_share: float = 0.25
    """Part of the model's time that bulk work gets where both lanes always have work."""
    interactive_reserve: float = 0.25
    """Part of the queue that bulk work may not fill, so that ingestion cannot shut out those who wait."""
    tenant_reserve: float = 0.25
    """Part of a lane's room that is kept for tenants who hold less than an equal share of it, so that one tenant cannot
    shut out the others."""

    def __post_init__(self) -> None:
        if self.patient_draws < 1:
            raise ValueError("patient_draws is at least 1")
        if not 0 < self.attentive_part <= 1:
            raise ValueError("attentive_part is above 0 and at most 1")
        if not 0 < self.bulk_share < 1:
            raise ValueError("bulk_share lies between 0 and 1")
        if not 0 <= self.interactive_reserve < 1 or not 0 <= self.tenant_reserve < 1:
            raise ValueError("interactive_reserve and tenant_reserve are from 0 to below 1")

    def run_tokens(self, lane: Lane, *, attentive: bool) -> int:
        """Tokens of one run of a lane's work; `attentive` where somebody interactive came a moment ago."""
        if lane is Lane.BULK and attentive:
            return max(1, int(self.batch_tokens * self.attentive_part))
        return self.batch_tokens

    def patient_draw_tokens(self, lane: Lane) -> int:
        """Tokens that are drawn from a lane at once where all of it has time."""
        return self.draw_tokens * (self.patient_draws if lane is Lane.BULK else 1)

    def admission(self, lane: Lane) -> int:
        """Tokens that may wait for a submission to this lane to be taken, whoever its tenant is."""
        return (
            self.queue_tokens if lane is Lane.INTERACTIVE else int(self.queue_tokens * (1 - self.interactive_reserve))
        )


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """What waits, as one who arrives finds it."""

    queued_tokens: int
    """In both lanes."""
    ahead_tokens: int
    """What waits and runs before a submission that comes now."""
    running_tokens: int
    """What the model works on."""
    bulk_waits: bool
    """Whether there is bulk work that takes its share of the model's time."""
    claims: Mapping[str, int]
    """Tokens of each tenant that has some, in both lanes."""


def check_size(
    limits: QueueLimits, lane: Lane, waiting: Waiting, *, tenant: str, tokens: int, speed: Throughput
) -> None:
    """Raises QueueFullError where so many tokens of a tenant do not fit.

    A submission that is larger than the queue's limit is taken where nothing else waits, for otherwise it never could
    be.
    """
    queued = waiting.queued_tokens
    limit = limits.admission(lane)
    own = waiting.claims.get(tenant, 0)
    tenants = len(waiting.claims) + (tenant not in waiting.claims)
    share = limit // max(2, tenants)
    open_to_all = int(limit * (1 - limits.tenant_reserve))
    if own + tokens > share:
        limit = open_to_all
    else:
        # What was let in by an estimate may turn out to be three times as much. That is at nobody else's cost: those
        # over their share count for no more than the room that they were let into.
        over = sum(claim for claim in waiting.claims.values() if claim > share)
        queued -= max(0, over - open_to_all)
    if queued > 0 and queued + tokens > limit:
        too_many = min(queued, queued + tokens - limit)
        raise QueueFullError(
            queued_tokens=waiting.queued_tokens,
            limit=limit,
            retry_after_seconds=retry_seconds(speed.seconds_to_run(too_many)),
        )


def check_wait(
    limits: QueueLimits, lane: Lane, waiting: Waiting, *, tokens: int, seconds_left: float, speed: Throughput
) -> None:
    """Raises QueueFullError where what waits would not let so many tokens be done in the time that is left.

    What is done too late is done in vain: without this, a queue that is overloaded for long would hold only work that
    nobody waits for any more. Nothing is known before a full batch has been measured, and what has nothing waiting
    before it is let through: to come back later would not help it.
    """
    rate = speed.full_tokens_per_second
    if rate is None or waiting.ahead_tokens == 0:
        return
    if lane is Lane.BULK:
        rate *= max(limits.bulk_share, 1 - speed.interactive_share)
    elif waiting.bulk_waits:
        rate *= 1 - limits.bulk_share
    # A draw is sorted by length, so the last item of a submission may be the last of its draw.
    in_draw = min(limits.draw_tokens, waiting.ahead_tokens)
    seconds = (waiting.running_tokens + waiting.ahead_tokens + tokens + in_draw) / rate
    room = seconds_left * DEADLINE_SHARE
    if seconds > room:
        raise QueueFullError(
            queued_tokens=waiting.queued_tokens,
            limit=limits.admission(lane),
            retry_after_seconds=retry_seconds(min(seconds - room, waiting.ahead_tokens / rate)),
        )
