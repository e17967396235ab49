"""ChunkerService: Protobuf in and out of the domain."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

import grpc
from kbmesh.chunker.v1 import chunker_pb2, chunker_pb2_grpc
from kbmesh.errors.v1 import errors_pb2
from kbmesh_rpc.call import optional_call
from kbmesh_rpc.deadline import Deadline
from kbmesh_rpc.errors import DocumentEmpty, InvalidField, RequestTooLarge

from kbmesh_chunker import metrics
from kbmesh_chunker.assembly import ChunkedPart
from kbmesh_chunker.chunking import ChunkedDocument, Chunker
from kbmesh_chunker.config import CHARACTER_SIZES, ConfigRequest, Options, Sizes, SizeUnit, Strategy
from kbmesh_chunker.documents.source import SourceDocument, SourceType
from kbmesh_chunker.piece import Chunk
from kbmesh_chunker.strategies.registry import AUTO_DESCRIPTION, STRATEGIES
from kbmesh_chunker.streaming import stream_document
from kbmesh_chunker.summary import Summary, summarize
from kbmesh_chunker.version import CHUNKER_VERSION

MAX_METADATA_ENTRIES = 64
MAX_METADATA_BYTES = 16_384
_UNTIL_SENT = 1_000

Context = grpc.aio.ServicerContext[Any, Any]


class ChunkerServicer(chunker_pb2_grpc.ChunkerServiceServicer):
    """Serves a Chunker."""

    def __init__(self, chunker: Chunker, *, max_message_bytes: int) -> None:
        self._chunker = chunker
        self._max_message_bytes = max_message_bytes

    async def Chunk(self, request: chunker_pb2.ChunkRequest, context: Context) -> chunker_pb2.ChunkResponse:
        config = read_config(request.config, "config")
        # A wrong configuration is refused as such, also with a document that is wrong too.
        self._chunker.check(config)
        source = read_document(request.document, "document")
        chunked = await self._chunker.chunk(source, config, deadline=_deadline())
        return await asyncio.to_thread(self._write_response, request, chunked)

    async def ChunkStream(
        self, request_iterator: AsyncIterator[chunker_pb2.ChunkStreamRequest], context: Context
    ) -> AsyncIterator[chunker_pb2.ChunkStreamResponse]:
        requests = aiter(request_iterator)
        header = await self._header(requests)
        config = read_config(header.config, "header.config")
        self._chunker.check(config, path="header.config")
        source = read_document(header.document, "header.document", data=b"")
        metadata = dict(header.document.metadata)
        # No part is read before the chunks of those before it were taken: a slow client holds up its own sending.
        answers = stream_document(
            self._chunker, source, config, _parts(requests), deadline=_deadline(), path="header.config"
        )
        async with aclosing(answers):
            async for answer in answers:
                if isinstance(answer, Summary):
                    metrics.count(answer)
                    yield chunker_pb2.ChunkStreamResponse(summary=write_summary(answer))
                    return
                yield chunker_pb2.ChunkStreamResponse(chunk=write_chunk(answer, metadata, total=None))
                if answer.index % _UNTIL_SENT == 0:
                    await asyncio.sleep(0)

    async def ListStrategies(
        self, request: chunker_pb2.ListStrategiesRequest, context: Context
    ) -> chunker_pb2.ListStrategiesResponse:
        auto = chunker_pb2.StrategyInfo(
            strategy=chunker_pb2.STRATEGY_AUTO,
            description=AUTO_DESCRIPTION,
            defaults=_write_defaults(Strategy.AUTO, CHARACTER_SIZES, {}),
        )
        return chunker_pb2.ListStrategiesResponse(
            strategies=[
                auto,
                *(
                    chunker_pb2.StrategyInfo(
                        strategy=_strategy_number(port.strategy),
                        description=port.description,
                        defaults=_write_defaults(port.strategy, port.sizes, port.options({}, "")),
                        needs_embedder=port.needs_embedder,
                    )
                    for port in STRATEGIES.values()
                    if self._chunker.serves(port.strategy)
                ),
            ],
            chunker_version=CHUNKER_VERSION,
        )

    async def _header(self, requests: AsyncIterator[chunker_pb2.ChunkStreamRequest]) -> chunker_pb2.ChunkStreamHeader:
        first = await anext(requests, None)
        if first is None or first.WhichOneof("message") != "header":
            raise InvalidField("header", "must be the first message of the stream")
        if first.header.document.WhichOneof("content"):
            raise InvalidField("header.document.content", "must be empty; the parts carry the content")
        return first.header

    def _write_response(self, request: chunker_pb2.ChunkRequest, chunked: ChunkedDocument) -> chunker_pb2.ChunkResponse:
        """Raises RequestTooLarge where the answer would not fit in a message; ChunkStream has no such limit."""
        metadata = dict(request.document.metadata)
        summary = summarize(chunked)
        metrics.count(summary)
        response = chunker_pb2.ChunkResponse(summary=write_summary(summary))
        if request.return_text:
            response.text = chunked.document.text
        size = response.ByteSize()
        for chunk in chunked.chunks:
            message = write_chunk(chunk, metadata, total=len(chunked.chunks))
            size += message.ByteSize() + 8
            if size > self._max_message_bytes:
                raise RequestTooLarge(field="document", limit=self._max_message_bytes, actual=size)
            response.chunks.append(message)
        return response


async def _parts(requests: AsyncIterator[chunker_pb2.ChunkStreamRequest]) -> AsyncGenerator[bytes, None]:
    async for request in requests:
        kind = request.WhichOneof("message")
        if kind != "part":
            raise InvalidField(kind or "message", "only parts may follow the header")
        yield request.part


def read_config(config: chunker_pb2.ChunkingConfig, path: str) -> ConfigRequest:
    """The configuration as the domain knows it. Raises InvalidField for a value of an enum that does not exist."""
    owner = config.WhichOneof("options")
    options: Options = {}
    if owner is not None:
        options = {descriptor.name: value for descriptor, value in getattr(config, owner).ListFields()}
    return ConfigRequest(
        strategy=Strategy[_enum_name(chunker_pb2.Strategy, config.strategy, "STRATEGY_", "AUTO", f"{path}.strategy")],
        size=config.size if config.HasField("size") else None,
        overlap=config.overlap if config.HasField("overlap") else None,
        minimum=config.minimum if config.HasField("minimum") else None,
        unit=SizeUnit[_enum_name(chunker_pb2.SizeUnit, config.unit, "SIZE_UNIT_", "CHARACTERS", f"{path}.unit")],
        embedding_model=config.embedding_model,
        allow_truncation=config.allow_truncation,
        options_of=Strategy(owner) if owner is not None else None,
        options=options,
    )


def read_document(document: chunker_pb2.Document, path: str, *, data: bytes | None = None) -> SourceDocument:
    """The document as the domain knows it; `data` stands for the content of a stream.

    Raises InvalidField, RequestTooLarge or DocumentEmpty.
    """
    metadata = document.metadata
    if len(metadata) > MAX_METADATA_ENTRIES:
        raise RequestTooLarge(field=f"{path}.metadata", limit=MAX_METADATA_ENTRIES, actual=len(metadata))
    size = sum(len(key.encode()) + len(value.encode()) for key, value in metadata.items())
    if size > MAX_METADATA_BYTES:
        # They are in every chunk.
        raise RequestTooLarge(field=f"{path}.metadata", limit=MAX_METADATA_BYTES, actual=size)
    kind = _enum_name(
        chunker_pb2.SourceType, document.source_type, "SOURCE_TYPE_", "UNSPECIFIED", f"{path}.source_type"
    )
    content: str | bytes
    match document.WhichOneof("content"):
        case "text":
            content = document.text
        case "data":
            content = document.data
        case _ if data is not None:
            content = data
        case _:
            raise DocumentEmpty
    return SourceDocument(
        content=content,
        media_type=document.media_type,
        filename=document.filename,
        source_type=None if kind == "UNSPECIFIED" else SourceType[kind],
    )


def write_chunk(chunk: Chunk, metadata: dict[str, str], *, total: int | None) -> chunker_pb2.Chunk:
    """The chunk as the contract knows it. `metadata` is the document's."""
    piece = chunk.piece
    return chunker_pb2.Chunk(
        index=chunk.index,
        total=total,
        type=piece.type,
        text=chunk.text,
        context=piece.context,
        span=chunker_pb2.Span(start=piece.start, end=piece.end, start_byte=chunk.start_byte, end_byte=chunk.end_byte),
        heading_path=piece.heading_path,
        pages=chunk.pages,
        embedded_text=chunk.embedded_text,
        embedding_excluded=chunk.embedding_excluded,
        blank_before=chunk.blank_before,
        token_count=chunk.token_count,
        sha256=chunk.sha256,
        metadata={**piece.metadata, **metadata},
        oversize=chunk.oversize,
    )


