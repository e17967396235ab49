"""Chunking, between values and messages."""

from datetime import UTC, datetime

from google.protobuf.timestamp_pb2 import Timestamp
from kbmesh.chunker.v1 import chunker_pb2

from kbmesh_client.chunks import (
    Chunk,
    ChunkedDocument,
    ChunkingConfig,
    CodeOptions,
    DocumentOptions,
    DocumentPart,
    DocumentWarning,
    EmailOptions,
    PropositionOptions,
    SemanticOptions,
    SimilarityOptions,
    SlackOptions,
    Span,
    StrategyOptions,
)
from kbmesh_client.documents import IngestDocument
from kbmesh_client.enums import ChunkingStrategy, SizeUnit, SourceType
from kbmesh_client.wire.enums import from_number, reason_name


def config_to_wire(config: ChunkingConfig | None) -> chunker_pb2.ChunkingConfig | None:
    """Raises ValueError for a strategy or unit that there is not, and for options that exclude each other."""
    if config is None:
        return None
    message = chunker_pb2.ChunkingConfig(
        strategy=chunker_pb2.Strategy.Value(f"STRATEGY_{ChunkingStrategy(config.strategy)}"),
        size=config.size,
        overlap=config.overlap,
        minimum=config.minimum,
        unit=chunker_pb2.SizeUnit.Value(f"SIZE_UNIT_{SizeUnit(config.unit)}"),
        embedding_model=config.embedding_model,
        allow_truncation=config.allow_truncation,
    )
    match config.options:
        case SemanticOptions(paragraph_blank_lines=lines):
            message.semantic.CopyFrom(chunker_pb2.SemanticOptions(paragraph_blank_lines=lines))
        case DocumentOptions(max_heading_level=level):
            message.document.CopyFrom(chunker_pb2.DocumentOptions(max_heading_level=level))
        case EmailOptions(whole_below=whole_below, exclude_quotes=exclude):
            message.email.CopyFrom(chunker_pb2.EmailOptions(whole_below=whole_below, exclude_quotes=exclude))
        case SlackOptions(whole_below=whole_below, exclude_bots=exclude):
            message.slack.CopyFrom(chunker_pb2.SlackOptions(whole_below=whole_below, exclude_bots=exclude))
        case CodeOptions(language=language):
            message.code.CopyFrom(chunker_pb2.CodeOptions(language=language))
        case SimilarityOptions(threshold=threshold, percentile=percentile, buffer=buffer):
            message.similarity.CopyFrom(chunker_pb2.SimilarityOptions(buffer=buffer))
            if threshold is not None:
                message.similarity.threshold = threshold
            if percentile is not None:
                message.similarity.percentile = percentile
        case PropositionOptions(model=model):
            message.proposition.CopyFrom(chunker_pb2.PropositionOptions(model=model))
        case None:
            pass
    return message


def config_from_wire(message: chunker_pb2.ChunkingConfig) -> ChunkingConfig:
    """Reads a config as a knowledge base keeps it."""
    return ChunkingConfig(
        strategy=strategy_from_wire(message.strategy, default=ChunkingStrategy.AUTO),
        size=message.size if message.HasField("size") else None,
        overlap=message.overlap if message.HasField("overlap") else None,
        minimum=message.minimum if message.HasField("minimum") else None,
        unit=from_number(SizeUnit, chunker_pb2.SizeUnit.Name, message.unit, "SIZE_UNIT_", SizeUnit.CHARACTERS),
        embedding_model=message.embedding_model,
        allow_truncation=message.allow_truncation,
        options=_options_from_wire(message),
    )


def _options_from_wire(message: chunker_pb2.ChunkingConfig) -> StrategyOptions | None:
    match message.WhichOneof("options"):
        case "semantic":
            semantic = message.semantic
            return SemanticOptions(
                paragraph_blank_lines=semantic.paragraph_blank_lines
                if semantic.HasField("paragraph_blank_lines")
                else None
            )
        case "document":
            document = message.document
            return DocumentOptions(
                max_heading_level=document.max_heading_level if document.HasField("max_heading_level") else None
            )
        case "email":
            email = message.email
            return EmailOptions(
                whole_below=email.whole_below if email.HasField("whole_below") else None,
                exclude_quotes=email.exclude_quotes,
            )
        case "slack":
            slack = message.slack
            return SlackOptions(
                whole_below=slack.whole_below if slack.HasField("whole_below") else None,
                exclude_bots=slack.exclude_bots,
            )
        case "code":
            return CodeOptions(language=message.code.language)
        case "similarity":
            similarity = message.similarity
            return SimilarityOptions(
                threshold=similarity.threshold if similarity.HasField("threshold") else None,
                percentile=similarity.percentile if similarity.HasField("percentile") else None,
                buffer=similarity.buffer if similarity.HasField("buffer") else None,
            )
        case "proposition":
            return PropositionOptions(model=message.proposition.model)
        case _:
            return None


