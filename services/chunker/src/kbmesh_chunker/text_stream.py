"""A text that is cut while it comes."""

import hashlib
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from kbmesh_rpc.errors import DocumentEmpty, DocumentUnreadable, InvalidField, KbmeshError, Reason

from kbmesh_chunker.assembly import CutPart, make_chunks
from kbmesh_chunker.blank import GULF_EDGE, is_visible, next_start, stretches, trim_end
from kbmesh_chunker.breaks import Breaks
from kbmesh_chunker.chunking import MAX_REPETITION, Chunker, Progress, make_work, too_long_warnings
from kbmesh_chunker.config import ChunkingConfig, Options, Strategy, fingerprint
from kbmesh_chunker.documents.decoding import MAX_CONTROL_SHARE, MAX_CONTROLS, count_controls
from kbmesh_chunker.documents.source import TextDocument, Warning  # noqa: A004 - the contract's name
from kbmesh_chunker.documents.stream_decoding import StreamDecoder
from kbmesh_chunker.measure import TokenMeasure
from kbmesh_chunker.piece import Chunk, Piece
from kbmesh_chunker.strategies.fixed import Fixed
from kbmesh_chunker.strategies.port import Work
from kbmesh_chunker.strategies.semantic import Semantic
from kbmesh_chunker.summary import Summary
from kbmesh_chunker.token_counter import ModelTokens, TokenCounter, measure_segments, segments
from kbmesh_chunker.token_limit import CountedPiece, TokenFitter

LOOK_BACK = 512
"""Characters before a window that are kept: what is before it may matter, such as whether a line began there."""
BATCH_CHARACTERS = 65_536


class StreamedStrategy(Protocol):
    """A strategy that need not see the whole text."""

    piece_type: str

    def structure(self, text: str, start: int, end: int, options: Options) -> tuple[Breaks, int]:
        """Breaks and seals of text[start:end], and up to where they are the same whatever follows `end`.

        What is found within the first `LOOK_BACK` characters need not be right: it was cut before.
        """


STREAMED: Mapping[Strategy, StreamedStrategy] = {Strategy.FIXED: Fixed(), Strategy.SEMANTIC: Semantic()}


@dataclass(frozen=True, kw_only=True)
class StreamPlan:
    """How a text is cut while it comes."""

    document: TextDocument
    """All that is known of it but its text."""
    config: ChunkingConfig
    reason: str
    decoder: StreamDecoder


