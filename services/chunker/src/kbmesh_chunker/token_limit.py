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
    """Counts the pieces' tokens and cuts those again that have more than `max_tokens`; None only counts.

    The strategies already cut by the tokens of the whole text. A piece may have a few more, since a tokenizer sees
    other neighbours. What still has too many after the last round cannot be cut: it is one character.
    """
    known: dict[_Key, int] = {}
    current = list(pieces)
    for attempt in range(MAX_ROUNDS + 1):
        checkpoint()
        fresh = [piece for piece in current if _key(piece) not in known]
        texts = [embedded_text(text, piece) for piece in fresh]
        # Nothing is embedded for an empty text, and nothing is counted.
        counts = iter(await count_tokens(counter, [embedded for embedded in texts if embedded], model=model))
        for piece, embedded in zip(fresh, texts, strict=True):
            known[_key(piece)] = next(counts) if embedded else 0
        if max_tokens is None or attempt == MAX_ROUNDS or all(known[_key(piece)] <= max_tokens for piece in current):
            break
        share = _FINER**attempt
        cut: list[Piece] = []
        after_cut = False
        for piece in current:
            over = known[_key(piece)] > max_tokens
            if cut and (over or after_cut):
                # A part might lie inside what its neighbour repeats: parts repeat nothing.
                piece = _without_overlap(text, piece, cut[-1])
            counted = known.get(_key(piece), 0)
            after_cut = counted > max_tokens
            if after_cut:
                cut.extend(await _cut_again(text, piece, counted, max_tokens, share, counter=counter, model=model))
            else:
                cut.append(piece)
        current = cut
    return [CountedPiece(piece=piece, tokens=known[_key(piece)]) for piece in current]


_Key = tuple[int, int, str, str | None]


def _key(piece: Piece) -> _Key:
    return piece.start, piece.end, piece.context, piece.statement


async def _cut_again(
    text: str, piece: Piece, tokens: int, max_tokens: int, share: float, *, counter: TokenCounter, model: str
) -> list[Piece]:
    content = text[piece.start : piece.end]
    counted = await measure_tokens(counter, content, model=model)
    own = counted.measure.total
    allowed = int((max_tokens - (tokens - own)) * share)
    context = piece.context
    if allowed < max_tokens // 8:
        # The context leaves too little room. It can be had from the heading path; the text cannot.
        context, allowed = "", int((max_tokens - counted.special_tokens) * share)
    parts = cut_by_tokens(content, counted.measure, max(1, allowed))
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


def _without_overlap(text: str, piece: Piece, previous: Piece) -> Piece:
    if piece.start >= previous.end:
        return piece
    return replace(piece, start=next_start(text, previous.end, piece.end))
