"""An exported cross-encoder, run by ONNX Runtime in this process."""

import time
from collections.abc import Sequence
from functools import partial

from kbmesh_onnx.batcher import Item
from kbmesh_onnx.device_loss import telling_device_loss
from kbmesh_onnx.errors import TextError
from kbmesh_onnx.errors import TextTooLong as TextTooLongForModel
from kbmesh_onnx.padding import pad
from kbmesh_onnx.tokenizer import PairTruncation, TokenizedPair, TokenizedText
from kbmesh_rpc.errors import EmptyText, InvalidField, KbmeshError, TextTooLong

from kbmesh_reranker.backends.one_window import Truncation, WindowScores, raise_first
from kbmesh_reranker.backends.port import Method, Reading, Scores, Timings
from kbmesh_reranker.backends.queued import (
    WindowBudget,
    Windows,
    allowed,
    estimate_query_tokens,
    estimate_tokens,
    reserved,
    score_windows,
    windows_of,
)
from kbmesh_reranker.backends.queued_backend import QueuedBackend


class CrossEncoderBackend(QueuedBackend[TokenizedText, float]):
    """Reads the query with each window of a document; the document's logit is the best window's. Of one window, a blank
    document is scored, too."""

    method = Method.CROSS_ENCODER
    backend = "onnx"

    @property
    def _tokens_beside_a_document(self) -> int:
        return self._model.tokenizer.pair_special_tokens + 1

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
            beside=estimate_query_tokens(query, max_tokens=max_tokens),
            max_tokens=max_tokens,
            max_windows=max_windows if truncation is None else 1,
            max_call_windows=self._max_call_windows,
        )
        model, priority = self._description.name, reading.priority
        with reserved(self._batcher, estimate, deadline=deadline, priority=priority, model=model) as reservation:
            started = time.monotonic()
            tokenize = partial(
                self._tokenize,
                query,
                budget=WindowBudget(self._max_call_windows),
                reading=reading,
                max_windows=max_windows,
                truncation=cutting,
            )
            read = await self._tokenizing[priority].run(
                tokenize, documents, deadline=deadline, tenant=reservation.tenant
            )
            tokenized = [windows for windows, _ in read]
            query_tokens_cut = max((cut for _, cut in read), default=0)
            tokenize_seconds = time.monotonic() - started
            if truncation is not None:
                raise_first(tokenized)
            scored = await score_windows(
                self._batcher,
                tokenized,
                max,
                model=self._description.name,
                reservation=reservation,
                deadline=deadline,
            )
        return WindowScores(
            scores=Scores(
                documents=scored.documents,
                query_tokens_cut=query_tokens_cut,
                timings=Timings(
                    queue_seconds=scored.queue_seconds,
                    tokenize_seconds=tokenize_seconds,
                    infer_seconds=scored.infer_seconds,
                ),
            ),
            tokens_read=sum(
                item.tokens for windows in tokenized if isinstance(windows, Windows) for item in windows.items
            ),
        )

    def _tokenize(
        self,
        query: str,
        documents: Sequence[str],
        start: int,
        *,
        budget: WindowBudget,
        reading: Reading,
        max_windows: int,
        truncation: PairTruncation,
    ) -> list[tuple[Windows[TokenizedText] | KbmeshError, int]]:
        """The windows of each document, and the tokens that were cut off the query beside it."""
        try:
            pairs = self._model.tokenizer.try_encode_pairs(
                query,
                documents,
                max_tokens=self._model.card.max_tokens,
                windows=max_windows,
                truncation=truncation,
            )
        except TextError as error:
            raise InvalidField("query", error.message) from error
        tokenized: list[tuple[Windows[TokenizedText] | KbmeshError, int]] = []
        for index, pair in enumerate(pairs, start):
            if isinstance(pair, TokenizedPair) and pair.query_tokens == 0:
                raise EmptyText("query")
            cut = pair.query_tokens_cut if isinstance(pair, TokenizedPair) else 0
            windows = _windows(index, pair, blank_is_scored=truncation != "windows")
            if isinstance(windows, Windows):
                windows = allowed(index, windows, reading=reading, budget=budget)
            tokenized.append((windows, cut))
        return tokenized

    @telling_device_loss()
    def _run(self, windows: list[TokenizedText]) -> list[float]:
        ids, mask, type_ids = pad(windows)
        (logits,) = self._model.session.run(ids, mask, type_ids, outputs=("logits",))
        return [float(logit) for logit in logits[:, 0]]


def _windows(
    index: int, pair: TokenizedPair | TextError, *, blank_is_scored: bool
) -> Windows[TokenizedText] | KbmeshError:
    if isinstance(pair, TextTooLongForModel):
        return TextTooLong(tokens=pair.tokens, limit=pair.limit)
    if isinstance(pair, TextError):
        return InvalidField(f"documents[{index}]", pair.message)
    if pair.tokens == 0 and not blank_is_scored:
        return EmptyText(f"documents[{index}]")
    return Windows(
        items=tuple(Item(payload=window, tokens=window.tokens) for window in pair.windows),
        tokens=pair.tokens,
        tokens_cut=pair.tokens_cut,
    )
