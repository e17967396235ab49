"""Tokenised texts of different length as one batch."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kbmesh_onnx.tokenizer import TokenizedText

Integers = NDArray[np.int64]


def pad(texts: Sequence[TokenizedText]) -> tuple[Integers, Integers, Integers]:
    """Token ids, mask and segment ids, each (n, longest) int64, as `ModelSession.run` takes them."""
    shape = (len(texts), max(text.tokens for text in texts))
    ids, mask, type_ids = (np.zeros(shape, dtype=np.int64) for _ in range(3))
    for row, text in enumerate(texts):
        ids[row, : text.tokens] = text.ids
        mask[row, : text.tokens] = 1
        type_ids[row, : text.tokens] = text.type_ids
    return ids, mask, type_ids
