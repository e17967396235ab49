# ruff: noqa: N802 - method names are the contract's.
"""The retriever's clients against servers that answer wrongly, slowly or not at all."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import numpy as np
import pytest
from kbmesh.chunker.v1 import chunker_pb2, chunker_pb2_grpc
from kbmesh.embedder.v1 import embedder_pb2, embedder_pb2_grpc
from kbmesh.errors.v1 import errors_pb2
from kbmesh.reranker.v1 import reranker_pb2, reranker_pb2_grpc
from kbmesh_retriever.mesh.chunker import ChunkerClient
from kbmesh_retriever.mesh.embedder import EmbedderClient
from kbmesh_retriever.mesh.port import Embedded, SourceDocument
from kbmesh_retriever.mesh.reranker import RerankerClient
from kbmesh_rpc.call import CallContext, with_call
from kbmesh_rpc.channel import open_channel
from kbmesh_rpc.deadline import Deadline
from kbmesh_rpc.errors import KbmeshError, Reason
from retriever.mesh_fakes import vector_of

FINGERPRINT = "f" * 64


class Embedder(embedder_pb2_grpc.EmbedderServiceServicer):
    """Answers rightly, then lets `spoil` change the answer."""

    def __init__(self) -> None:
        self.requests: list[embedder_pb2.EmbedRequest] = []
        self.remaining: list[float | None] = []
        self.listed = 0
        self.models = [embedder_pb2.Model(name="words", fingerprint=FINGERPRINT, dimension=16, is_default=True)]
        self.spoil: Callable[[embedder_pb2.EmbedResponse], None] = lambda response: None

    async def Embed(self, request: embedder_pb2.EmbedRequest, context: Any) -> embedder_pb2.EmbedResponse:
        self.requests.append(request)
        self.remaining.append(context.time_remaining())
        rows = np.array([vector_of(text) for text in request.texts], dtype="<f4")
        response = embedder_pb2.EmbedResponse(
            vectors=embedder_pb2.VectorBatch(
                data=rows.tobytes(), encoding=embedder_pb2.ENCODING_FLOAT32, count=len(rows), dimension=16
            ),
            receipts=[embedder_pb2.Receipt(tokens=len(text.split()), tokens_cut=1) for text in request.texts],
            model="words",
            model_fingerprint=FINGERPRINT,
        )
        self.spoil(response)
        return response

    async def ListModels(self, request: Any, context: Any) -> embedder_pb2.ListModelsResponse:
        self.listed += 1
        return embedder_pb2.ListModelsResponse(models=self.models)

    async def CountTokens(self, request: Any, context: Any) -> embedder_pb2.CountTokensResponse:
        counts = [embedder_pb2.TokenCount(tokens=len(text.split())) for text in request.texts]
        return embedder_pb2.CountTokensResponse(counts=counts)


@asynccontextmanager
async def served(add: Callable[[Any, grpc.aio.Server], None], servicer: Any) -> AsyncIterator[grpc.aio.Channel]:
    server = grpc.aio.server()
    add(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with open_channel(f"127.0.0.1:{port}") as channel:
        yield channel
    await server.stop(None)


@pytest.fixture
def embedder() -> Embedder:
    return Embedder()


@pytest.fixture
async def client(embedder: Embedder) -> AsyncIterator[EmbedderClient]:
    async with served(embedder_pb2_grpc.add_EmbedderServiceServicer_to_server, embedder) as channel:
        yield EmbedderClient(channel)


async def embed(client: EmbedderClient, texts: list[str], fingerprint: str = FINGERPRINT) -> Embedded:
    return await client.embed(
        texts, model="words", expected_fingerprint=fingerprint, input_type="document", priority="bulk"
    )


async def test_many_texts_go_in_parts_and_keep_their_order(client: EmbedderClient, embedder: Embedder) -> None:
    texts = [f"text {number}" for number in range(600)]
    answer = await embed(client, texts)
    assert [len(request.texts) for request in embedder.requests] == [256, 256, 88]
    assert answer.vectors.shape == (600, 16)
    assert answer.vectors.dtype == np.float32
    assert (answer.vectors == np.array([vector_of(text) for text in texts])).all()
    assert (answer.tokens, answer.tokens_cut) == ((2,) * 600, (1,) * 600)
    assert {request.priority for request in embedder.requests} == {embedder_pb2.PRIORITY_BULK}
    assert {request.input_type for request in embedder.requests} == {embedder_pb2.INPUT_TYPE_DOCUMENT}
    assert {request.expected_fingerprint for request in embedder.requests} == {FINGERPRINT}
    assert await client.count_tokens(texts, model="words") == [2] * 600


async def test_large_texts_go_alone(client: EmbedderClient, embedder: Embedder) -> None:
    await embed(client, ["x" * 3_000_000, "y" * 3_000_000, "z"])
    assert [len(request.texts) for request in embedder.requests] == [1, 2]


async def test_a_failed_text_fails_alone(client: EmbedderClient, embedder: Embedder) -> None:
    def fail_second(response: embedder_pb2.EmbedResponse) -> None:
        data = np.frombuffer(response.vectors.data, "<f4").reshape(3, 16).copy()
        data[1] = 0
        response.vectors.data = data.tobytes()
        response.receipts[1].error.reason = errors_pb2.ERROR_REASON_TEXT_TOO_LONG

    embedder.spoil = fail_second
    answer = await embed(client, ["a", "b", "c"])
    assert [error and error.reason for error in answer.errors] == [None, Reason.TEXT_TOO_LONG, None]
    assert not answer.vectors[1].any()


def _fewer(response: embedder_pb2.EmbedResponse) -> None:
    response.vectors.count = 1
    response.vectors.data = response.vectors.data[:64]


def _cut(response: embedder_pb2.EmbedResponse) -> None:
    response.vectors.data = response.vectors.data[:-4]


def _no_receipt(response: embedder_pb2.EmbedResponse) -> None:
    del response.receipts[1]


def _nan(response: embedder_pb2.EmbedResponse) -> None:
    response.vectors.data = np.full((2, 16), np.nan, "<f4").tobytes()


def _zero(response: embedder_pb2.EmbedResponse) -> None:
    response.vectors.data = bytes(len(response.vectors.data))


def _half(response: embedder_pb2.EmbedResponse) -> None:
    response.vectors.encoding = embedder_pb2.ENCODING_FLOAT16


def _other_model(response: embedder_pb2.EmbedResponse) -> None:
    response.model_fingerprint = "e" * 64


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (_fewer, Reason.DEPENDENCY_INVALID_RESPONSE),
        (_cut, Reason.DEPENDENCY_INVALID_RESPONSE),
        (_no_receipt, Reason.DEPENDENCY_INVALID_RESPONSE),
        (_nan, Reason.DEPENDENCY_INVALID_RESPONSE),
        (_zero, Reason.DEPENDENCY_INVALID_RESPONSE),
        (_half, Reason.DEPENDENCY_INVALID_RESPONSE),
        (_other_model, Reason.MODEL_MISMATCH),
    ],
)
async def test_an_answer_that_cannot_be_right_is_refused(
    client: EmbedderClient, embedder: Embedder, spoil: Callable[[embedder_pb2.EmbedResponse], None], reason: Reason
) -> None:
    embedder.spoil = spoil
    with pytest.raises(KbmeshError) as caught:
        await embed(client, ["a", "b"])
    assert caught.value.reason is reason


async def test_models_are_remembered_and_asked_again_for_a_new_name(client: EmbedderClient, embedder: Embedder) -> None:
    assert (await client.find_model("")).name == "words"
    assert (await client.find_model("words")).fingerprint == FINGERPRINT
    assert embedder.listed == 1
    embedder.models.append(embedder_pb2.Model(name="new", fingerprint="e", dimension=4))
    assert (await client.find_model("new")).dimension == 4
    with pytest.raises(KbmeshError) as caught:
        await client.find_model("absent")
    assert caught.value.reason is Reason.MODEL_NOT_FOUND


async def test_the_callers_deadline_goes_along(client: EmbedderClient, embedder: Embedder) -> None:
    call = CallContext(request_id="r", tenant="default", principals=(), deadline=Deadline.after(5))
    with with_call(call):
        await embed(client, ["a"])
    await embed(client, ["a"])
    with_caller, without = embedder.remaining
    assert with_caller is not None
    assert with_caller < 5
    assert without is not None, "a call that serves nobody ends as well"
    late = CallContext(request_id="r", tenant="default", principals=(), deadline=Deadline.after(0.0))
    with with_call(late), pytest.raises(KbmeshError) as caught:
        await embed(client, ["a"])
    assert caught.value.reason is Reason.DEADLINE_EXCEEDED
    assert len(embedder.requests) == 2, "it was not even sent"


async def test_nobody_there() -> None:
    async with open_channel("127.0.0.1:1") as channel:
        with pytest.raises(KbmeshError) as caught:
            await ChunkerClient(channel).fingerprint()
    assert (caught.value.reason, caught.value.metadata) == (
        Reason.DEPENDENCY_UNAVAILABLE,
        {"dependency": "chunker"},
    )


class Chunker(chunker_pb2_grpc.ChunkerServiceServicer):
    """Gives what it was told to give."""

    def __init__(self, response: chunker_pb2.ChunkResponse) -> None:
        self.response = response
        self.request = chunker_pb2.ChunkRequest()

    async def Chunk(self, request: chunker_pb2.ChunkRequest, context: Any) -> chunker_pb2.ChunkResponse:
        self.request = request
        return self.response


async def test_a_document_is_cut_with_the_knowledge_bases_settings() -> None:
    chunk = chunker_pb2.Chunk(
        index=0,
        type="section",
        text="Text.",
        context="Head",
        span=chunker_pb2.Span(start=2, end=7, start_byte=3, end_byte=8),
        heading_path=["Head"],
        pages=[3],
        metadata={"a": "b"},
    )
    stated = chunker_pb2.Chunk(index=1, text="Source.", context="Head", embedded_text="A statement.", token_count=0)
    servicer = Chunker(
        chunker_pb2.ChunkResponse(
            chunks=[chunk, stated],
            summary=chunker_pb2.DocumentSummary(
                total=2,
                strategy=chunker_pb2.STRATEGY_DOCUMENT,
                source_type=chunker_pb2.SOURCE_TYPE_WEB_PAGE,
                title="Head",
                warnings=[
                    chunker_pb2.Warning(reason=errors_pb2.ERROR_REASON_DOCUMENT_UNREADABLE, message="page 2"),
                    chunker_pb2.Warning(reason=999, message="of a later version"),
                ],
            ),
        )
    )
    async with served(chunker_pb2_grpc.add_ChunkerServiceServicer_to_server, servicer) as channel:
        chunked = await ChunkerClient(channel).chunk(
            SourceDocument(content=b"%PDF", filename="a.pdf", source_type="file", metadata={"k": "v"}),
            chunking={"strategy": "STRATEGY_DOCUMENT", "size": 99},
            embedding_model="words",
        )
        assert (servicer.request.config.size, servicer.request.config.embedding_model) == (99, "words")
        assert servicer.request.document.data == b"%PDF"
        assert servicer.request.document.source_type == chunker_pb2.SOURCE_TYPE_FILE
        first, second = chunked.chunks
        assert (first.embedded_text, first.token_count) == ("Head\n\nText.", None)
        assert (first.start, first.end, first.start_byte, first.end_byte) == (2, 7, 3, 8)
        assert (second.embedded_text, second.token_count) == ("A statement.", 0)
        assert (chunked.strategy, chunked.source_type, chunked.title) == ("document", "web_page", "Head")
        assert [warning.reason for warning in chunked.warnings] == [
            "ERROR_REASON_DOCUMENT_UNREADABLE",
            "ERROR_REASON_UNSPECIFIED",
        ]

        servicer.response.summary.total = 3
        with pytest.raises(KbmeshError) as caught:
            await ChunkerClient(channel).chunk(SourceDocument(content="x"), chunking={}, embedding_model="words")
        assert caught.value.reason is Reason.DEPENDENCY_INVALID_RESPONSE


class Reranker(reranker_pb2_grpc.RerankerServiceServicer):
    """Gives what it was told to give."""

    def __init__(self, *results: reranker_pb2.Result) -> None:
        self.results = results

    async def Rerank(self, request: Any, context: Any) -> reranker_pb2.RerankResponse:
        return reranker_pb2.RerankResponse(
            results=self.results, method=reranker_pb2.METHOD_CROSS_ENCODER, model="judge"
        )


@pytest.mark.parametrize(
    "results",
    [
        [reranker_pb2.Result(index=0, logit=1, probability=0.7)],
        [reranker_pb2.Result(index=0, logit=1, probability=0.7)] * 2,
        [reranker_pb2.Result(index=0, logit=1, probability=0.7), reranker_pb2.Result(index=1)],
    ],
)
async def test_reranking_must_be_a_permutation_with_scores(results: list[reranker_pb2.Result]) -> None:
    add = reranker_pb2_grpc.add_RerankerServiceServicer_to_server
    async with served(add, Reranker(*results)) as channel:
        with pytest.raises(KbmeshError) as caught:
            await RerankerClient(channel).rerank("q", ["a", "b"])
    assert caught.value.reason is Reason.DEPENDENCY_INVALID_RESPONSE
