"""The chunker: a document and a configuration in, chunks and a summary out."""

import asyncio
import contextvars
import functools
import hashlib
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from kbmesh_rpc.deadline import Deadline
from kbmesh_rpc.errors import Cancelled, DeadlineExceeded, InvalidField, KbmeshError, Reason

from kbmesh_chunker.config import (
    ChunkingConfig,
    ConfigRequest,
    SizeUnit,
    Strategy,
    check_model,
    check_options_owner,
    fingerprint,
    resolve_limits,
)
from kbmesh_chunker.cutter import TokenCap
from kbmesh_chunker.documents.reader import read
from kbmesh_chunker.documents.source import SourceDocument, TextDocument, Warning  # noqa: A004 - the contract's name
from kbmesh_chunker.measure import BoundedTokenMeasure, CharacterMeasure, Measure
from kbmesh_chunker.piece import Chunk, Piece
from kbmesh_chunker.spans import byte_offsets
from kbmesh_chunker.strategies.auto import choose
from kbmesh_chunker.strategies.port import Work
from kbmesh_chunker.strategies.registry import find
from kbmesh_chunker.token_counter import ModelTokens, TokenCounter, measure_tokens
from kbmesh_chunker.token_limit import CountedPiece, fit

T = TypeVar("T")

MAX_REPETITION = 4
"""Chunks together may have this many times the most bytes a document may have. Only a large overlap reaches that."""
_SLACK_TOKENS = 2


@dataclass(frozen=True, kw_only=True)
class ChunkedDocument:
    """What became of a document."""

    document: TextDocument
    chunks: Sequence[Chunk]
    config: ChunkingConfig
    strategy_reason: str
    """Why AUTO chose the strategy; empty where the caller chose."""
    fingerprint: str
    text_sha256: bytes
    warnings: Sequence[Warning] = ()


@dataclass(kw_only=True)
class Progress:
    """Whether a call is still wanted. `check` is called from worker threads."""

    deadline: Deadline | None
    _gone: threading.Event = field(default_factory=threading.Event)

    def leave(self) -> None:
        """The caller has gone."""
        self._gone.set()

    def check(self) -> None:
        """Raises Cancelled or DeadlineExceeded."""
        if self._gone.is_set():
            raise Cancelled
        if self.deadline is not None and self.deadline.expired:
            raise DeadlineExceeded(stage="chunking")


class Chunker:
    """Cuts documents. Keeps no state between them."""

    def __init__(self, *, max_document_bytes: int, counter: TokenCounter | None, executor: Executor) -> None:
        self.max_document_bytes = max_document_bytes
        self._counter = counter
        self._executor = executor

    def check(self, request: ConfigRequest, *, path: str = "config") -> None:
        """Raises InvalidField or FeatureUnsupported where the configuration is wrong, whatever the document."""
        port = None if request.strategy is Strategy.AUTO else find(request.strategy)
        check_options_owner(request, path=path)
        check_model(request, can_count=self._counter is not None, path=path)
        resolve_limits(request, path=path)
        if port is not None:
            resolve_limits(request, characters=port.sizes, path=path)
            port.options(request.options, f"{path}.{port.strategy}")

    async def chunk(
        self, source: SourceDocument, request: ConfigRequest, *, deadline: Deadline | None, path: str = "config"
    ) -> ChunkedDocument:
        """Chunks a document. Raises what `check` and `read` raise, and DeadlineExceeded.

        Where the tokens of a model are needed, also what a TokenCounter raises.
        """
        self.check(request, path=path)
        progress = Progress(deadline=deadline)
        try:
            return await self._chunk(source, request, progress, path)
        finally:
            # Threads cannot be ended from outside; they ask.
            progress.leave()

    async def _chunk(
        self, source: SourceDocument, request: ConfigRequest, progress: Progress, path: str
    ) -> ChunkedDocument:
        progress.check()
        document = await self._aside(functools.partial(read, max_bytes=self.max_document_bytes), source)
        config, reason = _resolve(request, document, path)
        self._check_repetition(config, document, path)
        tokens = await self._measure(config, document)
        work = _work(document, config, tokens, progress, self._aside)
        pieces = await find(config.strategy).cut(work)
        counted, warnings = await self._count(config, document, pieces, tokens, progress)
        most = tokens.max_tokens if tokens is not None and work.cap is not None else None
        finish = functools.partial(_finish, document.text, counted, work, most)
        chunks, text_sha256 = await self._aside(finish)
        return ChunkedDocument(
            document=document,
            chunks=chunks,
            config=config,
            strategy_reason=reason,
            fingerprint=fingerprint(
                config,
                model_fingerprint=tokens.model_fingerprint if tokens else "",
                max_tokens=tokens.max_tokens if tokens else 0,
            ),
            text_sha256=text_sha256,
            warnings=(*document.warnings, *warnings),
        )

    def _check_repetition(self, config: ChunkingConfig, document: TextDocument, path: str) -> None:
        limits = config.limits
        times = limits.size / (limits.size - limits.overlap)
        if len(document.text) * times > MAX_REPETITION * self.max_document_bytes:
            raise InvalidField(
                f"{path}.overlap",
                f"would repeat a document of {len(document.text)} characters {times:.0f} times; take a smaller one",
            )

    async def _measure(self, config: ChunkingConfig, document: TextDocument) -> ModelTokens | None:
        if self._counter is None or not config.counts_tokens:
            return None
        return await measure_tokens(self._counter, document.text, model=config.embedding_model)

    async def _count(
        self,
        config: ChunkingConfig,
        document: TextDocument,
        pieces: Sequence[Piece],
        tokens: ModelTokens | None,
        progress: Progress,
    ) -> tuple[Sequence[CountedPiece | Piece], Sequence[Warning]]:
        if self._counter is None or not config.embedding_model:
            return pieces, ()
        most = tokens.max_tokens if tokens is not None and not config.allow_truncation else None
        try:
            counted = await fit(
                document.text,
                pieces,
                counter=self._counter,
                model=config.embedding_model,
                max_tokens=most,
                checkpoint=progress.check,
            )
        except KbmeshError as error:
            if config.counts_tokens or error.reason in {Reason.DEADLINE_EXCEEDED, Reason.CANCELLED}:
                raise
            # Nothing was to be cut by the count: the chunks are right without it.
            return pieces, (Warning(reason=error.reason, message=error.message, metadata=error.metadata),)
        over = [piece for piece in counted if most is not None and piece.tokens > most]
        warnings = [
            Warning(
                reason=Reason.TEXT_TOO_LONG,
                message="a single character has more tokens than the model reads",
                metadata={"tokens": str(piece.tokens), "limit": str(most), "start": str(piece.piece.start)},
            )
            for piece in over[:16]
        ]
        return counted, warnings

    async def _aside(self, function: Callable[..., T], *arguments: Any) -> T:
        call = functools.partial(contextvars.copy_context().run, function, *arguments)
        return await asyncio.get_running_loop().run_in_executor(self._executor, call)


