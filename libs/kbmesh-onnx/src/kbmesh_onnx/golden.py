"""A few texts with what the model gives for them, kept with it, so that a start can tell whether it still does.

What was proven at export ran on that machine. Another runtime, a driver, a provider, or a folder that somebody edited
can compute something else, and vectors with a wrong pooling look like any others: of unit length, and near one another.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kbmesh_onnx.errors import ModelFolderError
from kbmesh_onnx.folder import Golden, ModelCard
from kbmesh_onnx.padding import pad
from kbmesh_onnx.session import ModelSession, Output
from kbmesh_onnx.tokenizer import ModelTokenizer
from kbmesh_onnx.verification import LONGEST, TEXTS, Expected

PLACES = (3, 4)
"""Of the texts of the proof: a question and a sentence, both short."""
MIN_COSINE = {"fp32": 0.999, "fp16": 0.999, "int8": 0.98}
"""Of a vector with the golden one. Mean and first-token pooling of one text differ by .1 and more."""
LENGTH_TOLERANCE = 0.02
"""Of the length of a vector that is not normalised."""
LOGIT_TOLERANCE = {"fp32": 0.02, "fp16": 0.05, "int8": 0.5}
DIGITS = 6


def with_golden(card: ModelCard, expected: Expected) -> ModelCard:
    """The card with the reference's outputs for two texts of the proof."""
    outputs = expected.outputs["embeddings" if card.kind == "encoder" else "logits"]
    golden = Golden(
        texts=tuple(TEXTS[place] for place in PLACES),
        outputs=tuple(tuple(round(float(number), DIGITS) for number in np.ravel(outputs[place])) for place in PLACES),
    )
    return replace(card, golden=golden)


def check_golden(session: ModelSession, tokenizer: ModelTokenizer, card: ModelCard) -> None:
    """Runs the golden texts and compares; blocks. A card without them is not checked.

    Raises ModelFolderError where the model gives something else, and what the session raises.
    """
    golden = card.golden
    if golden is None:
        return
    limit = min(card.max_tokens, LONGEST)
    output: Output
    if card.kind == "encoder":
        output, texts = "embeddings", tokenizer.encode(golden.texts, max_tokens=limit)
    else:
        pairs = tokenizer.encode_pairs(golden.texts[0], golden.texts, max_tokens=limit)
        output, texts = "logits", [pair.windows[0] for pair in pairs]
    (found,) = session.run(*pad(texts), outputs=(output,))
    wanted = np.asarray(golden.outputs, dtype=np.float64)
    where = f"{card.name} on {session.device_text} in {session.precision}"
    if found.shape != wanted.shape or not np.isfinite(found).all():
        raise ModelFolderError(f"{where} gives no {output} like those of its export")
    if card.kind == "encoder":
        _check_vectors(found, wanted, where, session.precision)
    else:
        difference = float(np.abs(found - wanted).max())
        if difference > LOGIT_TOLERANCE[session.precision]:
            raise ModelFolderError(f"{where} gives logits that differ by {difference:.2g} from those of its export")


def _check_vectors(found: NDArray[np.float32], wanted: NDArray[Any], where: str, precision: str) -> None:
    lengths, wanted_lengths = np.linalg.norm(found, axis=1), np.linalg.norm(wanted, axis=1)
    cosine = float(((found * wanted).sum(axis=1) / np.maximum(lengths * wanted_lengths, 1e-12)).min())
    if cosine < MIN_COSINE[precision]:
        raise ModelFolderError(
            f"{where} gives vectors whose cosine with those of its export is {cosine:.4f}: another pooling, other "
            "weights, or a runtime that computes something else"
        )
    if np.abs(lengths / wanted_lengths - 1).max() > LENGTH_TOLERANCE:
        raise ModelFolderError(f"{where} gives vectors of length {lengths.tolist()}, not {wanted_lengths.tolist()}")
