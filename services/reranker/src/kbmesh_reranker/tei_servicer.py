"""Between `tei.v1`, the contract of text-embeddings-inference, and the domain."""

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial

import grpc
from kbmesh_rpc.errors import InvalidField, RequestTooLarge
from kbmesh_rpc.tei.answer import cuts_start, deadline, metadata, patiently, tei_codes
from kbmesh_rpc.tei.info_servicer import ServedModel
from tei.v1 import tei_pb2 as pb2
from tei.v1 import tei_pb2_grpc

from kbmesh_reranker.backends.one_window import Truncation
from kbmesh_reranker.metrics import count_texts
from kbmesh_reranker.settings import RerankerSettings
from kbmesh_reranker.tei import RankOrder, TeiModel, TextScores, rank

TOKENIZING_THREADS = 1
"""Interactive texts have one."""


def served_model(model: TeiModel, settings: RerankerSettings) -> ServedModel:
    """What `tei.v1.Info` tells. Raises ModelNotReady."""
    description = model.description
    return ServedModel(
        name=description.name,
        fingerprint=description.fingerprint,
        precision=description.precision,
        kind="reranker",
        max_tokens=description.max_tokens,
        batch_tokens=settings.batch_tokens,
        queue_tokens=settings.queue_tokens,
        max_texts=settings.max_documents,
        tokenizing_threads=TOKENIZING_THREADS,
    )


class TeiRerankServicer(tei_pb2_grpc.RerankServicer):
    """Serves the default model."""

    def __init__(self, model: TeiModel, *, stream_bytes: int) -> None:
        """`stream_bytes` is what the texts of one stream may come to: they are ranked together, so all lie in memory at
        once."""
        self._model = model
        self._stream_bytes = stream_bytes

    async def Rerank(self, request: pb2.RerankRequest, context: grpc.ServicerContext) -> pb2.RerankResponse:
        """Scores the texts of one request."""
        started = time.monotonic()
        async with tei_codes(context):
            order = RankOrder(
                query=request.query,
                texts=list(request.texts),
                truncation=_truncation(request),
                raw_scores=request.raw_scores,
            )
            scored = await self._model.score(order, deadline=deadline())
            return self._response([(order, range(len(order.texts)), scored)], started, return_text=request.return_text)

    async def RerankStream(
        self, request_iterator: AsyncIterator[pb2.RerankStreamRequest], context: grpc.ServicerContext
    ) -> pb2.RerankResponse:
        """Scores the texts of a stream. `raw_scores` and `return_text` are the first message's; each text has a query
        and a way of being cut of its own, and texts that agree in them are scored together."""
        started = time.monotonic()
        async with tei_codes(context):
            requests = await self._read(request_iterator)
            raw_scores, return_text = requests[0].raw_scores, requests[0].return_text
            scored = []
            for (query, truncation), indices in _groups(requests).items():
                texts = [requests[index].text for index in indices]
                order = RankOrder(query=query, texts=texts, truncation=truncation, raw_scores=raw_scores)
                answer = await patiently(partial(self._model.score, order, deadline=deadline()))
                scored.append((order, indices, answer))
            return self._response(scored, started, return_text=return_text)

    async def _read(self, stream: AsyncIterator[pb2.RerankStreamRequest]) -> list[pb2.RerankStreamRequest]:
        requests: list[pb2.RerankStreamRequest] = []
        size = 0
        async for request in stream:
            requests.append(request)
            size += request.ByteSize()
            self._model.check_count(len(requests))
            if size > self._stream_bytes:
                raise RequestTooLarge(field="stream", limit=self._stream_bytes, actual=size)
        if not requests:
            raise InvalidField("texts", "at least one text is needed")
        return requests

    def _response(
        self, scored: Sequence[tuple[RankOrder, Sequence[int], TextScores]], started: float, *, return_text: bool
    ) -> pb2.RerankResponse:
        name = self._model.description.name
        scores: dict[int, float] = {}
        texts: dict[int, str] = {}
        for order, indices, answer in scored:
            count_texts(name, answer.documents, query_tokens_cut=answer.query_tokens_cut)
            scores.update(zip(indices, answer.scores, strict=True))
            texts.update(zip(indices, order.texts, strict=True))
        ranks = [
            pb2.Rank(index=index, text=texts[index] if return_text else None, score=scores[index])
            for index in rank([scores[index] for index in range(len(scores))])
        ]
        return pb2.RerankResponse(
            ranks=ranks,
            metadata=metadata(
                started=started,
                characters=sum(len(order.query) + len(text) for order, _, _ in scored for text in order.texts),
                tokens=sum(answer.tokens_read for _, _, answer in scored),
                queue_seconds=sum(answer.timings.queue_seconds for _, _, answer in scored),
                tokenize_seconds=sum(answer.timings.tokenize_seconds for _, _, answer in scored),
                infer_seconds=sum(answer.timings.infer_seconds for _, _, answer in scored),
            ),
        )


def _groups(requests: Sequence[pb2.RerankStreamRequest]) -> Mapping[tuple[str, Truncation], Sequence[int]]:
    groups: dict[tuple[str, Truncation], list[int]] = {}
    for index, request in enumerate(requests):
        groups.setdefault((request.query, _truncation(request)), []).append(index)
    return groups


def _truncation(request: pb2.RerankRequest | pb2.RerankStreamRequest) -> Truncation:
    start = cuts_start(request.truncation_direction)
    if not request.truncate:
        return Truncation.NONE
    return Truncation.START if start else Truncation.END