def write_summary(summary: Summary) -> chunker_pb2.DocumentSummary:
    """The summary as the contract knows it."""
    return chunker_pb2.DocumentSummary(
        total=summary.total,
        strategy=_strategy_number(summary.strategy),
        strategy_reason=summary.strategy_reason,
        media_type=summary.media_type,
        source_type=chunker_pb2.SourceType.Value(f"SOURCE_TYPE_{summary.source_type.name}"),
        title=summary.title,
        text_sha256=summary.text_sha256,
        text_characters=summary.text_characters,
        warnings=[
            chunker_pb2.Warning(
                reason=errors_pb2.ErrorReason.Value(warning.reason), message=warning.message, metadata=warning.metadata
            )
            for warning in summary.warnings
        ],
        chunking_fingerprint=summary.fingerprint,
        metadata=summary.metadata,
        parts=[_write_part(part) for part in summary.parts] if len(summary.parts) > 1 else (),
    )


def _write_part(chunked: ChunkedPart) -> chunker_pb2.DocumentPart:
    document = chunked.part.document
    start = chunked.part.offset
    return chunker_pb2.DocumentPart(
        span=chunker_pb2.Span(
            start=start, end=start + len(document.text), start_byte=chunked.start_byte, end_byte=chunked.end_byte
        ),
        media_type=document.media_type,
        filename=document.filename,
        title=document.title,
        strategy=_strategy_number(chunked.config.strategy),
        chunks=chunked.chunks,
    )


def _write_defaults(strategy: Strategy, sizes: Sizes, options: Options) -> chunker_pb2.ChunkingConfig:
    config = chunker_pb2.ChunkingConfig(
        strategy=_strategy_number(strategy),
        size=sizes.size,
        overlap=sizes.overlap,
        minimum=sizes.minimum,
        unit=chunker_pb2.SIZE_UNIT_CHARACTERS,
    )
    if options:
        message = getattr(config, strategy.value)
        for name, value in options.items():
            setattr(message, name, value)
    return config


def _strategy_number(strategy: Strategy) -> chunker_pb2.Strategy.ValueType:
    return chunker_pb2.Strategy.Value(f"STRATEGY_{strategy.name}")


def _enum_name(enum: Any, number: int, prefix: str, unspecified: str, path: str) -> str:
    """The name of an enum's value without its prefix. proto3 lets any number through."""
    if number == 0:
        return unspecified
    if number not in enum.values():
        raise InvalidField(path, f"there is no value {number}")
    name: str = enum.Name(number)
    return name.removeprefix(prefix)


def _deadline() -> Deadline | None:
    call = optional_call()
    return call.deadline if call is not None else None
