"""The service over gRPC, as its callers meet it."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable

import grpc
import pytest
from chunker.counters import MODEL, WordPieceCounter
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from kbmesh.chunker.v1 import chunker_pb2 as pb
from kbmesh.chunker.v1 import chunker_pb2_grpc
from kbmesh.embedder.v1 import embedder_pb2, embedder_pb2_grpc
from kbmesh.errors.v1 import errors_pb2
from kbmesh_chunker.application import ChunkerApplication
from kbmesh_chunker.settings import ChunkerSettings
from kbmesh_chunker.version import CHUNKER_VERSION
from kbmesh_rpc.channel import open_channel
from kbmesh_rpc.server import Registration, running
from kbmesh_rpc.settings import ServerSettings

Stub = chunker_pb2_grpc.ChunkerServiceStub
GUIDE = "# Guide\n\nFirst words of the guide – with a dash.\n\n## Install\n\n" + "Run it and wait. " * 150


def reason_of(error: grpc.aio.AioRpcError) -> tuple[grpc.StatusCode, str, dict[str, str]]:
    status = rpc_status.from_call(error)
    assert status is not None
    for detail in status.details:
        info = error_details_pb2.ErrorInfo()
        if detail.Unpack(info):
            assert info.domain == "kbmesh"
            return error.code(), info.reason.removeprefix("ERROR_REASON_"), dict(info.metadata)
    raise AssertionError("no ErrorInfo")


async def test_a_document_in_one_call(stub: Stub) -> None:
    document = pb.Document(text=GUIDE, media_type="text/markdown", metadata={"team": "docs"})
    response = await stub.Chunk(pb.ChunkRequest(document=document, return_text=True))
    encoded = GUIDE.encode()
    for index, chunk in enumerate(response.chunks):
        assert chunk.index == index
        assert chunk.total == len(response.chunks) == response.summary.total
        assert GUIDE[chunk.span.start : chunk.span.end] == chunk.text
        assert encoded[chunk.span.start_byte : chunk.span.end_byte].decode() == chunk.text
        assert chunk.metadata["team"] == "docs"
        assert not chunk.HasField("token_count")
        assert not chunk.HasField("embedded_text")
    assert list(response.chunks[-1].heading_path) == ["Guide", "Install"]
    assert response.chunks[-1].context == "Guide > Install"
    assert response.text == GUIDE
    summary = response.summary
    assert summary.strategy == pb.STRATEGY_DOCUMENT
    assert summary.strategy_reason
    assert summary.title == "Guide"
    assert summary.media_type == "text/markdown"
    assert summary.source_type == pb.SOURCE_TYPE_GENERIC
    assert summary.text_characters == len(GUIDE)
    assert len(summary.text_sha256) == 32
    assert len(summary.chunking_fingerprint) == 64


def parts(header: pb.ChunkStreamHeader, data: Iterable[bytes]) -> list[pb.ChunkStreamRequest]:
    return [pb.ChunkStreamRequest(header=header), *(pb.ChunkStreamRequest(part=part) for part in data)]


async def test_a_document_in_parts_gives_the_same_chunks(stub: Stub) -> None:
    document = pb.Document(media_type="text/markdown", filename="guide.md", metadata={"team": "docs"})
    data = GUIDE.encode()
    # Seven bytes a part: some end inside the dash.
    stream = stub.ChunkStream(
        iter(parts(pb.ChunkStreamHeader(document=document), [data[i : i + 7] for i in range(0, len(data), 7)]))
    )
    answers = [answer async for answer in stream]
    whole = await stub.Chunk(
        pb.ChunkRequest(document=pb.Document(data=data, filename="guide.md", metadata={"team": "docs"}))
    )
    chunks = [answer.chunk for answer in answers[:-1]]
    for chunk, expected in zip(chunks, whole.chunks, strict=True):
        assert not chunk.HasField("total")
        expected.ClearField("total")
        assert chunk == expected
    assert answers[-1].summary == whole.summary


@pytest.mark.parametrize(
    ("requests", "reason", "field"),
    [
        ([], "INVALID_FIELD", "header"),
        ([pb.ChunkStreamRequest(part=b"text")], "INVALID_FIELD", "header"),
        (parts(pb.ChunkStreamHeader(), []), "DOCUMENT_EMPTY", None),
        (parts(pb.ChunkStreamHeader(document=pb.Document(text="x")), []), "INVALID_FIELD", "header.document.content"),
        (parts(pb.ChunkStreamHeader(config=pb.ChunkingConfig(size=0)), [b"x"]), "INVALID_FIELD", "header.config.size"),
        ([*parts(pb.ChunkStreamHeader(), [b"x"]), *parts(pb.ChunkStreamHeader(), [])], "INVALID_FIELD", "header"),
        ([*parts(pb.ChunkStreamHeader(), [b"x"]), pb.ChunkStreamRequest()], "INVALID_FIELD", "message"),
        (
            parts(pb.ChunkStreamHeader(config=pb.ChunkingConfig(strategy=pb.STRATEGY_DOCUMENT)), [b"x" * 50_000] * 3),
            "DOCUMENT_TOO_LARGE",
            None,
        ),
    ],
)
async def test_a_stream_out_of_order_is_refused(
    stub: Stub, requests: list[pb.ChunkStreamRequest], reason: str, field: str | None
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        [answer async for answer in stub.ChunkStream(iter(requests))]
    code, found, metadata = reason_of(refused.value)
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert found == reason
    assert metadata.get("field") == field


@pytest.mark.parametrize(
    ("request_", "code", "reason", "metadata"),
    [
        (pb.ChunkRequest(), "INVALID_ARGUMENT", "DOCUMENT_EMPTY", {}),
        (pb.ChunkRequest(document=pb.Document(text=" \n")), "INVALID_ARGUMENT", "DOCUMENT_EMPTY", {}),
        (
            pb.ChunkRequest(document=pb.Document(text="x" * 100_001)),
            "INVALID_ARGUMENT",
            "DOCUMENT_TOO_LARGE",
            {"limit": "100000", "actual": "100001"},
        ),
        (
            pb.ChunkRequest(document=pb.Document(data=b"\x89PNG\r\n\x1a\n")),
            "INVALID_ARGUMENT",
            "UNSUPPORTED_MEDIA_TYPE",
            {"media_type": "image/png"},
        ),
        (
            pb.ChunkRequest(config=pb.ChunkingConfig(size=100, overlap=100)),
            "INVALID_ARGUMENT",
            "INVALID_FIELD",
            {"field": "config.overlap"},
        ),
        (
            pb.ChunkRequest(config=pb.ChunkingConfig(strategy=77)),  # type: ignore[arg-type] # proto3 lets it through
            "INVALID_ARGUMENT",
            "INVALID_FIELD",
            {"field": "config.strategy"},
        ),
        (
            pb.ChunkRequest(config=pb.ChunkingConfig(strategy=pb.STRATEGY_FIXED, slack=pb.SlackOptions())),
            "INVALID_ARGUMENT",
            "INVALID_FIELD",
            {"field": "config.slack"},
        ),
        (
            pb.ChunkRequest(config=pb.ChunkingConfig(strategy=pb.STRATEGY_PROPOSITION)),
            "UNIMPLEMENTED",
            "FEATURE_UNSUPPORTED",
            {"feature": "STRATEGY_PROPOSITION"},
        ),
        (
            pb.ChunkRequest(config=pb.ChunkingConfig(embedding_model="m")),
            "INVALID_ARGUMENT",
            "INVALID_FIELD",
            {"field": "config.embedding_model"},
        ),
        (
            pb.ChunkRequest(document=pb.Document(text="x", metadata={str(i): "" for i in range(65)})),
            "INVALID_ARGUMENT",
            "REQUEST_TOO_LARGE",
            {"field": "document.metadata", "limit": "64", "actual": "65"},
        ),
    ],
)
async def test_a_wrong_request_is_refused_for_its_reason(
    stub: Stub, request_: pb.ChunkRequest, code: str, reason: str, metadata: dict[str, str]
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await stub.Chunk(request_)
    assert reason_of(refused.value) == (grpc.StatusCode[code], reason, metadata)


SUITED = {
    pb.STRATEGY_EMAIL: pb.Document(text=GUIDE, media_type="message/rfc822"),
    pb.STRATEGY_SLACK: pb.Document(text="Ada  9:12 AM\nWho is on call?\n\nBob  9:13 AM\nI am."),
    pb.STRATEGY_CODE: pb.Document(text=GUIDE, media_type="text/x-python"),
}


async def test_what_is_offered_can_be_used(stub: Stub) -> None:
    listed = await stub.ListStrategies(pb.ListStrategiesRequest())
    assert listed.chunker_version == CHUNKER_VERSION
    offered = [info.strategy for info in listed.strategies]
    assert offered[0] == pb.STRATEGY_AUTO
    assert {pb.STRATEGY_FIXED, pb.STRATEGY_SEMANTIC, pb.STRATEGY_DOCUMENT, pb.STRATEGY_SLACK} < set(offered)
    for info in listed.strategies:
        assert info.description
        assert max(info.defaults.overlap, info.defaults.minimum) < info.defaults.size
        document = SUITED.get(info.strategy, pb.Document(text=GUIDE))
        explicit = await stub.Chunk(pb.ChunkRequest(document=document, config=info.defaults))
        implicit = await stub.Chunk(
            pb.ChunkRequest(document=document, config=pb.ChunkingConfig(strategy=info.strategy))
        )
        assert info.strategy in {pb.STRATEGY_AUTO, explicit.summary.strategy}
        assert explicit == implicit, "the defaults listed are the defaults taken"


async def test_warnings_arrive(stub: Stub) -> None:
    response = await stub.Chunk(pb.ChunkRequest(document=pb.Document(data="Zürich".encode("latin-1"))))
    assert [warning.reason for warning in response.summary.warnings] == [errors_pb2.ERROR_REASON_DOCUMENT_UNREADABLE]


async def test_a_deadline_that_passes_ends_the_work() -> None:
    settings = ChunkerSettings(port=0)
    async with running(ChunkerApplication(settings), settings) as address, open_channel(address) as channel:
        stub = chunker_pb2_grpc.ChunkerServiceStub(channel)
        document = pb.Document(text="word " * 3_000_000, media_type="text/markdown")
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.Chunk(pb.ChunkRequest(document=document, config=pb.ChunkingConfig(size=32)), timeout=0.3)
        assert refused.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        # Its thread is free again: small documents are served as if nothing had been.
        for _ in range(4):
            await stub.Chunk(pb.ChunkRequest(document=pb.Document(text="word")), timeout=60)


async def test_an_answer_over_the_message_limit_is_refused_and_streams() -> None:
    settings = ChunkerSettings(port=0, max_message_bytes=200_000)
    async with running(ChunkerApplication(settings), settings) as address, open_channel(address) as channel:
        stub = chunker_pb2_grpc.ChunkerServiceStub(channel)
        config = pb.ChunkingConfig(strategy=pb.STRATEGY_FIXED, size=32)
        data = b"word " * 30_000
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.Chunk(pb.ChunkRequest(document=pb.Document(data=data), config=config))
        assert reason_of(refused.value)[1] == "REQUEST_TOO_LARGE"
        answers = [
            answer async for answer in stub.ChunkStream(iter(parts(pb.ChunkStreamHeader(config=config), [data])))
        ]
        assert answers[-1].summary.total == len(answers) - 1


class _Embedder(embedder_pb2_grpc.EmbedderServiceServicer):
    """The part of the embedder that the chunker needs, over the same counter as the other tests."""

    def __init__(self) -> None:
        self.counter = WordPieceCounter()
        self.timeouts: list[float | None] = []
        self.lose_one = False

    async def CountTokens(  # noqa: N802 - the contract's name
        self, request: embedder_pb2.CountTokensRequest, context: grpc.aio.ServicerContext[object, object]
    ) -> embedder_pb2.CountTokensResponse:
        self.timeouts.append(context.time_remaining())
        counted = await self.counter.count(list(request.texts), model=request.model, offsets=request.return_offsets)
        counts = [
            embedder_pb2.TokenCount(tokens=count.tokens, starts=count.starts, ends=count.ends)
            for count in counted.counts
        ]
        return embedder_pb2.CountTokensResponse(
            counts=counts[1:] if self.lose_one else counts,
            max_tokens=counted.max_tokens,
            model_fingerprint=counted.model_fingerprint,
        )


class _EmbedderApplication:
    def __init__(self, servicer: _Embedder) -> None:
        name = "kbmesh.embedder.v1.EmbedderService"
        self.registrations = (
            Registration(
                name=name, add=lambda server: embedder_pb2_grpc.add_EmbedderServiceServicer_to_server(servicer, server)
            ),
        )

    async def warm_up(self) -> None:
        """Ready."""

    async def close(self) -> None:
        """Holds nothing."""


@pytest.fixture
async def embedder_and_stub() -> AsyncIterator[tuple[_Embedder, Stub]]:
    embedder = _Embedder()
    plain = ServerSettings(port=0)
    async with running(_EmbedderApplication(embedder), plain) as embedder_address:
        settings = ChunkerSettings(port=0, embedder_address=embedder_address)
        async with running(ChunkerApplication(settings), settings) as address, open_channel(address) as channel:
            yield embedder, chunker_pb2_grpc.ChunkerServiceStub(channel)


async def test_the_embedder_counts_tokens(embedder_and_stub: tuple[_Embedder, Stub]) -> None:
    embedder, stub = embedder_and_stub
    config = pb.ChunkingConfig(embedding_model=MODEL)
    document = pb.Document(text="数据库迁移前必须先做备份再执行脚本" * 300)
    response = await stub.Chunk(pb.ChunkRequest(document=document, config=config), timeout=30)
    assert all(0 < chunk.token_count <= 256 for chunk in response.chunks)
    assert embedder.timeouts
    assert all(timeout is not None and timeout < 30 for timeout in embedder.timeouts), "the deadline is passed on"


async def test_the_embedders_errors_are_the_callers(embedder_and_stub: tuple[_Embedder, Stub]) -> None:
    embedder, stub = embedder_and_stub
    request = pb.ChunkRequest(document=pb.Document(text="text"), config=pb.ChunkingConfig(embedding_model="another"))
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await stub.Chunk(request)
    assert reason_of(refused.value)[1] == "MODEL_NOT_FOUND"
    embedder.lose_one = True
    request.config.embedding_model = MODEL
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await stub.Chunk(request)
    assert reason_of(refused.value)[1] == "DEPENDENCY_INVALID_RESPONSE"


async def test_an_embedder_that_is_down(free_port: int) -> None:
    settings = ChunkerSettings(port=0, embedder_address=f"127.0.0.1:{free_port}")
    async with running(ChunkerApplication(settings), settings) as address, open_channel(address) as channel:
        stub = chunker_pb2_grpc.ChunkerServiceStub(channel)
        request = pb.ChunkRequest(document=pb.Document(text="text"), config=pb.ChunkingConfig(embedding_model=MODEL))
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.Chunk(request, timeout=10)
        assert reason_of(refused.value)[1] == "DEPENDENCY_UNAVAILABLE"
        # What needs no tokens goes on.
        request.config.embedding_model = ""
        assert (await stub.Chunk(request)).summary.total == 1


async def test_many_callers_at_once(stub: Stub) -> None:
    async def one(number: int) -> None:
        text = f"Document {number}. " * 100
        response = await stub.Chunk(pb.ChunkRequest(document=pb.Document(text=text)))
        assert all(f"Document {number}." in chunk.text for chunk in response.chunks)

    async with asyncio.TaskGroup() as tasks:
        for number in range(40):
            tasks.create_task(one(number))


def test_the_service_imports_no_models() -> None:
    program = (
        "import sys, kbmesh_chunker.__main__\n"
        "print([name for name in ('numpy', 'onnxruntime', 'tokenizers', 'torch') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
