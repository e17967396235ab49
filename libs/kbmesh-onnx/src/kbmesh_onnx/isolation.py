"""Running a batch so that an item which breaks it fails alone."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from kbmesh_onnx.batch_errors import BatchError, ItemFailedError, ModelLostError
from kbmesh_onnx.errors import DeviceLost

PayloadT = TypeVar("PayloadT")
ResultT = TypeVar("ResultT")


def run_isolating(
    run_model: Callable[[list[PayloadT]], Sequence[ResultT]], payloads: list[PayloadT]
) -> list[ResultT | BatchError]:
    """A result or an error for each payload.

    Where the model raises, or gives too few results, the batch is halved until what breaks it is alone; so a batch that
    needs more memory than there is runs in pieces as well. Where the device is gone nothing is tried again: no item
    can be told to be at fault.
    """
    try:
        results = run_model(payloads)
        if len(results) != len(payloads):
            raise RuntimeError(f"the model gave {len(results)} results for {len(payloads)} items")
    except DeviceLost as error:
        return [lost(error)] * len(payloads)
    except Exception as error:
        if len(payloads) == 1:
            return [failure(error)]
        middle = len(payloads) // 2
        first = run_isolating(run_model, payloads[:middle])
        if isinstance(first[-1], ModelLostError):
            return first + [first[-1]] * (len(payloads) - middle)
        return first + run_isolating(run_model, payloads[middle:])
    return [*results]


def failure(error: BaseException) -> ItemFailedError:
    """What an item gets that the model raised `error` on."""
    failed = ItemFailedError(f"{type(error).__name__}: {error}")
    failed.__cause__ = error
    return failed


def lost(error: DeviceLost) -> ModelLostError:
    """What items get whose model went away."""
    gone = ModelLostError(str(error))
    gone.__cause__ = error
    return gone
