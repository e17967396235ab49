"""Proof that what was exported computes what the source's weights mean."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kbmesh_onnx.errors import ExportError, OnnxError
from kbmesh_onnx.folder import Kind, Verification
from kbmesh_onnx.padding import pad
from kbmesh_onnx.session import ModelSession, Output
from kbmesh_onnx.tokenizer import ModelTokenizer, TokenizedText

TOLERANCE = 1e-4
"""Single precision over some tens of layers differs by about 1e-6 to 1e-5; a wrong weight by more than 1e-2."""

LONGEST = 128
"""Tokens of the longest text: reading more would prove no more, and takes the reference long."""

Floats = NDArray[np.float32]

TEXTS = (
    "a",
    "的",
    "🙂",
    "What is deep learning?",
    "The quick brown fox jumps over the lazy dog, and then it rests in the shade of an old tree.",
    "Straße, naïve café, Ελλάδα, Москва, 東京都, 서울, القاهرة, नमस्ते",
    "def rotate_key(key_id: str, *, grace_seconds: int = 3600) -> None:\n    raise KeyError(key_id)",
    " ".join(f"Section {number}: the port of service {number} is {8400 + number}." for number in range(60)),
)


@dataclass(frozen=True, kw_only=True)
class Rows:
    """The same texts as a padded batch and as the reference reads them, one by one."""

    texts: tuple[TokenizedText, ...]
    ids: NDArray[np.int64]
    mask: NDArray[np.int64]
    type_ids: NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What the reference gives for each text, by name of the output; token embeddings without padding."""

    outputs: dict[Output, Sequence[Floats]]


def verification_rows(tokenizer: ModelTokenizer, kind: Kind, max_tokens: int) -> Rows:
    """Encode the fixed texts, for a cross-encoder as pairs with the fourth text as the query."""
    limit = min(max_tokens, LONGEST)
    if kind == "encoder":
        texts = tokenizer.encode(TEXTS, max_tokens=limit)
    else:
        texts = [pair.windows[0] for pair in tokenizer.encode_pairs(TEXTS[3], TEXTS, max_tokens=limit)]
    ids, mask, type_ids = pad(texts)
    return Rows(texts=tuple(texts), ids=ids, mask=mask, type_ids=type_ids)


def verify(session: ModelSession, rows: Rows, expected: Expected, *, tolerance: float, reference: str) -> Verification:
    """Hold a session against the reference, in one padded batch. Raises ExportError beyond the tolerance."""
    names = tuple(expected.outputs)
    try:
        found = dict(zip(names, session.run(rows.ids, rows.mask, rows.type_ids, outputs=names), strict=True))
    except OnnxError as error:
        raise ExportError(f"the {session.form} form does not run: {error}") from error
    worst, cosine = 0.0, None
    for name in names:
        got = _unpadded(name, found[name], rows)
        difference = _relative_error(got, expected.outputs[name])
        if not difference <= tolerance:  # NaN is beyond every tolerance
            raise ExportError(
                f"the {session.form} form differs from the {reference} reference by {difference:.2g} in {name}; "
                f"the tolerance is {tolerance:.2g}"
            )
        worst = max(worst, difference)
        if name == "embeddings":
            cosine = min(_cosine(one, other) for one, other in zip(got, expected.outputs[name], strict=True))
    return Verification(max_error=worst, min_cosine=cosine, tolerance=tolerance, reference=reference)


def worse(one: Verification, other: Verification) -> Verification:
    """Give the worse figures of two forms."""
    cosines = [each.min_cosine for each in (one, other) if each.min_cosine is not None]
    return Verification(
        max_error=max(one.max_error, other.max_error),
        min_cosine=min(cosines, default=None),
        tolerance=one.tolerance,
        reference=one.reference,
    )


def _unpadded(name: Output, found: Floats, rows: Rows) -> list[Floats]:
    if name == "token_embeddings":
        return [found[row, : text.tokens] for row, text in enumerate(rows.texts)]
    return list(found)


def _relative_error(found: Sequence[Floats], expected: Sequence[Floats]) -> float:
    largest = max(float(np.abs(each).max()) for each in expected)
    difference = [np.abs(one - other).max() for one, other in zip(found, expected, strict=True)]
    return float(np.max(difference)) / max(1.0, largest)


def _cosine(one: Floats, other: Floats) -> float:
    first, second = one.astype(np.float64), other.astype(np.float64)
    return float(first @ second / (np.linalg.norm(first) * np.linalg.norm(second)))
