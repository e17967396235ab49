"""MaxSim over the token vectors of an embedding model: a reranker where no cross-encoder is installed.

Token vectors are the last hidden states, scaled to unit length. The score is the mean over the query's tokens of the
best cosine with a token of the document (Khattab and Zaharia, ColBERT, SIGIR 2020, without its training). Special
tokens and prefixes take no part in it.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from kbmesh_onnx.batcher import BatchError, BatchObserver, Item, QueueLimits
from kbmesh_onnx.device_loss import telling_device_loss
from kbmesh_onnx.errors import TextError
from kbmesh_onnx.errors import TextTooLong as TextTooLongForModel
from kbmesh_onnx.padding import pad
from kbmesh_onnx.tokenizer import PairTruncation, TokenizedText
from kbmesh_rpc.errors import EmptyText, InferenceFailed, InvalidField, KbmeshError, TextTooLong
from numpy.typing import NDArray

from kbmesh_reranker.backends.model_folder import OpenModel
from kbmesh_reranker.backends.one_window import Truncation, WindowScores, raise_first
from kbmesh_reranker.backends.port import Method, Reading, Scores, Timings
from kbmesh_reranker.backends.queued import (
    DEFAULT_CALL_WINDOWS,
    WindowBudget,
    Windows,
    allowed,
    estimate_tokens,
    reserved,
    score_windows,
    submit,
    windows_of,
)
from kbmesh_reranker.backends.queued_backend import QueuedBackend
from kbmesh_reranker.backends.token_windows import SplitText, TokenWindow, TokenWindows

Floats = NDArray[np.float32]

SPECIAL_TOKENS = 2


@dataclass(frozen=True, kw_only=True)
class Passage:
    """What the model reads at once: a window of a document, or the query."""

    window: TokenWindow
    query: Floats | None
    """(query tokens, dimension) to compare with. None for the query itself."""


class LateInteractionBackend(QueuedBackend[Passage, Floats]):
    """Compares the query's token vectors with those of each window of a document. Of one window, the limit is one of
    each text, since query and document are read apart."""

    method = Method.LATE_INTERACTION
    backend = "late_interaction"

    def __init__(
        self,
        model: OpenModel,
        *,
        max_windows: int,
        max_call_windows: int = DEFAULT_CALL_WINDOWS,
        limits: QueueLimits,
        observer: BatchObserver | None = None,
    ) -> None:
        super().__init__(
            model, max_windows=max_windows, max_call_windows=max_call_windows, limits=limits, observer=observer
        )
        card = model.card
        self._query_windows = TokenWindows(
            model.tokenizer, prefix=card.query_prefix, max_tokens=card.max_tokens, max_windows=1
        )
        self._document_windows = TokenWindows(
            model.tokenizer, prefix=card.document_prefix, max_tokens=card.max_tokens, max_windows=max_windows
        )

    @property
    def _tokens_beside_a_document(self) -> int:
        return self._model.tokenizer.special_tokens

    async def _score(
        self,
        query: str,
        documents: Sequence[str],
        *,
        deadline: float | None,
        reading: Reading,
        truncation: Truncation | None,
    ) -> WindowScores:
        cutting: PairTruncation = "windows" if truncation is None else truncation.value
        max_tokens = self._model.card.max_tokens
        max_windows = windows_of(reading, self._max_windows)
        estimate = estimate_tokens(
            documents,
            beside=SPECIAL_TOKENS,
            max_tokens=max_tokens,
            max_windows=max_windows if truncation is None else 1,
            max_call_windows=self._max_call_windows,
        )
        model, lane = self._description.name, self._tokenizing[reading.priority]
        # One window of the query first, then the documents'.
        with reserved(
            self._batcher, max_tokens + estimate, deadline=deadline, priority=reading.priority, model=model
        ) as reservation:
            started = time.monotonic()
            ((query_window, query_tokens_cut),) = await lane.run(
                partial(self._tokenize_query, truncation=cutting), [query], deadline=deadline, tenant=reservation.tenant
            )
            split = await lane.run(
                partial(self._split, truncation=cutting, max_windows=max_windows),
                documents,
                deadline=deadline,
                tenant=reservation.tenant,
            )
            tokenize_seconds = time.monotonic() - started

            asked = await submit(
                self._batcher,
                [Item(payload=Passage(window=query_window, query=None), tokens=query_window.text.tokens)],
                reservation=reservation,
                keep_reserved=estimate,
                deadline=deadline,
                model=model,
            )
            vectors = asked.outcomes[0]
            if isinstance(vectors, BatchError) or not np.isfinite(vectors).all():
                raise InferenceFailed(model, "the model failed on the query")

            budget = WindowBudget(self._max_call_windows)
            tokenized: list[Windows[Passage] | KbmeshError] = []
            for index, document in enumerate(split):
                windows = _windows(index, document, vectors)
                if isinstance(windows, Windows):
                    windows = allowed(index, windows, reading=reading, budget=budget)
                tokenized.append(windows)
            if truncation is not None:
                raise_first(tokenized)
            scored = await score_windows(
                self._batcher,
                tokenized,
                _mean_of_best,
                model=self._description.name,
                reservation=reservation,
                deadline=deadline,
            )
        return WindowScores(
            scores=Scores(
                documents=scored.documents,
                query_tokens_cut=query_tokens_cut,
                timings=Timings(
                    queue_seconds=asked.queue_seconds + scored.queue_seconds,
                    tokenize_seconds=tokenize_seconds,
                    infer_seconds=asked.infer_seconds + scored.infer_seconds,
                ),
            ),
            tokens_read=query_window.text.tokens
            + sum(item.tokens for windows in tokenized if isinstance(windows, Windows) for item in windows.items),
        )

    def _split(
        self, documents: Sequence[str], start: int, *, truncation: PairTruncation, max_windows: int
    ) -> list[SplitText | TextError]:
        return self._document_windows.split(documents, truncation, max_windows=max_windows)

    def _tokenize_query(
        self, queries: Sequence[str], start: int, *, truncation: PairTruncation
    ) -> list[tuple[TokenWindow, int]]:
        (split,) = self._query_windows.split(queries, truncation)
        if isinstance(split, TextTooLongForModel):
            raise TextTooLong(tokens=split.tokens, limit=split.limit)
        if isinstance(split, TextError):
            raise InvalidField("query", split.message) from split
        if split.tokens == 0:
            raise EmptyText("query")
        return [(split.windows[0], split.tokens_cut)]

    @telling_device_loss()
    def _run(self, passages: list[Passage]) -> list[Floats]:
        texts: list[TokenizedText] = [passage.window.text for passage in passages]
        ids, mask, type_ids = pad(texts)
        (hidden,) = self._model.session.run(ids, mask, type_ids, outputs=("token_embeddings",))
        results: list[Floats] = []
        for row, passage in enumerate(passages):
            tokens = hidden[row, passage.window.start : passage.window.end]
            lengths = np.linalg.norm(tokens, axis=1, keepdims=True)
            tokens = np.divide(tokens, np.where(lengths == 0, 1, lengths), dtype=np.float32)
            results.append(tokens if passage.query is None else (passage.query @ tokens.T).max(axis=1))
        return results


def _windows(index: int, document: SplitText | TextError, query: Floats) -> Windows[Passage] | KbmeshError:
    if isinstance(document, TextTooLongForModel):
        return TextTooLong(tokens=document.tokens, limit=document.limit)
    if isinstance(document, TextError):
        return InvalidField(f"documents[{index}]", document.message)
    if document.tokens == 0:
        return EmptyText(f"documents[{index}]")
    return Windows(
        items=tuple(
            Item(payload=Passage(window=window, query=query), tokens=window.text.tokens) for window in document.windows
        ),
        tokens=document.tokens,
        tokens_cut=document.tokens_cut,
    )


def _mean_of_best(windows: Sequence[Floats]) -> float:
    """The mean over query tokens of the best cosine in any window."""
    return float(np.max(windows, axis=0).mean())
