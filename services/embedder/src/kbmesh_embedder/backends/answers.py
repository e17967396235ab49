"""Reading the vectors of a vendor's answer."""

import base64
import binascii
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from kbmesh_rpc.provider.failure import Cause, ProviderFailure

from kbmesh_embedder.backends.provider_port import ProviderAnswer, Row

LONG_BODY = 65_536
"""Bytes of a body that is read in a thread."""


def bad_answer(detail: str) -> ProviderFailure:
    """What to raise for an answer that cannot be used. `detail` quotes nothing of it."""
    return ProviderFailure(Cause.BAD_ANSWER, status=200, detail=detail)


def read_json(body: bytes) -> Mapping[str, Any]:
    """The object that a body holds; blocks. Raises ProviderFailure."""
    try:
        read = json.loads(body)
    except (ValueError, RecursionError):
        read = None
    if not isinstance(read, dict):
        raise bad_answer("something that is no JSON object")
    return read


def read_openai_answer(body: bytes, *, texts: int) -> ProviderAnswer:
    """The answer of OpenAI's `POST /embeddings`, whose items say by `index` which text they are of; blocks.

    Raises ProviderFailure.
    """
    answer = read_json(body)
    items = answer.get("data")
    if not isinstance(items, list):
        raise bad_answer("no list of vectors")
    check_count(len(items), texts)
    rows: list[Row | None] = [None] * texts
    for item in items:
        index = item.get("index") if isinstance(item, dict) else None
        if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < texts:
            raise bad_answer("a vector that says not of which text it is")
        if rows[index] is not None:
            raise bad_answer("two vectors of one text")
        rows[index] = read_row(item.get("embedding"))
    usage = answer.get("usage")
    tokens = usage.get("prompt_tokens") if isinstance(usage, dict) else None
    return ProviderAnswer(rows=tuple(row for row in rows if row is not None), tokens=read_count(tokens))


def read_rows(vectors: object, *, texts: int) -> tuple[Row, ...]:
    """Vectors that come in the order of the texts; blocks. Raises ProviderFailure."""
    if not isinstance(vectors, list):
        raise bad_answer("no list of vectors")
    check_count(len(vectors), texts)
    return tuple(read_row(vector) for vector in vectors)


def check_count(vectors: int, texts: int) -> None:
    """Raises ProviderFailure where there are more or fewer vectors than texts."""
    if vectors != texts:
        raise bad_answer(f"{vectors} vectors for {texts} texts")


def read_row(vector: object) -> Row:
    """One vector, given as numbers or as base64 of little-endian float32. Raises ProviderFailure."""
    if isinstance(vector, str):
        try:
            return np.frombuffer(base64.b64decode(vector, validate=True), dtype="<f4").astype(np.float32)
        except (binascii.Error, ValueError):
            raise bad_answer("a vector that is no base64 of numbers") from None
    if isinstance(vector, list):
        try:
            numbers = np.array(vector)
            if numbers.dtype.kind == "O":
                # JSON knows no NaN: some servers send null, which becomes one here, and the text fails alone.
                numbers = np.array([math.nan if number is None else number for number in vector])
        except (ValueError, TypeError, OverflowError):
            numbers = np.zeros((0, 0))
        if numbers.ndim == 1 and numbers.dtype.kind in "fiu":
            with np.errstate(over="ignore"):
                return numbers.astype(np.float32)
    raise bad_answer("a vector that is no list of numbers")


def read_count(count: object) -> int | None:
    """A number of tokens; None where it is none."""
    if isinstance(count, bool) or not isinstance(count, int | float) or not math.isfinite(count) or count <= 0:
        return None
    return int(count)


def spread(total: int | None, estimates: Sequence[int]) -> list[int]:
    """The tokens of each text, where only their sum is told: in proportion to what was estimated, the sum exact."""
    if total is None or not estimates:
        return list(estimates)
    weight = max(1, sum(estimates))
    shares = [total * estimate / weight for estimate in estimates]
    counts = [math.floor(share) for share in shares]
    rest = total - sum(counts)
    for place in sorted(range(len(shares)), key=lambda place: counts[place] - shares[place])[:rest]:
        counts[place] += 1
    return counts
