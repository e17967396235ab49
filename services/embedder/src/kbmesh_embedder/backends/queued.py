"""Running tokenised texts through a batcher, for every backend that has a model of its own."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from kbmesh_onnx.batcher import (
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
from kbmesh_rpc.call import DEFAULT_TENANT, optional_call
from kbmesh_rpc.errors import DeadlineExceeded, InferenceFailed, KbmeshError, ModelNotReady, QueueFull, ShuttingDown
from kbmesh_rpc.logs import get_logger
from numpy.typing import NDArray

from kbmesh_embedder.backends.port import Embeddings, ModelDescription, Priority, TextReceipt, Timings

PayloadT = TypeVar("PayloadT")

LANES = {Priority.INTERACTIVE: Lane.INTERACTIVE, Priority.BULK: Lane.BULK}

DEVICE_LOST = "the model lost its device"

log = get_logger(__name__)


@dataclass(frozen=True, kw_only=True)
class ReadyText(Generic[PayloadT]):
    """A tokenised text."""

    payload: PayloadT
    tokens: int
    tokens_cut: int


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


def tenant() -> str:
    """Whose turn in the queue it is: the caller's tenant."""
    call = optional_call()
    return call.tenant if call is not None else DEFAULT_TENANT


@contextmanager
def reserved(
    batcher: Batcher[PayloadT, NDArray[np.float32]],
    tokens: int,
    *,
    priority: Priority,
    deadline: float | None,
    model: str = "",
) -> Iterator[Reservation]:
    """Holds room for texts while they are tokenised. Raises QueueFull, so that nothing is tokenised in vain.

    The queue's errors that are raised in the block become kbmesh's own.
    """
    reserving = batcher.reserve(tokens, lane=LANES[priority], tenant=tenant(), deadline=deadline)
    with queue_errors(model), reserving as reservation:
        yield reservation


async def embed_ready(
    batcher: Batcher[PayloadT, NDArray[np.float32]],
    texts: Sequence[ReadyText[PayloadT] | KbmeshError],
    model: ModelDescription,
    *,
    reservation: Reservation,
    deadline: float | None,
    tokenize_seconds: float,
) -> Embeddings:
    """Runs the texts that could be tokenised, and puts vectors and failures in their places.

    Raises QueueFull, DeadlineExceeded, ModelNotReady and ShuttingDown.
    """
    ready = [(index, text) for index, text in enumerate(texts) if not isinstance(text, KbmeshError)]
    with queue_errors(model.name):
        batched = await batcher.submit(
            [Item(payload=text.payload, tokens=text.tokens) for _, text in ready],
            deadline=deadline,
            reservation=reservation,
        )
    vectors = np.zeros((len(texts), model.dimension), dtype=np.float32)
    receipts = [TextReceipt(error=text if isinstance(text, KbmeshError) else None) for text in texts]
    for (index, text), outcome in zip(ready, batched.outcomes, strict=True):
        if isinstance(outcome, ItemFailedError):
            log.error("inference_failed", model=model.name, error=str(outcome))
            receipts[index] = TextReceipt(error=InferenceFailed(model.name, "the model failed on this text"))
        elif isinstance(outcome, ItemExpiredError):
            raise DeadlineExceeded("queue")
        elif isinstance(outcome, ModelLostError):
            raise ModelNotReady(model.name, DEVICE_LOST)
        elif isinstance(outcome, Exception):
            raise ShuttingDown
        else:
            vectors[index] = outcome
            receipts[index] = TextReceipt(tokens=text.tokens, tokens_cut=text.tokens_cut)
    return Embeddings(
        vectors=vectors,
        receipts=tuple(receipts),
        timings=Timings(
            queue_seconds=batched.queue_seconds,
            tokenize_seconds=tokenize_seconds,
            infer_seconds=batched.infer_seconds,
        ),
    )