class TextStream:
    """Cuts one text. Positions are code points of what is kept of it, unless they say otherwise."""

    def __init__(
        self,
        chunker: Chunker,
        plan: StreamPlan,
        progress: Progress,
        path: str,
        *,
        batch_characters: int = BATCH_CHARACTERS,
    ) -> None:
        """Cuts whenever `batch_characters` more have come."""
        self._chunker = chunker
        self._plan = plan
        self._progress = progress
        self._path = path
        self._batch = batch_characters
        self._strategy = STREAMED[plan.config.strategy]
        self._warnings = list(plan.document.warnings)
        self._counter: TokenCounter | None = chunker.counter if plan.config.embedding_model else None
        self._fitter: TokenFitter | None = None
        self._tokens: ModelTokens | None = None

        self._text = ""
        self._offset = 0
        """Where what is kept begins in the whole text."""
        self._offset_bytes = 0
        """The same in bytes of UTF-8."""
        self._position = 0
        """Where the next window starts; before a stretch has begun, where the white space before it does."""
        self._fresh = 0
        self._open = False
        """Whether a stretch has begun."""
        self._scan = 0
        """From where the structure of the stretch is looked for."""
        self._measured = 0
        """Up to where tokens were counted."""

        self._hash = hashlib.sha256()
        self._characters = 0
        self._controls = 0
        self._visible = False
        self._total = 0
        self._covered: int | None = None
        """Up to where of the whole text chunks reach."""
        self._too_long = 0

    async def run(self, head: bytearray, parts: AsyncIterator[bytes]) -> AsyncGenerator[Chunk | Summary, None]:
        """The chunks of the text whose bytes are `head` and `parts`, and its summary."""
        waiting = [await self._chunker.aside(self._take, bytes(head), False)]
        head.clear()
        characters = len(waiting[0])
        async for part in parts:
            if characters >= self._batch:
                for chunk in await self._cut("".join(waiting), final=False):
                    yield chunk
                waiting, characters = [], 0
            waiting.append(await self._chunker.aside(self._take, part, False))
            characters += len(waiting[-1])
        waiting.append(await self._chunker.aside(self._take, b"", True))
        for chunk in await self._cut("".join(waiting), final=True):
            yield chunk
        yield self._summary()

    def _take(self, data: bytes, final: bool) -> str:
        """Decodes and checks what comes next."""
        self._progress.check()
        media_type = self._plan.document.media_type
        known = len(self._plan.decoder.warnings)
        text = self._plan.decoder.decode(data, final=final)
        self._warnings.extend(self._plan.decoder.warnings[known:])
        if "\x00" in text:
            place = self._characters + text.index("\x00")
            raise DocumentUnreadable(media_type, f"character {place} is NUL: this is no text")
        self._hash.update(text.encode())
        self._characters += len(text)
        self._controls += count_controls(text)
        self._visible = self._visible or is_visible(text)
        limits, most = self._plan.config.limits, MAX_REPETITION * self._chunker.limits.max_document_bytes
        times = limits.size / (limits.size - limits.overlap)
        if times > MAX_REPETITION and self._characters * times > most:
            message = f"would repeat a document of {self._characters} characters {times:.0f} times; take a smaller one"
            raise InvalidField(f"{self._path}.overlap", message)
        if final and not self._visible:
            raise DocumentEmpty
        if final and self._controls > max(MAX_CONTROLS, self._characters * MAX_CONTROL_SHARE):
            raise DocumentUnreadable(media_type, f"{self._controls} control characters: this is no text")
        return text

    async def _cut(self, text: str, *, final: bool) -> list[Chunk]:
        """The chunks that are certain now that `text` has come."""
        self._text += text
        await self._measure(final)
        if self._tokens is not None and self._tokens.max_tokens == 0:
            # Nothing is cut before the model's limit is known.
            return []
        work = make_work(
            replace(self._plan.document, text=self._text),
            self._plan.config,
            self._tokens,
            self._progress,
            self._chunker.aside,
            self._warnings.append,
        )
        pieces = await self._chunker.aside(self._pieces, work, final)
        counted = await self._count(pieces)
        most = self._tokens.max_tokens if self._tokens is not None and work.cap is not None else None
        cut = CutPart(
            config=self._plan.config,
            reason=self._plan.reason,
            work=work,
            pieces=counted,
            tokens=self._tokens,
            max_tokens=most,
            made_with={},
        )
        return await self._chunker.aside(self._chunks, cut)

    async def _measure(self, final: bool) -> None:
        config = self._plan.config
        if self._counter is None or not config.counts_tokens:
            return
        if self._tokens is None:
            # What is beyond the last token that is known is as far as any window may reach.
            measure = TokenMeasure(sys.maxsize)
            self._tokens = ModelTokens(measure=measure, special_tokens=0, max_tokens=0, model_fingerprint="")
        found, self._measured = segments(self._text, self._measured, final=final)
        self._tokens = await measure_segments(self._counter, found, self._tokens, model=config.embedding_model)

    def _pieces(self, work: Work, final: bool) -> list[Piece]:
        """The windows that no text to come could change."""
        text = self._text
        pieces: list[Piece] = []
        found = list(stretches(text, self._position, len(text)))
        for index, (first, last) in enumerate(found):
            closed = final or index + 1 < len(found)
            end = trim_end(text, first, last)
            if not self._open:
                start = next_start(text, first, end)
                if start >= end:
                    self._position = first
                    continue
                self._open, self._position, self._fresh, self._scan = True, start, start, first
            breaks, reach = self._strategy.structure(text, self._scan, end, work.options)
            reach = min(reach, self._measured) if self._tokens is not None else reach
            context = work.context()
            steps = work.cutter(breaks).steps(
                self._position, self._fresh, end, context.at, reach=None if closed else reach
            )
            for step in steps:
                pieces.append(
                    Piece(start=step.start, end=step.end, type=self._strategy.piece_type, context=context.text)
                )
                self._position, self._fresh = step.following, step.fresh
            if closed:
                self._open = False
        return pieces

    async def _count(self, pieces: Sequence[Piece]) -> Sequence[CountedPiece | Piece]:
        config = self._plan.config
        if self._counter is None:
            return pieces
        most = self._tokens.max_tokens if self._tokens is not None and not config.allow_truncation else None
        if self._fitter is None:
            self._fitter = TokenFitter(
                counter=self._counter, model=config.embedding_model, max_tokens=most, checkpoint=self._progress.check
            )
        try:
            counted = await self._fitter.fit(self._text, pieces, offset=self._offset)
        except KbmeshError as error:
            if config.counts_tokens or error.reason in {Reason.DEADLINE_EXCEEDED, Reason.CANCELLED}:
                raise
            # Nothing is cut by the count: the chunks are right without it.
            self._warnings.append(Warning(reason=error.reason, message=error.message, metadata=error.metadata))
            self._counter = None
            return pieces
        warnings = too_long_warnings(counted, most, offset=self._offset, known=self._too_long)
        self._too_long += len(warnings)
        self._warnings += warnings
        return counted

    def _chunks(self, cut: CutPart) -> list[Chunk]:
        """Chunks of pieces; forgets the text that is not needed any more."""
        document = cut.work.document
        chunks = make_chunks(
            cut,
            document,
            index=self._total,
            offset=self._offset,
            start_byte=self._offset_bytes,
            covered=self._covered,
        )
        self._total += len(chunks)
        self._covered = chunks[-1].piece.end if chunks else self._covered
        self._forget()
        return chunks

    def _forget(self) -> None:
        text = self._text
        if self._open:
            kept = max(0, self._position - LOOK_BACK)
            if kept and text[kept].isspace():
                # Of white space either all is kept or nothing.
                kept = max(0, trim_end(text, 0, kept) - 1)
        else:
            # The next stretch begins after white space, of which its first line's indentation is kept.
            self._position = max(self._position, len(text) - GULF_EDGE)
            kept = max(0, self._position - 1)
        if self._tokens is not None:
            kept = min(kept, self._measured)
            measure = self._tokens.measure.moved(kept, sys.maxsize)
            self._tokens = replace(self._tokens, measure=measure)
            self._measured -= kept
        self._text = text[kept:]
        self._offset += kept
        self._offset_bytes += len(text[:kept].encode())
        self._position -= kept
        self._fresh -= kept
        self._scan = max(0, self._scan - kept)

    def _summary(self) -> Summary:
        document, config, tokens = self._plan.document, self._plan.config, self._tokens
        return Summary(
            total=self._total,
            strategy=config.strategy,
            strategy_reason=self._plan.reason,
            media_type=document.media_type,
            source_type=document.source_type,
            title=document.title,
            text_sha256=self._hash.digest(),
            text_characters=self._characters,
            warnings=self._warnings,
            fingerprint=fingerprint(
                config,
                model_fingerprint=tokens.model_fingerprint if tokens else "",
                max_tokens=tokens.max_tokens if tokens else 0,
            ),
            metadata=document.metadata,
        )
