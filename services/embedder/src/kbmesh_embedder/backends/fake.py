"""A model without weights, for tests and load runs: the same text always has the same vector.

A vector is the sum of a fixed random vector for each word, so that texts which share words lie near each other. Tokens
are words, and two more, as if for special tokens. ListModels calls the backend "fake".
"""

import hashlib
import re
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from kbmesh_onnx.batcher import Batcher, BatchObserver, QueueLimits
from kbmesh_onnx.token_estimate import estimate_tokens
from kbmesh_rpc.errors import EmptyText, KbmeshError, TextTooLong
from numpy.typing import NDArray

from kbmesh_embedder.backends.port import Embeddings, InputType, ModelDescription, Priority, TokenCount, Truncation
from kbmesh_embedder.backends.queued import ReadyText, embed_ready, reserved

DIMENSION = 384
MATRYOSHKA_DIMENSIONS = (256, 128, 64)
MAX_TOKENS = 256
SPECIAL_TOKENS = 2
WORD = re.compile(r"\w+|[^\w\s]")


@lru_cache(maxsize=100_000)
def word_vector(model: str, word: str) -> NDArray[np.float64]:
    """The (DIMENSION,) vector of a word."""
    seed = hashlib.blake2b(f"{model}\n{word.casefold()}".encode(), digest_size=8).digest()
    vector = np.random.default_rng(int.from_bytes(seed, "little")).standard_normal(DIMENSION)
    vector.flags.writeable = False
    return vector


def embed_words(model: str, words: Sequence[str]) -> NDArray[np.float32]:
    """The (DIMENSION,) float32 unit vector of a text."""
    total = np.sum([word_vector(model, word) for word in words], axis=0)
    return np.asarray(total / np.linalg.norm(total), dtype=np.float32)


class FakeBackend:
    """Stands behind the same queue as a real model."""

    def __init__(self, name: str, *, limits: QueueLimits, observer: BatchObserver | None = None) -> None:
        self._description = ModelDescription(
            name=name,
            fingerprint="fake-" + hashlib.sha256(f"{name} {DIMENSION}".encode()).hexdigest(),
            dimension=DIMENSION,
            max_tokens=MAX_TOKENS,
            pooling="mean",
            normalized=True,
            matryoshka_dimensions=MATRYOSHKA_DIMENSIONS,
            query_prefix="",
            document_prefix="",
            device="cpu",
            precision="fp32",
            backend="fake",
        )
        self._batcher: Batcher[tuple[str, ...], NDArray[np.float32]] = Batcher(
            lambda texts: [embed_words(name, words) for words in texts],
            limits=limits,
            observer=observer,
        )

    @property
    def description(self) -> ModelDescription:
        return self._description

    @property
    def fault(self) -> str:
        return self._batcher.fault

    @property
    def suspect(self) -> bool:
        return self._batcher.suspect

    async def warm_up(self) -> None:
        """Runs one text."""
        await self.embed(
            ["warm"],
            input_type=InputType.DOCUMENT,
            truncation=Truncation.END,
            priority=Priority.INTERACTIVE,
            deadline=None,
        )

    async def embed(
        self,
        texts: Sequence[str],
        *,
        input_type: InputType,
        truncation: Truncation,
        priority: Priority,
        deadline: float | None,
    ) -> Embeddings:
        estimate = estimate_tokens(texts, max_tokens=MAX_TOKENS)
        with reserved(self._batcher, estimate, priority=priority, deadline=deadline) as reservation:
            return await embed_ready(
                self._batcher,
                [_ready(index, text, truncation) for index, text in enumerate(texts)],
                self._description,
                reservation=reservation,
                deadline=deadline,
                tokenize_seconds=0.0,
            )

    async def count_tokens(
        self, texts: Sequence[str], *, input_type: InputType, with_offsets: bool
    ) -> tuple[TokenCount, ...]:
        counts = []
        for text in texts:
            spans = [found.span() for found in WORD.finditer(text)]
            starts, ends = tuple(start for start, _ in spans), tuple(end for _, end in spans)
            tokens = len(spans) + SPECIAL_TOKENS
            counts.append(
                TokenCount(tokens=tokens, starts=starts, ends=ends) if with_offsets else TokenCount(tokens=tokens)
            )
        return tuple(counts)

    async def close(self) -> None:
        await self._batcher.close()


def _ready(index: int, text: str, truncation: Truncation) -> ReadyText[tuple[str, ...]] | KbmeshError:
    words = tuple(WORD.findall(text))
    room = MAX_TOKENS - SPECIAL_TOKENS
    if not words:
        return EmptyText(f"texts[{index}]")
    cut = max(0, len(words) - room)
    if cut and truncation is Truncation.NONE:
        return TextTooLong(tokens=len(words) + SPECIAL_TOKENS, limit=MAX_TOKENS)
    kept = words[cut:] if truncation is Truncation.START else words[:room]
    return ReadyText(payload=kept, tokens=len(kept) + SPECIAL_TOKENS, tokens_cut=cut)
