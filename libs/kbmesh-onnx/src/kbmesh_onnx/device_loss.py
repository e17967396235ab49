"""Telling a device that is gone from a batch that failed.

ONNX Runtime has no error of its own for it. What it says holds CUDA's error number, of which some leave the process's
context unusable (CUDA Runtime API, "Data types used by CUDA Runtime", cudaError), or the name of a library's error.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from kbmesh_onnx.errors import DeviceLost, InferenceError

STICKY_ERRORS = frozenset({46, 100, 101, 201, 214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 999})
"""Devices unavailable, no device, invalid device or context, ECC and NVLink errors, illegal address, launch timeout,
context destroyed, assertion, hardware stack, instruction, address and launch errors, and unknown."""

_NUMBER = re.compile(r"CUDA (?:failure|error)\s*(\d+)", re.IGNORECASE)
_NAMES = re.compile(r"device (?:is |was )?(?:lost|removed)|fallen off the bus", re.IGNORECASE)


@contextmanager
def telling_device_loss() -> Iterator[None]:
    """Raises DeviceLost in place of an InferenceError that means it."""
    try:
        yield
    except InferenceError as error:
        if is_device_loss(str(error)):
            raise DeviceLost(str(error)) from error
        raise


def is_device_loss(message: str) -> bool:
    """Whether an error of ONNX Runtime means that no later run will succeed."""
    number = _NUMBER.search(message)
    return (number is not None and int(number[1]) in STICKY_ERRORS) or _NAMES.search(message) is not None