def document_to_wire(document: IngestDocument) -> chunker_pb2.Document:
    """Raises ValueError for text that UTF-8 cannot hold, or a source type that there is not."""
    message = chunker_pb2.Document(
        media_type=document.media_type,
        filename=document.filename,
        source_type=(
            chunker_pb2.SOURCE_TYPE_UNSPECIFIED
            if document.source_type is None
            else chunker_pb2.SourceType.Value(f"SOURCE_TYPE_{SourceType(document.source_type)}")
        ),
        metadata=dict(document.metadata),
    )
    if isinstance(document.content, str):
        message.text = document.content
    else:
        message.data = document.content
    return message


def strategy_from_wire(number: int, default: ChunkingStrategy = ChunkingStrategy.UNKNOWN) -> ChunkingStrategy:
    """Reads a chunking strategy."""
    return from_number(ChunkingStrategy, chunker_pb2.Strategy.Name, number, "STRATEGY_", default)


def source_type_from_wire(number: int) -> SourceType:
    """Reads a source type."""
    return from_number(SourceType, chunker_pb2.SourceType.Name, number, "SOURCE_TYPE_", SourceType.UNKNOWN)


def span_from_wire(message: chunker_pb2.Span) -> Span:
    """Reads a span."""
    return Span(start=message.start, end=message.end, start_byte=message.start_byte, end_byte=message.end_byte)


def warning_from_wire(message: chunker_pb2.Warning) -> DocumentWarning:
    """Reads a warning."""
    return DocumentWarning(reason=reason_name(message.reason), message=message.message, metadata=dict(message.metadata))


def time_from_wire(message: Timestamp) -> datetime | None:
    """Gives the time in UTC, or None for an unset one."""
    if not message.seconds and not message.nanos:
        return None
    return message.ToDatetime(tzinfo=UTC)


def chunk_from_wire(message: chunker_pb2.Chunk) -> Chunk:
    """Reads a chunk."""
    return Chunk(
        index=message.index,
        total=message.total if message.HasField("total") else None,
        type=message.type,
        text=message.text,
        context=message.context,
        embedded_text=message.embedded_text if message.HasField("embedded_text") else None,
        span=span_from_wire(message.span),
        heading_path=tuple(message.heading_path),
        pages=tuple(message.pages),
        token_count=message.token_count if message.HasField("token_count") else None,
        sha256=message.sha256,
        metadata=dict(message.metadata),
        oversize=message.oversize,
        embedding_excluded=message.embedding_excluded,
    )


def _part_from_wire(message: chunker_pb2.DocumentPart) -> DocumentPart:
    return DocumentPart(
        span=span_from_wire(message.span),
        media_type=message.media_type,
        filename=message.filename,
        title=message.title,
        strategy=strategy_from_wire(message.strategy),
        chunks=message.chunks,
    )


def chunked_document_from_wire(message: chunker_pb2.ChunkResponse) -> ChunkedDocument:
    """Reads a document's chunks."""
    summary = message.summary
    return ChunkedDocument(
        chunks=tuple(chunk_from_wire(chunk) for chunk in message.chunks),
        strategy=strategy_from_wire(summary.strategy),
        strategy_reason=summary.strategy_reason,
        media_type=summary.media_type,
        source_type=source_type_from_wire(summary.source_type),
        title=summary.title,
        text_sha256=summary.text_sha256,
        text_characters=summary.text_characters,
        warnings=tuple(warning_from_wire(warning) for warning in summary.warnings),
        chunking_fingerprint=summary.chunking_fingerprint,
        metadata=dict(summary.metadata),
        text=message.text if message.HasField("text") else None,
        parts=tuple(_part_from_wire(part) for part in summary.parts),
    )
