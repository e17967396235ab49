"""Which form of a model is faster on this device: measured, since neither always is."""

import statistics
import time
from collections.abc import Mapping

import numpy as np

from kbmesh_onnx.folder import Form, Kind
from kbmesh_onnx.session import ModelSession, Output

ROWS = 4
TOKENS = 128
ROUNDS = 5
FEWEST_ROUNDS = 3
SECONDS = 1.5


def median_milliseconds(
    sessions: Mapping[Form, ModelSession], *, kind: Kind, vocabulary_size: int, max_tokens: int
) -> dict[Form, float]:
    """Give the median milliseconds that each form takes for a batch of 4 texts of 128 tokens.

    The forms take turns, so that whatever else the machine does meets all of them. Ends after about 1.5 seconds, but
    not before each form has had three turns; a large model gets one text instead of four.
    """
    generator = np.random.default_rng(0)
    ids = generator.integers(0, vocabulary_size, size=(ROWS, min(TOKENS, max_tokens)), dtype=np.int64)
    mask, type_ids = np.ones_like(ids), np.zeros_like(ids)
    output: Output = "embeddings" if kind == "encoder" else "logits"
    times: dict[Form, list[float]] = {form: [] for form in sessions}
    for session in sessions.values():
        before = time.perf_counter()
        session.run(ids, mask, type_ids, outputs=(output,))
        if time.perf_counter() - before > SECONDS / (FEWEST_ROUNDS * len(sessions)):
            ids, mask, type_ids = ids[:1], mask[:1], type_ids[:1]
    started = time.perf_counter()
    for turn in range(ROUNDS):
        if turn >= FEWEST_ROUNDS and time.perf_counter() - started > SECONDS:
            break
        for form, session in sessions.items():
            before = time.perf_counter()
            session.run(ids, mask, type_ids, outputs=(output,))
            times[form].append((time.perf_counter() - before) * 1000)
    return {form: round(statistics.median(taken), 3) for form, taken in times.items()}
