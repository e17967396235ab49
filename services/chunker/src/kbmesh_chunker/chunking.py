"""The chunker: a document and a configuration in, chunks and a summary out."""

import asyncio
import contextvars
import functools
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from kbmesh_rpc.deadline import Deadline
from kbmesh_rpc.errors import (
    Cancelled,
    DeadlineExceeded,
    FeatureUnsupported,
    InvalidField,
    KbmeshError,
    Reason,
)

from kbmesh_chunker.admission import Admission
from kbmesh_chunker.assembly import ChunkedPart, CutPart, assemble
from kbmesh_chunker.config import (
    CHARACTER_SIZES,
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
from kbmesh_chunker.documents.reader import DocumentReader, parsed_type, read
from kbmesh_chunker.documents.reading import ReadingLimits
from kbmesh_chunker.documents.source import (
    ExtractedDocument,
    Grammar,
    SourceDocument,
    TextDocument,
    Warning,  # noqa: A004 - the contract's name
)
from kbmesh_chunker.measure import BoundedTokenMeasure, CharacterMeasure, Measure
from kbmesh_chunker.piece import Chunk, Piece
from kbmesh_chunker.strategies.auto import choose
from kbmesh_chunker.strategies.port import NO_MODELS, Models, StrategyPort, Work, untold
from kbmesh_chunker.strategies.registry import find
from kbmesh_chunker.token_counter import ModelTokens, TokenCounter, measure_tokens
from kbmesh_chunker.token_limit import CountedPiece, fit

T = TypeVar("T")

BRIEF_CHARACTERS = 8_192
"""Documents up to this size are cut in the event loop, which takes a millisecond or two: handing work to a thread and
back takes as long."""

MAX_REPETITION = 4
"""Chunks together may have this many times the most bytes a document may have. Only a large overlap reaches that."""
_SLACK_TOKENS = 2
_MAX_TOO_LONG = 16


@dataclass(frozen=True, kw_only=True)
class ChunkedDocument:
    """What became of a document."""

    document: ExtractedDocument
    chunks: Sequence[Chunk]
    parts: Sequence[ChunkedPart]
    """What became of each part of the document; one where it is made of no others."""
    fingerprint: str
    text_sha256: bytes
    warnings: Sequence[Warning] = ()

    @property
    def config(self) -> ChunkingConfig:
        """How the first part was cut, which speaks for the whole."""
        return self.parts[0].config

    @property
    def strategy_reason(self) -> str:
        """Why it was cut so; empty where the caller chose."""
        return self.parts[0].strategy_reason


@dataclass(kw_only=True)
class Progress:
    """Whether a call is still wanted. `check` is called from worker threads."""

    deadline: Deadline | None
    at_once: bool = False
    """Whether all of the work is done where it is called, in one go."""
    _gone: bool = False

    def leave(self) -> None:
        """The caller has gone."""
        self._gone = True

    def check(self) -> None:
        """Raises Cancelled or DeadlineExceeded."""
        if self._gone:
            raise Cancelled
        if self.deadline is not None and self.deadline.expired:
            raise DeadlineExceeded(stage="chunking")


class Chunker:
    """Cuts documents. Keeps no state between them."""

    def __init__(
        self,
        *,
        limits: ReadingLimits,
        counter: TokenCounter | None,
        executor: Executor,
        reader: DocumentReader | None = None,
        models: Models | None = None,
        admission: Admission | None = None,
    ) -> None:
        """`executor` runs what takes the processor for long. Without a `reader` it also reads the documents."""
        self.limits = limits
        self._counter = counter
        self._executor = executor
        self._reader = reader
        self._models = models or Models()
        self.admission = admission or Admission()
        """How much may wait here."""

    def check(self, request: ConfigRequest, *, path: str = "config") -> None:
        """Raises InvalidField or FeatureUnsupported where the configuration is wrong, whatever the document."""
        port = None if request.strategy is Strategy.AUTO else find(request.strategy)
        check_options_owner(request, path=path)
        check_model(request, can_count=self._counter is not None, path=path)
        resolve_limits(request, characters=CHARACTER_SIZES if port is None else port.sizes, path=path)
        if port is not None:
            port.options(request.options, f"{path}.{port.strategy}")
            self._check_models(port, path)
        elif request.options_of is not None:
            find(request.options_of).options(request.options, f"{path}.{request.options_of}")

    async def chunk(
        self, source: SourceDocument, request: ConfigRequest, *, deadline: Deadline | None, path: str = "config"
    ) -> ChunkedDocument:
        """Chunks a document. Raises what `check` and `read` raise, WaitingFull and DeadlineExceeded.

        Where the tokens of a model are needed, also what a TokenCounter raises.
        """
        self.check(request, path=path)
        at_once = self._needs_nobody(source, request)
        progress = Progress(deadline=deadline, at_once=at_once)
        try:
            with self.admission.reserve(len(source.content)):
                work = functools.partial(self._chunk, source, request, progress, path)
                if not at_once:
                    return await work()
                if len(source.content) <= BRIEF_CHARACTERS:
                    return _run(work)
                return await self.aside(_run, work)
        finally:
            # Threads cannot be ended from outside; they ask.
            progress.leave()

    def chunk_here(self, source: SourceDocument, request: ConfigRequest, *, path: str = "config") -> ChunkedDocument:
        """Chunks a document where it is called, without an event loop: for a text that needs no model to be cut.

        Raises what `chunk` raises, and ValueError for a document that it would read in a process of its own or cut by
        a model.
        """
        self.check(request, path=path)
        if not self._needs_nobody(source, request):
            raise ValueError("such a document is chunked by `chunk` alone")
        return _run(functools.partial(self._chunk, source, request, Progress(deadline=None, at_once=True), path))

    def _needs_nobody(self, source: SourceDocument, request: ConfigRequest) -> bool:
        """Whether a document can be read and cut without a model and without a process that reads it."""
        models = request.strategy in {Strategy.SIMILARITY, Strategy.PROPOSITION} or bool(request.embedding_model)
        return not models and not parsed_type(source)

    async def _chunk(
        self, source: SourceDocument, request: ConfigRequest, progress: Progress, path: str
    ) -> ChunkedDocument:
        progress.check()
        document = await self._read(_wishing(source, request), progress)
        warnings = list(document.warnings)
        cut = [await self._cut(part.document, request, progress, path, warnings) for part in document.parts]
        chunks, parts, text_sha256 = await self._in_turn(progress, assemble, document, cut)
        tokens = cut[0].tokens
        return ChunkedDocument(
            document=document,
            chunks=chunks,
            parts=parts,
            fingerprint=fingerprint(
                cut[0].config,
                model_fingerprint=tokens.model_fingerprint if tokens else "",
                max_tokens=tokens.max_tokens if tokens else 0,
                made_with=cut[0].made_with,
            ),
            text_sha256=text_sha256,
            warnings=warnings,
        )

    async def _read(self, source: SourceDocument, progress: Progress) -> ExtractedDocument:
        here = functools.partial(read, source, limits=self.limits)
        if progress.at_once:
            return _unless_over(progress, here)
        if self._reader is None:
            return await self.aside(_unless_over, progress, here)
        return await self._reader.read(source, deadline=progress.deadline)

    async def _cut(
        self,
        document: TextDocument,
        request: ConfigRequest,
        progress: Progress,
        path: str,
        warnings: list[Warning],
    ) -> CutPart:
        """Cuts a document of one kind; adds to `warnings`."""
        config, reason = resolve(request, document, path)
        self._check_repetition(config, document, path)
        tokens = await self._measure(config, document)
        made_with: dict[str, str] = {}
        aside = functools.partial(self._in_turn, progress)
        work = make_work(
            document, config, tokens, progress, aside, warnings.append, models=self._models, made_with=made_with
        )
        # What holds nothing, as a channel whose messages are gone, is no work for a strategy.
        pieces = await find(config.strategy).cut(work) if document.text else ()
        counted, count_warnings = await self._count(config, document, pieces, tokens, progress)
        warnings.extend(count_warnings)
        most = tokens.max_tokens if tokens is not None and work.cap is not None else None
        return CutPart(
            config=config,
            reason=reason,
            work=work,
            pieces=counted,
            tokens=tokens,
            max_tokens=most,
            made_with=made_with,
        )

    def _check_models(self, port: StrategyPort, path: str) -> None:
        if self.serves(port.strategy):
            return
        if port.needs_embedder:
            raise InvalidField(
                f"{path}.strategy", f"{port.strategy.upper()} needs an embedder, and this chunker is connected to none"
            )
        raise FeatureUnsupported(f"STRATEGY_{port.strategy.name}")

    def serves(self, strategy: Strategy) -> bool:
        """Whether this server has the models that a strategy needs."""
        if find(strategy).needs_embedder:
            return self._models.embedder is not None
        return strategy is not Strategy.PROPOSITION or self._models.language_model is not None

    def _check_repetition(self, config: ChunkingConfig, document: TextDocument, path: str) -> None:
        limits = config.limits
        times = limits.size / (limits.size - limits.overlap)
        if len(document.text) * times > MAX_REPETITION * self.limits.max_document_bytes:
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
        return counted, too_long_warnings(counted, most)

    async def _in_turn(self, progress: Progress, function: Callable[..., T], *arguments: Any) -> T:
        """Like `aside`, unless the caller has gone or the deadline has passed when it is its turn."""
        if progress.at_once:
            return _unless_over(progress, function, *arguments)
        return await self.aside(_unless_over, progress, function, *arguments)

    @property
    def counter(self) -> TokenCounter | None:
        """Counts tokens; None where this chunker cannot."""
        return self._counter

    async def aside(self, function: Callable[..., T], *arguments: Any) -> T:
        """Runs work that takes the processor for long outside the event loop."""
        call = functools.partial(contextvars.copy_context().run, function, *arguments)
        return await asyncio.get_running_loop().run_in_executor(self._executor, call)


def _run(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Runs work that waits for nobody."""
    running = work()
    try:
        running.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    running.close()
    raise RuntimeError("work that was to wait for nobody did wait")


def _unless_over(progress: Progress, function: Callable[..., T], *arguments: Any) -> T:
    progress.check()
    return function(*arguments)


def too_long_warnings(
    counted: Sequence[CountedPiece], most: int | None, *, offset: int = 0, known: int = 0
) -> list[Warning]:
    """A warning for each piece of more than `most` tokens, up to a number of which `known` were given before."""
    over = [piece for piece in counted if most is not None and piece.tokens > most]
    return [
        Warning(
            reason=Reason.TEXT_TOO_LONG,
            message="a single character has more tokens than the model reads",
            metadata={"tokens": str(piece.tokens), "limit": str(most), "start": str(offset + piece.piece.start)},
        )
        for piece in over[: max(0, _MAX_TOO_LONG - known)]
    ]


_WISHES = {Strategy.EMAIL: Grammar.MAIL, Strategy.SLACK: Grammar.SLACK, Strategy.CODE: Grammar.CODE}


def _wishing(source: SourceDocument, request: ConfigRequest) -> SourceDocument:
    """A document whose text is read as what the caller's strategy cuts, where its type says nothing else."""
    wish = _WISHES.get(request.strategy)
    if wish is None and source.grammar is None and not source.language:
        return source
    language = request.options.get("language", "") if request.strategy is Strategy.CODE else ""
    return replace(source, grammar=wish, language=str(language))


def resolve(request: ConfigRequest, document: TextDocument, path: str) -> tuple[ChunkingConfig, str]:
    """How a document is cut, and why where the caller left the choice."""
    strategy, reason = request.strategy, ""
    if strategy is Strategy.AUTO:
        choice = choose(document)
        strategy, reason = choice.strategy, choice.reason
    elif document.grammar not in find(strategy).grammars:
        choice = choose(document)
        reason = f"{strategy.upper()} does not cut {document.media_type}; {choice.reason}"
        strategy = choice.strategy
    options = request.options if strategy is request.options_of else {}
    port = find(strategy)
    config = ChunkingConfig(
        strategy=strategy,
        limits=resolve_limits(request, characters=port.sizes, path=path),
        unit=request.unit,
        embedding_model=request.embedding_model,
        allow_truncation=request.allow_truncation,
        options=port.options(options, f"{path}.{strategy}"),
    )
    return config, reason


def make_work(
    document: TextDocument,
    config: ChunkingConfig,
    tokens: ModelTokens | None,
    progress: Progress,
    aside: Callable[..., Awaitable[Any]],
    warn: Callable[[Warning], None],
    *,
    models: Models = NO_MODELS,
    made_with: dict[str, str] | None = None,
) -> Work:
    """What a strategy needs to cut a document."""
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
        warn=warn,
        models=models,
        embedding_model=config.embedding_model,
        deadline=progress.deadline,
        made_with=made_with.__setitem__ if made_with is not None else untold,
    )
