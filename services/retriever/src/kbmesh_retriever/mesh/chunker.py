"""The chunker, over gRPC."""

from collections.abc import Mapping
from typing import Any

import grpc
from google.protobuf.json_format import ParseDict, ParseError
from kbmesh.chunker.v1 import chunker_pb2 as pb
from kbmesh.chunker.v1.chunker_pb2_grpc import ChunkerServiceStub
from kbmesh.errors.v1 import errors_pb2
from kbmesh_rpc.errors import DependencyInvalidResponse, InvalidField
from kbmesh_rpc.metrics import zero_client

from kbmesh_retriever.enum_names import source_type_name, source_type_of, strategy_name
from kbmesh_retriever.mesh.calls import Remembered, answer
from kbmesh_retriever.mesh.port import Chunk, Chunked, SourceDocument, Warned

_NAME = "chunker"
_STRATEGIES_SECONDS = 30.0


class ChunkerClient:
    """A `ChunkerPort`."""

    def __init__(self, channel: grpc.aio.Channel, *, limit_seconds: float = 120) -> None:
        self._stub = ChunkerServiceStub(channel)
        zero_client("kbmesh.chunker.v1.ChunkerService", ("Chunk", "ListStrategies"))
        self._limit_seconds = limit_seconds
        self._offered = Remembered(self._list_strategies, seconds=_STRATEGIES_SECONDS)

    async def chunk(self, document: SourceDocument, *, chunking: Mapping[str, Any], embedding_model: str) -> Chunked:
        """`embedding_model` sets the token limit unless `chunking` names a model."""
        request = pb.ChunkRequest(document=_document(document), config=_config(chunking))
        if not request.config.embedding_model:
            request.config.embedding_model = embedding_model
        response = await self._chunk(request)
        if response.summary.total != len(response.chunks):
            raise DependencyInvalidResponse(
                _NAME, f"the chunker counts {response.summary.total} chunks and sent {len(response.chunks)}"
            )
        if [chunk.index for chunk in response.chunks] != list(range(len(response.chunks))):
            raise DependencyInvalidResponse(_NAME, "the chunker's indexes are not 0, 1, 2 and so on")
        summary = response.summary
        return Chunked(
            chunks=tuple(_chunk(chunk) for chunk in response.chunks),
            strategy=strategy_name(summary.strategy),
            media_type=summary.media_type,
            source_type=source_type_name(summary.source_type),
            title=summary.title,
            metadata=dict(summary.metadata),
            chunking_fingerprint=summary.chunking_fingerprint,
            warnings=tuple(
                Warned(
                    reason=errors_pb2.ErrorReason.Name(warning.reason)
                    if warning.reason in errors_pb2.ErrorReason.values()
                    else errors_pb2.ErrorReason.Name(errors_pb2.ERROR_REASON_UNSPECIFIED),
                    message=warning.message,
                    metadata=dict(warning.metadata),
                )
                for warning in summary.warnings
            ),
        )

    async def fingerprint(self) -> str:
        return (await self._offered.get()).chunker_version

    async def strategies(self) -> frozenset[str]:
        offered = await self._offered.get()
        return frozenset(pb.Strategy.Name(info.strategy) for info in offered.strategies)

    async def _chunk(self, request: pb.ChunkRequest) -> pb.ChunkResponse:
        return await answer(
            lambda timeout: self._stub.Chunk(request, timeout=timeout),
            dependency=_NAME,
            limit_seconds=self._limit_seconds,
        )

    async def _list_strategies(self) -> pb.ListStrategiesResponse:
        return await answer(
            lambda timeout: self._stub.ListStrategies(pb.ListStrategiesRequest(), timeout=timeout),
            dependency=_NAME,
            limit_seconds=self._limit_seconds,
        )


def _document(document: SourceDocument) -> pb.Document:
    message = pb.Document(
        media_type=document.media_type,
        filename=document.filename,
        source_type=source_type_of(document.source_type),
        metadata=document.metadata,
    )
    if isinstance(document.content, str):
        message.text = document.content
    else:
        message.data = document.content
    return message


def _config(chunking: Mapping[str, Any]) -> pb.ChunkingConfig:
    try:
        return ParseDict(dict(chunking), pb.ChunkingConfig())
    except ParseError as error:
        raise InvalidField("chunking", str(error)) from error


def _chunk(chunk: pb.Chunk) -> Chunk:
    usual = f"{chunk.context}\n\n{chunk.text}" if chunk.context else chunk.text
    return Chunk(
        index=chunk.index,
        type=chunk.type,
        text=chunk.text,
        context=chunk.context,
        embedded_text=chunk.embedded_text if chunk.HasField("embedded_text") else usual,
        start=chunk.span.start,
        end=chunk.span.end,
        start_byte=chunk.span.start_byte,
        end_byte=chunk.span.end_byte,
        heading_path=tuple(chunk.heading_path),
        pages=tuple(chunk.pages),
        token_count=chunk.token_count if chunk.HasField("token_count") else None,
        metadata=dict(chunk.metadata),
        embedding_excluded=chunk.embedding_excluded,
        blank_before=chunk.blank_before,
    )
