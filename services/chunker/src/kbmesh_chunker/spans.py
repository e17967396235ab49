"""Code points to UTF-8 bytes."""

from collections.abc import Iterable, Mapping


def byte_offsets(text: str, positions: Iterable[int]) -> Mapping[int, int]:
    """The offset in `text.encode("utf-8")` of each position in `text`, in one pass over the text.

    Positions are code points, 0 to len(text), in any order and with repeats.
    """
    if text.isascii():
        return {position: position for position in positions}
    offsets: dict[int, int] = {}
    last = offset = 0
    for position in sorted(set(positions)):
        offset += len(text[last:position].encode("utf-8"))
        offsets[position] = offset
        last = position
    return offsets
