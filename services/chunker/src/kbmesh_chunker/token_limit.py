"""Keeping every chunk within what the embedding model reads."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from kbmesh_chunker.blank import next_start
from kbmesh_chunker.cutter import Cutter, Limits, TokenCap
from kbmesh_chunker.measure import TokenMeasure
from kbmesh_chunker.piece import Piece, embedded_text
from kbmesh_chunker.token_counter import TokenCounter, count_tokens, measure_tokens

MAX_ROUNDS = 8
"""Pieces are cut again at most this often. Each round cuts finer, and the first is nearly always enough."""
_FINER = 0.9


@dataclass(frozen=True, kw_only=True)
class CountedPiece:
    """A piece with the tokens of what is embedded for it."""

    piece: Piece
    tokens: int


async def fit(
    text: str,
    pieces: Sequence[Piece],
    *,
    counter: TokenCounter,
    model: str,
    max_tokens: int | None,
    checkpoint: Callable[[], None],
) -> list[CountedPiece]:
    """All pieces of a document at once; see TokenFitter."""
    fitter = TokenFitter(counter=counter, model=model, max_tokens=max_tokens, checkpoint=checkpoint)
    return await fitter.fit(text, pieces)


class TokenFitter:
    """Counts the tokens of pieces and cuts those again that have more than `max_tokens`; None only counts.

    The strategies already cut by the tokens of the whole text. A piece may have a few more, since a tokenizer sees
    other neighbours. What still has too many after the last round cannot be cut: it is one character.

    Pieces may come in any number of calls, in the order of the document: the outcome is the same.
    """

    def __init__(
        self, *, counter: TokenCounter, model: str, max_tokens: int | None, checkpoint: Callable[[], None]
    ) -> None:
        self._counter = counter
        self._model = model
        self._max_tokens = max_tokens
        self._checkpoint = checkpoint
        self._last_end = 0
        self._after_cut = False
        self._moved_start = -1
        """Where the last piece starts, if not where its strategy had it start."""

    async def fit(self, text: str, pieces: Sequence[Piece], *, offset: int = 0) -> list[CountedPiece]:
        """The pieces of `text`, which begins at `offset` of the document."""
        self._checkpoint()
        fitted: list[CountedPiece] = []
        for piece, tokens in zip(pieces, await self._count(text, pieces), strict=True):
            counted = CountedPiece(piece=piece, tokens=tokens)
            after_change = self._after_cut or offset + piece.start <= self._moved_start
            if self._max_tokens is not None and (tokens > self._max_tokens or after_change):
                # A part might lie inside what its neighbour repeats: parts repeat nothing.
                counted = await self._without_overlap(text, counted, self._last_end - offset)
            parts = [counted]
            for attempt in range(MAX_ROUNDS):
                if not any(self._exceeds(part) for part in parts):
                    break
                self._checkpoint()
                parts = await self._cut_round(text, parts, _FINER**attempt)
            self._after_cut = self._exceeds(counted)
            self._moved_start = offset + counted.piece.start if counted.piece is not piece else -1
            self._last_end = offset + piece.end
            fitted += parts
        return fitted

    def _exceeds(self, counted: CountedPiece) -> bool:
        return self._max_tokens is not None and counted.tokens > self._max_tokens

    async def _count(self, text: str, pieces: Sequence[Piece]) -> list[int]:
        texts = [embedded_text(text, piece) for piece in pieces]
        # Nothing is embedded for an empty text, and nothing is counted.
        counts = iter(
            await count_tokens(self._counter, [embedded for embedded in texts if embedded], model=self._model)
        )
        return [next(counts) if embedded else 0 for embedded in texts]

    async def _without_overlap(self, text: str, counted: CountedPiece, previous_end: int) -> CountedPiece:
        piece = counted.piece
        if piece.start >= previous_end or piece.end <= previous_end:
            # Pieces of statements may lie inside one another.
            return counted
        piece = replace(piece, start=next_start(text, previous_end, piece.end))
        return CountedPiece(piece=piece, tokens=(await self._count(text, [piece]))[0])

    async def _cut_round(self, text: str, parts: Sequence[CountedPiece], share: float) -> list[CountedPiece]:
        cut: list[Piece] = []
        for part in parts:
            if self._exceeds(part):
                cut.extend(await self._cut_again(text, part, share))
            else:
                cut.append(part.piece)
        return [
            CountedPiece(piece=piece, tokens=tokens)
            for piece, tokens in zip(cut, await self._count(text, cut), strict=True)
        ]

    async def _cut_again(self, text: str, counted: CountedPiece, share: float) -> list[Piece]:
        piece, most = counted.piece, self._max_tokens or 0
        content = text[piece.start : piece.end]
        measured = await measure_tokens(self._counter, content, model=self._model)
        own = measured.measure.total
        allowed = int((most - (counted.tokens - own)) * share)
        context = piece.context
        if allowed < most // 8:
            # The context leaves too little room. It can be had from the heading path; the text cannot.
            context, allowed = "", int((most - measured.special_tokens) * share)
        parts = cut_by_tokens(content, measured.measure, max(1, allowed))
        return [
            # A statement that the model cannot read whole gives way to the text that it was made of.
            replace(piece, start=piece.start + start, end=piece.start + end, context=context, statement=None)
            for start, end in parts
        ]


def cut_by_tokens(content: str, measure: TokenMeasure, allowed: int) -> list[tuple[int, int]]:
    """Parts of a text of at most `allowed` tokens each, alike in size, cut at sentences, words or characters."""
    count = -(-measure.total // allowed)
    size = max(1, min(allowed, -(-measure.total * 5 // (count * 4))))
    cutter = Cutter(
        text=content,
        limits=Limits(size=size, overlap=0, minimum=size // 3),
        measure=measure,
        cap=TokenCap(measure=measure, tokens=allowed),
    )
    return list(cutter.cut(0, len(content)))
