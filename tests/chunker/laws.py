"""What holds of every chunked document, whatever the document and the configuration."""

import hashlib
from collections.abc import Sequence

import regex
from kbmesh_chunker.assembly import LONGEST_BLANK_BEFORE
from kbmesh_chunker.chunking import ChunkedDocument
from kbmesh_chunker.context import BUDGET_SHARE, TABLE_BUDGET_SHARE
from kbmesh_chunker.graphemes import MAX_CLUSTER


def check_laws(chunked: ChunkedDocument) -> None:
    """Fails where a chunked document breaks a law of kbmesh."""
    text = chunked.document.text
    encoded = text.encode("utf-8")
    for index, chunk in enumerate(chunked.chunks):
        piece = chunk.piece
        assert chunk.index == index
        assert text[piece.start : piece.end] == chunk.text
        assert encoded[chunk.start_byte : chunk.end_byte].decode("utf-8") == chunk.text
        assert hashlib.sha256(chunk.text.encode()).digest() == chunk.sha256
    check_blanks(chunked)
    spans = [(chunk.piece.start, chunk.piece.end) for chunk in chunked.chunks]
    check_windows(text, spans)
    if chunked.config.unit == "characters":
        most = chunked.config.limits.size + chunked.config.limits.minimum
        for chunk in chunked.chunks:
            assert chunk.oversize == (len(chunk.text) > most)
            assert not chunk.oversize or len(chunk.text) <= MAX_CLUSTER
    assert hashlib.sha256(encoded).digest() == chunked.text_sha256


def check_blanks(chunked: ChunkedDocument) -> None:
    """Fails where neighbouring chunks of a part cannot be joined to the exact text, or chunks of two parts can."""
    text = chunked.document.text
    for part in chunked.parts:
        begins, ends = part.part.offset, part.part.offset + len(part.part.document.text)
        covered: int | None = None
        for chunk in chunked.chunks:
            if not begins <= chunk.piece.start < ends:
                continue
            between = text[covered : chunk.piece.start] if covered is not None else ""
            assert chunk.blank_before == (between if len(between) <= LONGEST_BLANK_BEFORE else "")
            covered = max(covered or 0, chunk.piece.end)


def check_context(chunked: ChunkedDocument) -> None:
    """Fails where a context takes more than its share of the size, which is asked for in characters."""
    for part in chunked.parts:
        room = part.config.limits.size
        for chunk in chunked.chunks:
            start, end = part.part.offset, part.part.offset + len(part.part.document.text)
            if start <= chunk.piece.start < end:
                # Rows of a table say little without their columns.
                share = TABLE_BUDGET_SHARE if "|" in chunk.piece.context else BUDGET_SHARE
                assert len(chunk.piece.context) <= room * share


def check_laws_of_propositions(chunked: ChunkedDocument) -> None:
    """Fails where a document of statements breaks a law. Chunks may have the same text and lie inside one another;
    all else holds."""
    text = chunked.document.text
    encoded = text.encode("utf-8")
    boundaries = character_boundaries(text)
    covered = bytearray(len(text))
    previous = (0, 0)
    for index, chunk in enumerate(chunked.chunks):
        start, end = chunk.piece.start, chunk.piece.end
        assert chunk.index == index
        assert text[start:end] == chunk.text
        assert encoded[chunk.start_byte : chunk.end_byte].decode("utf-8") == chunk.text
        assert hashlib.sha256(chunk.text.encode()).digest() == chunk.sha256
        assert chunk.text.strip(), "no chunk is blank"
        assert {start, end} <= boundaries, "characters stay whole"
        assert (start, end) >= previous, "in order of start, then of end"
        assert chunk.embedded_text is None or (chunk.embedded_text.strip() and chunk.piece.type == "proposition")
        covered[start:end] = b"\1" * (end - start)
        previous = (start, end)
    lost = [place for place, character in enumerate(text) if not covered[place] and not character.isspace()]
    assert not lost, "every character that is not white space is in some chunk"


def check_windows(text: str, spans: Sequence[tuple[int, int]]) -> None:
    """Fails where windows lose text, stand out of order, inside one another, or cut a character in two."""
    boundaries = character_boundaries(text)
    covered = bytearray(len(text))
    previous = (-1, -1)
    for start, end in spans:
        assert start > previous[0], "starts rise"
        assert end > previous[1], "ends rise: no chunk inside another"
        assert text[start:end].strip(), "no chunk is blank"
        assert start in boundaries, f"{start} is inside a character"
        assert end in boundaries, f"{end} is inside a character"
        covered[start:end] = b"\1" * (end - start)
        previous = (start, end)
    lost = [place for place, character in enumerate(text) if not covered[place] and not character.isspace()]
    assert not lost, "every character that is not white space is in some chunk"


def character_boundaries(text: str) -> set[int]:
    """Where a reader's characters begin and end; those that are too long for any script may be cut anywhere."""
    boundaries = {0}
    # A mark belongs to what is before it, also where \X sets it apart; nothing is before it after a control.
    for cluster in regex.finditer(r"\X(?:(?<![\p{Cc}\p{Zl}\p{Zp}\p{GCB=Control}])(?=\p{M})\X)*", text):
        boundaries.add(cluster.end())
        if cluster.end() - cluster.start() > MAX_CLUSTER:
            boundaries.update(range(cluster.start(), cluster.end()))
    return boundaries
