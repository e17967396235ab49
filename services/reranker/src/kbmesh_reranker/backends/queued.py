"""Running the windows of documents through a batcher, for every backend that has a model of its own."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

from kbmesh_onnx.batcher import (
    Batched,
    Batcher,
    BatcherClosedError,
    Item,
    ItemExpiredError,
    ItemFailedError,
    Lane,
    ModelLostError,
    QueueFullError,
    Reservation,
)
from kbmesh_onnx.token_estimate import SPARE_TOKENS, estimate_text_tokens
from kbmesh_rpc.call import DEFAULT_TENANT, optional_call
from kbmesh_rpc.errors import (
    DeadlineExceeded,
    InferenceFailed,
    KbmeshError,
    ModelNotReady,
    QueueFull,
    RequestTooLarge,
    ShuttingDown,
    TextTooLong,
)
from kbmesh_rpc.logs import get_logger

from kbmesh_reranker.backends.port import DocumentScore, Priority, Reading

PayloadT = TypeVar("PayloadT")
ResultT = TypeVar("ResultT")

LANES = {Priority.INTERACTIVE: Lane.INTERACTIVE, Priority.BULK: Lane.BULK}
DEVICE_LOST = "the model lost its device"
DEFAULT_CALL_WINDOWS = 2048
"""Windows of all documents of one call."""
NEW_IN_WINDOW = 0.75
"""Part of a window that the one before it does not have."""

log = get_logger(__name__)


@dataclass(frozen=True, kw_only=True)
class Windows(Generic[PayloadT]):
    """A tokenised document."""

    items: tuple[Item[PayloadT], ...]
    """At least one."""
    tokens: int
    """Tokens of the document that stand in some window."""
    tokens_cut: int


@dataclass(frozen=True, kw_only=True)
class ScoredWindows:
    """What became of some documents."""

    documents: tuple[DocumentScore, ...]
    queue_seconds: float
    infer_seconds: float


@contextmanager
def queue_errors(model: str = "") -> Iterator[None]:
    """Turns the refusals of a model's queues into kbmesh's errors."""
    try:
        yield
    except QueueFullError as error:
        raise QueueFull(
            queued_tokens=error.queued_tokens, limit=error.limit, retry_after_seconds=error.retry_after_seconds
        ) from error
    except ItemExpiredError as error:
        raise DeadlineExceeded("tokenize") from error
    except ModelLostError as error:
        raise ModelNotReady(model, DEVICE_LOST) from error
    except BatcherClosedError as error:
        raise ShuttingDown from error


class WindowBudget:
    """How many windows one call may still have. A document that would have more fails alone, and its windows go."""

    def __init__(self, windows: int) -> None:
        self._limit = self._left = windows

    def take(self, index: int, windows: "Windows[PayloadT]") -> "Windows[PayloadT] | KbmeshError":
        """The windows, or what is to be said where there are too many."""
        wanted = len(windows.items)
        if wanted > self._left:
            return RequestTooLarge(
                field=f"documents[{index}]", limit=self._limit, actual=self._limit - self._left + wanted
            )
        self._left -= wanted
        return windows


def allowed(
    index: int, windows: "Windows[PayloadT]", *, reading: Reading, budget: WindowBudget
) -> "Windows[PayloadT] | KbmeshError":
    """A tokenised document as the caller wants it read, or why it cannot be."""
    if windows.tokens_cut and not reading.may_cut:
        return TextTooLong(tokens=windows.tokens + windows.tokens_cut, limit=windows.tokens)
    return budget.take(index, windows)


def windows_of(reading: Reading, max_windows: int) -> int:
    """Windows that one document may have."""
    return max_windows if reading.max_windows is None else min(max_windows, reading.max_windows)


def estimate_tokens(
    documents: Sequence[str], *, beside: int, max_tokens: int, max_windows: int, max_call_windows: int
) -> int:
    """About how many tokens the model will read of the documents; rather more than fewer.

    `beside` is the number of tokens that each window has besides the document's.
    """
    room = max(1, max_tokens - beside)
    step = max(1, int(room * NEW_IN_WINDOW))
    total = 0
    for document in documents:
        tokens = estimate_text_tokens(document, at_most=max_tokens * max_windows)
        if tokens <= room:
            total += beside + tokens
        else:
            total += max_tokens * min(max_windows, 1 + math.ceil((tokens - room) / step))
    return min(total, max_tokens * max_call_windows)


def estimate_query_tokens(query: str, *, max_tokens: int) -> int:
    """About how many tokens a cross-encoder will read of the query in each window, special ones included."""
    return min(max_tokens // 2, estimate_text_tokens(query, at_most=max_tokens)) + SPARE_TOKENS


@contextmanager
def reserved(
    batcher: Batcher[PayloadT, ResultT],
    tokens: int,
    *,
    deadline: float | None,
    priority: Priority = Priority.INTERACTIVE,
    model: str = "",
) -> Iterator[Reservation]:
    """Holds room for documents while they are tokenised. Raises QueueFull, so that nothing is tokenised in vain.

    The queue's errors that are raised in the block become kbmesh's own.
    """
    call = optional_call()
    tenant = call.tenant if call is not None else DEFAULT_TENANT
    reserving = batcher.reserve(tokens, lane=LANES[priority], tenant=tenant, deadline=deadline)
    with queue_errors(model), reserving as reservation:
        yield reservation


async def submit(
    batcher: Batcher[PayloadT, ResultT],
    items: Sequence[Item[PayloadT]],
    *,
    reservation: Reservation,
    keep_reserved: int = 0,
    deadline: float | None,
    model: str = "",
) -> Batched[ResultT]:
    """Runs items, failed ones among the outcomes. Raises QueueFull, DeadlineExceeded, ModelNotReady and ShuttingDown.

    `keep_reserved` tokens of the reservation stay for a later submission.
    """
    with queue_errors(model):
        batched = await batcher.submit(items, deadline=deadline, reservation=reservation, keep_reserved=keep_reserved)
    for outcome in batched.outcomes:
        if isinstance(outcome, ItemExpiredError):
            raise DeadlineExceeded("queue")
        if isinstance(outcome, ModelLostError):
            raise ModelNotReady(model, DEVICE_LOST)
        if isinstance(outcome, BatcherClosedError):
            raise ShuttingDown
    return batched


async def score_windows(
    batcher: Batcher[PayloadT, ResultT],
    documents: Sequence[Windows[PayloadT] | KbmeshError],
    combine: Callable[[Sequence[ResultT]], float],
    *,
    model: str,
    reservation: Reservation,
    deadline: float | None,
) -> ScoredWindows:
    """Scores the documents that could be tokenised. `combine` makes one number of a document's windows.

    A document of which one window fails, fails: its best passage may have stood there.
    """
    items = [item for document in documents if not isinstance(document, KbmeshError) for item in document.items]
    batched = await submit(batcher, items, reservation=reservation, deadline=deadline, model=model)
    outcomes = iter(batched.outcomes)
    scores = []
    for document in documents:
        if isinstance(document, KbmeshError):
            scores.append(DocumentScore(error=document))
            continue
        results: list[ResultT] = []
        failed = False
        for _ in document.items:
            outcome = next(outcomes)
            if isinstance(outcome, ItemFailedError):
                failed = True
                log.error("inference_failed", model=model, error=str(outcome))
            elif not isinstance(outcome, Exception):
                results.append(outcome)
        if failed:
            scores.append(DocumentScore(error=InferenceFailed(model, "the model failed on this document")))
        else:
            scores.append(
                DocumentScore(
                    score=combine(results),
                    tokens=document.tokens,
                    tokens_cut=document.tokens_cut,
                    windows=len(document.items),
                )
            )
    return ScoredWindows(
        documents=tuple(scores), queue_seconds=batched.queue_seconds, infer_seconds=batched.infer_seconds
    )
