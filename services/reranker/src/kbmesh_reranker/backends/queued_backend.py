"""What backends that run a model in this process share: a queue before the model, and threads beside it."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Generic, TypeVar

from kbmesh_onnx.batcher import Batcher, BatchObserver, QueueLimits
from kbmesh_onnx.errors import ModelFolderError
from kbmesh_onnx.golden import check_golden
from kbmesh_onnx.token_reader import TokenReader
from kbmesh_onnx.tokenizing import TokenizingLane
from kbmesh_onnx.warm_up import warm_up_shapes

from kbmesh_reranker.backends.model_folder import OpenModel
from kbmesh_reranker.backends.one_window import Truncation, WindowScores
from kbmesh_reranker.backends.port import DEFAULT_READING, Method, ModelDescription, Priority, Reading, Scores
from kbmesh_reranker.backends.queued import DEFAULT_CALL_WINDOWS

PayloadT = TypeVar("PayloadT")
ResultT = TypeVar("ResultT")


class QueuedBackend(ABC, Generic[PayloadT, ResultT]):
    """A model behind a batcher. `_run` gives a result for each payload; `_score` reads a query with its documents."""

    method: ClassVar[Method]
    backend: ClassVar[str]
    """Its name in ListModels."""

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
        self._description = model.describe(method=self.method, backend=self.backend)
        self._tokenizing = {
            Priority.INTERACTIVE: TokenizingLane("interactive"),
            Priority.BULK: TokenizingLane("bulk", in_order=True),
        }
        self._token_reader = TokenReader(model.tokenizer)
        self._batcher: Batcher[PayloadT, ResultT] = Batcher(self._run, limits=limits, observer=observer)

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
        """Scores documents of all lengths, alone and in full batches.

        Raises ModelFolderError where one has no score, or where the golden texts do not give what they gave at export.
        """
        model = self._model
        await asyncio.to_thread(check_golden, model.session, model.tokenizer, model.card)
        for documents, tokens in warm_up_shapes(
            max_tokens=self._model.card.max_tokens, batch_tokens=self._batch_tokens
        ):
            words = max(1, tokens - self._tokens_beside_a_document)
            scores = await self.score("warm", [" ".join(["warm"] * words)] * documents, deadline=None)
            if scores.documents[0].error is not None:
                raise ModelFolderError(f"{self._description.name}: {scores.documents[0].error.message}")

    async def score(
        self, query: str, documents: Sequence[str], *, deadline: float | None, reading: Reading = DEFAULT_READING
    ) -> Scores:
        """As the port has it."""
        return (await self._score(query, documents, deadline=deadline, reading=reading, truncation=None)).scores

    async def score_one_window(
        self, query: str, documents: Sequence[str], *, truncation: Truncation, deadline: float | None
    ) -> WindowScores:
        """As the port has it."""
        return await self._score(query, documents, deadline=deadline, reading=DEFAULT_READING, truncation=truncation)

    async def close(self) -> None:
        """As the port has it."""
        await self._batcher.close()
        for lane in self._tokenizing.values():
            lane.close()
        self._token_reader.close()
        self._model.session.close()

    @property
    @abstractmethod
    def _tokens_beside_a_document(self) -> int:
        """What the model reads besides a document's own tokens, where the query is one word."""

    @abstractmethod
    async def _score(
        self,
        query: str,
        documents: Sequence[str],
        *,
        deadline: float | None,
        reading: Reading,
        truncation: Truncation | None,
    ) -> WindowScores:
        """`truncation` is for one window of each document; None reads all windows."""

    @abstractmethod
    def _run(self, payloads: list[PayloadT]) -> list[ResultT]: ...