def _resolve(request: ConfigRequest, document: TextDocument, path: str) -> tuple[ChunkingConfig, str]:
    strategy, reason = request.strategy, ""
    if strategy is Strategy.AUTO:
        choice = choose(document)
        strategy, reason = choice.strategy, choice.reason
    port = find(strategy)
    config = ChunkingConfig(
        strategy=strategy,
        limits=resolve_limits(request, characters=port.sizes, path=path),
        unit=request.unit,
        embedding_model=request.embedding_model,
        allow_truncation=request.allow_truncation,
        options=port.options(request.options, f"{path}.{strategy}"),
    )
    return config, reason


def _work(
    document: TextDocument,
    config: ChunkingConfig,
    tokens: ModelTokens | None,
    progress: Progress,
    aside: Callable[..., Awaitable[Any]],
) -> Work:
    measure: Measure = CharacterMeasure(text_length=len(document.text))
    cap: TokenCap | None = None
    if tokens is not None:
        if config.unit is SizeUnit.TOKENS:
            measure = BoundedTokenMeasure(tokens=tokens.measure)
        if not config.allow_truncation:
            room = max(1, tokens.max_tokens - tokens.special_tokens - _SLACK_TOKENS)
            cap = TokenCap(measure=tokens.measure, tokens=room)
    return Work(
        document=document,
        limits=config.limits,
        unit=config.unit,
        options=config.options,
        measure=measure,
        cap=cap,
        checkpoint=progress.check,
        aside=aside,
    )


def _finish(
    text: str, pieces: Sequence[CountedPiece | Piece], work: Work, max_tokens: int | None
) -> tuple[list[Chunk], bytes]:
    plain = [item.piece if isinstance(item, CountedPiece) else item for item in pieces]
    offsets = byte_offsets(text, [position for piece in plain for position in (piece.start, piece.end)])
    most = work.limits.size + work.limits.minimum
    # The bound in characters is not a size that was asked for.
    measure = work.measure.tokens if isinstance(work.measure, BoundedTokenMeasure) else work.measure
    chunks = []
    for index, (piece, item) in enumerate(zip(plain, pieces, strict=True)):
        content = text[piece.start : piece.end]
        tokens = item.tokens if isinstance(item, CountedPiece) else None
        too_long = max_tokens is not None and tokens is not None and tokens > max_tokens
        chunks.append(
            Chunk(
                index=index,
                piece=piece,
                text=content,
                start_byte=offsets[piece.start],
                end_byte=offsets[piece.end],
                sha256=hashlib.sha256(content.encode()).digest(),
                token_count=tokens,
                oversize=too_long or measure.length(piece.start, piece.end) > most,
            )
        )
    return chunks, hashlib.sha256(text.encode()).digest()
