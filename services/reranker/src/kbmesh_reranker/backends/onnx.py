"""An exported cross-encoder, run by ONNX Runtime in this process."""

import time
from collections.abc import Sequence
from functools import partial

from kbmesh_onnx.batcher import Batcher, BatchObserver, Item, QueueLimits
from kbmesh_onnx.device_loss import telling_device_loss
from kbmesh_onnx.errors import ModelFolderError, TextError
from kbmesh_onnx.errors import TextTooLong as TextTooLongForModel
from kbmesh_onnx.padding import pad
from kbmesh_onnx.token_reader import TokenReader
from kbmesh_onnx.tokenizer import PairTruncation, TokenizedPair, TokenizedText
from kbmesh_onnx.tokenizing import TokenizingLane
from kbmesh_onnx.warm_up import warm_up_shapes
from kbmesh_rpc.errors import EmptyText, InvalidField, KbmeshError, TextTooLong

from kbmesh_reranker.backends.model_folder import OpenModel
from kbmesh_reranker.backends.one_window import Truncation, WindowScores, raise_first
from kbmesh_reranker.backends.port import DEFAULT_READING, Method, ModelDescription, Priority, Reading, Scores, Timings
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


class CrossEncoderBackend:
    """Reads the query with each window of a document; the document's logit is the best window's."""

    def __init__(
        self,
        model: OpenModel,
        *,
        max_windows: int,
        max_call_windows: int = DEFAULT_CALL_WINDOWS,
        limits: QueueLimits,
        observer: BatchObserver | None = None,
    ) -> None:
        self._model = model
        self._max_windows = max_windows
        self._batch_tokens = limits.batch_tokens
        self._max_call_windows = max_call_windows
        self._description = model.describe(method=Method.CROSS_ENCODER, backend="onnx")
        self._tokenizing = {
            Priority.INTERACTIVE: TokenizingLane("interactive"),
            Priority.BULK: TokenizingLane("bulk", in_order=True),
        }
        self._token_reader = TokenReader(model.tokenizer)
        self._batcher: Batcher[TokenizedText, float] = Batcher(self._run, limits=limits, observer=observer)

    @property
    def description(self) -> ModelDescription:
        return self._description

    @property
    def fault(self) -> str:
        return self._batcher.fault

    @property
    def suspect(self) -> bool:
        return self._batcher.suspect

    @property
    def token_reader(self) -> TokenReader:
        return self._token_reader

    async def warm_up(self) -> None:
        """Scores documents of all lengths, alone and in full batches. Raises ModelFolderError where one has none."""
        for documents, tokens in warm_up_shapes(
            max_tokens=self._model.card.max_tokens, batch_tokens=self._batch_tokens
        ):
            words = max(1, tokens - self._model.tokenizer.pair_special_tokens - 1)
            scores = await self.score("warm", [" ".join(["warm"] * words)] * documents, deadline=None)
            if scores.documents[0].error is not None:
                raise ModelFolderError(f"{self._description.name}: {scores.documents[0].error.message}")

    async def score(
        self, query: str, documents: Sequence[str], *, deadline: float | None, reading: Reading = DEFAULT_READING
    ) -> Scores:
        return (await self._score(query, documents, deadline=deadline, reading=reading, truncation="windows")).scores

    async def score_one_window(
        self, query: str, documents: Sequence[str], *, truncation: Truncation, deadline: float | None
    ) -> WindowScores:
        """As the port has it. A blank document is scored, too."""
        return await self._score(
            query, documents, deadline=deadline, reading=DEFAULT_READING, truncation=truncation.value
        )

    async def _score(
        self,
        query: str,
        documents: Sequence[str],
        *,
        deadline: float | None,
        reading: Reading,
        truncation: PairTruncation,
    ) -> WindowScores:
        max_tokens = self._model.card.max_tokens
        max_windows = windows_of(reading, self._max_windows)
        estimate = estimate_tokens(
            documents,
            beside=estimate_query_tokens(query, max_tokens=max_tokens),
            max_tokens=max_tokens,
            max_windows=max_windows if truncation == "windows" else 1,
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
                truncation=truncation,
            )
            read = await self._tokenizing[priority].run(tokenize, documents, deadline=deadline)
            tokenized = [windows for windows, _ in read]
            query_tokens_cut = max((cut for _, cut in read), default=0)
            tokenize_seconds = time.monotonic() - started
            if truncation != "windows":
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

    async def close(self) -> None:
        await self._batcher.close()
        for lane in self._tokenizing.values():
            lane.close()
        self._token_reader.close()
        self._model.session.close()

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
