"""A cross-encoder without weights, for tests and load runs: the more of the query's words, the higher the logit.

ListModels calls the backend "fake".
"""

import hashlib
import re
from collections.abc import Sequence

from kbmesh_onnx.batcher import Batcher, BatchObserver, Item, QueueLimits
from kbmesh_rpc.errors import EmptyText, KbmeshError

from kbmesh_reranker.backends.port import DEFAULT_READING, Method, ModelDescription, Reading, Scores, Timings
from kbmesh_reranker.backends.queued import (
    DEFAULT_CALL_WINDOWS,
    WindowBudget,
    Windows,
    allowed,
    estimate_query_tokens,
    estimate_tokens,
    reserved,
    score_windows,
    windows_of,
)

MAX_TOKENS = 256
WORD = re.compile(r"\w+|[^\w\s]")

Pair = tuple[tuple[str, ...], tuple[str, ...]]


def logit(pair: Pair) -> float:
    """From -4, where no word of the query is in the document, to 4, where all are."""
    query, document = (set(words) for words in pair)
    return 8.0 * len(query & document) / len(query) - 4.0


class FakeBackend:
    """Stands behind the same queue as a real model."""

    def __init__(
        self,
        name: str,
        *,
        max_windows: int,
        max_call_windows: int = DEFAULT_CALL_WINDOWS,
        limits: QueueLimits,
        observer: BatchObserver | None = None,
    ) -> None:
        self._max_windows = max_windows
        self._max_call_windows = max_call_windows
        self._description = ModelDescription(
            name=name,
            fingerprint="fake-" + hashlib.sha256(name.encode()).hexdigest(),
            method=Method.CROSS_ENCODER,
            max_tokens=MAX_TOKENS,
            device="cpu",
            precision="fp32",
            backend="fake",
        )
        self._batcher: Batcher[Pair, float] = Batcher(
            lambda pairs: [logit(pair) for pair in pairs], limits=limits, observer=observer
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
        """Scores one document."""
        await self.score("warm", ["warm"], deadline=None)

    async def score(
        self, query: str, documents: Sequence[str], *, deadline: float | None, reading: Reading = DEFAULT_READING
    ) -> Scores:
        words = tuple(WORD.findall(query.casefold()))
        if not words:
            raise EmptyText("query")
        kept = words[: MAX_TOKENS // 2]
        max_windows = windows_of(reading, self._max_windows)
        estimate = estimate_tokens(
            documents,
            beside=estimate_query_tokens(query, max_tokens=MAX_TOKENS),
            max_tokens=MAX_TOKENS,
            max_windows=max_windows,
            max_call_windows=self._max_call_windows,
        )
        budget = WindowBudget(self._max_call_windows)
        tokenized: list[Windows[Pair] | KbmeshError] = []
        for index, document in enumerate(documents):
            windows = _windows(index, kept, document, max_windows)
            if isinstance(windows, Windows):
                windows = allowed(index, windows, reading=reading, budget=budget)
            tokenized.append(windows)
        priority, model = reading.priority, self._description.name
        with reserved(self._batcher, estimate, deadline=deadline, priority=priority, model=model) as reservation:
            scored = await score_windows(
                self._batcher,
                tokenized,
                max,
                model=self._description.name,
                reservation=reservation,
                deadline=deadline,
            )
        return Scores(
            documents=scored.documents,
            query_tokens_cut=len(words) - len(kept),
            timings=Timings(queue_seconds=scored.queue_seconds, infer_seconds=scored.infer_seconds),
        )

    async def close(self) -> None:
        await self._batcher.close()


def _windows(index: int, query: tuple[str, ...], document: str, max_windows: int) -> Windows[Pair] | KbmeshError:
    words = tuple(WORD.findall(document.casefold()))
    if not words:
        return EmptyText(f"documents[{index}]")
    room = MAX_TOKENS - len(query)
    read = words[: room * max_windows]
    pieces = [read[start : start + room] for start in range(0, len(read), room)]
    return Windows(
        items=tuple(Item(payload=(query, piece), tokens=len(query) + len(piece)) for piece in pieces),
        tokens=len(read),
        tokens_cut=len(words) - len(read),
    )
