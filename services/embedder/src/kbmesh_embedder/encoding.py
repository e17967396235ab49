"""Vectors as bytes: rows one after another, little-endian."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from kbmesh_rpc.errors import InvalidField
from numpy.typing import NDArray

FLOAT16_MAX = float(np.finfo(np.float16).max)
INT8_MAX = 127


class Encoding(StrEnum):
    """The form of the numbers."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    INT8 = "int8"


@dataclass(frozen=True, kw_only=True)
class EncodedVectors:
    """A matrix as bytes."""

    data: bytes
    scales: tuple[float, ...]
    """One for each row, for INT8 only: a byte times its row's scale is the number."""


def encode(vectors: NDArray[np.float32], encoding: Encoding) -> EncodedVectors:
    """The bytes of an (n, dimension) matrix.

    INT8 is symmetric: the largest number of a row becomes 127 or -127. Raises InvalidField ("encoding") where FLOAT16
    has not the numbers, which happens with models that do not normalise.
    """
    if encoding is Encoding.FLOAT16:
        if np.abs(vectors).max(initial=0) > FLOAT16_MAX:
            raise InvalidField("encoding", f"the vectors hold numbers beyond FLOAT16's {FLOAT16_MAX:.0f}")
        return EncodedVectors(data=vectors.astype("<f2").tobytes(), scales=())
    if encoding is Encoding.INT8:
        scales = np.abs(vectors).max(axis=1, initial=0) / INT8_MAX
        rows = np.rint(vectors / np.where(scales == 0, 1, scales)[:, None]).astype(np.int8)
        return EncodedVectors(data=rows.tobytes(), scales=tuple(scales.tolist()))
    return EncodedVectors(data=vectors.astype("<f4", copy=False).tobytes(), scales=())
