"""An exported cross-encoder, run by ONNX Runtime in this process."""

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from kbmesh_onnx.batcher import Batcher, BatchObserver, Item, QueueLimits
from kbmesh_onnx.errors import ModelFolderError, TextError
from kbmesh_onnx.padding import pad
from kbmesh_onnx.tokenizer import TokenizedPair, TokenizedText
from kbmesh_rpc.errors import EmptyText, InvalidField, KbmeshError

from kbmesh_reranker.backends.model_folder import OpenModel
from kbmesh_reranker.backends.port import Method, ModelDescription, Scores, Timings
from kbmesh_reranker.backends.queued import Windows, estimate_query_tokens, estimate_tokens, reserved, score_windows

TOKENIZER_THREADS = 2
WARM_UP_WORDS = (8, 64, 512)


class CrossEncoderBackend:
    """Reads the query with each window of a document; the document's logit is the best window's."""

    def __init__(
        self, model: OpenModel, *, max_windows: int, limits: QueueLimits, observer: BatchObserver | None = None
    ) -> None:
        self._model = model
        self._max_windows = max_windows
        self._description = model.describe(method=Method.CROSS_ENCODER, backend="onnx")
        self._threads = ThreadPoolExecutor(max_workers=TOKENIZER_THREADS, thread_name_prefix="tokenizer")
        self._batcher: Batcher[TokenizedText, float] = Batcher(self._run, limits=limits, observer=observer)

    @property
    def description(self) -> ModelDescription:
        return self._description

    async def warm_up(self) -> None:
        """Scores documents of several lengths. Raises ModelFolderError where one has no score."""
        for words in WARM_UP_WORDS:
            scores = await self.score("warm", [" ".join(["warm"] * words)], deadline=None)
            if scores.documents[0].error is not None:
                raise ModelFolderError(f"{self._description.name}: {scores.documents[0].error.message}")

    async def score(self, query: str, documents: Sequence[str], *, deadline: float | None) -> Scores:
        max_tokens = self._model.card.max_tokens
        estimate = estimate_tokens(
            documents,
            beside=estimate_query_tokens(query, max_tokens=max_tokens),
            max_tokens=max_tokens,
            max_windows=self._max_windows,
        )
        loop = asyncio.get_running_loop()
        with reserved(self._batcher, estimate, deadline=deadline) as reservation:
            started = time.monotonic()
            tokenized, query_tokens_cut = await loop.run_in_executor(self._threads, self._tokenize, query, documents)
            tokenize_seconds = time.monotonic() - started
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
            query_tokens_cut=query_tokens_cut,
            timings=Timings(
                queue_seconds=scored.queue_seconds,
                tokenize_seconds=tokenize_seconds,
                infer_seconds=scored.infer_seconds,
            ),
        )

    async def close(self) -> None:
        await self._batcher.close()
        self._threads.shutdown(wait=False)
        self._model.session.close()

    def _tokenize(self, query: str, documents: Sequence[str]) -> tuple[list[Windows[TokenizedText] | KbmeshError], int]:
        try:
            pairs = self._model.tokenizer.try_encode_pairs(
                query, documents, max_tokens=self._model.card.max_tokens, windows=self._max_windows
            )
        except TextError as error:
            raise InvalidField("query", error.message) from error
        query_tokens_cut = 0
        tokenized: list[Windows[TokenizedText] | KbmeshError] = []
        for index, pair in enumerate(pairs):
            if isinstance(pair, TokenizedPair):
                if pair.query_tokens == 0:
                    raise EmptyText("query")
                query_tokens_cut = pair.query_tokens_cut
            tokenized.append(_windows(index, pair))
        return tokenized, query_tokens_cut

    def _run(self, windows: list[TokenizedText]) -> list[float]:
        ids, mask, type_ids = pad(windows)
        (logits,) = self._model.session.run(ids, mask, type_ids, outputs=("logits",))
        return [float(logit) for logit in logits[:, 0]]


def _windows(index: int, pair: TokenizedPair | TextError) -> Windows[TokenizedText] | KbmeshError:
    if isinstance(pair, TextError):
        return InvalidField(f"documents[{index}]", pair.message)
    if pair.tokens == 0:
        return EmptyText(f"documents[{index}]")
    return Windows(
        items=tuple(Item(payload=window, tokens=window.tokens) for window in pair.windows),
        tokens=pair.tokens,
        tokens_cut=pair.tokens_cut,
    )
