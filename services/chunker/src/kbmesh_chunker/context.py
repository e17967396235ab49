"""What is put before a piece so that it can be understood alone: its headings and the header of its table."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from kbmesh_chunker import graphemes

ELLIPSIS = "…"
SEPARATOR = " > "
BUDGET_SHARE = 0.3
"""How much of the size of a chunk its context may take."""
TABLE_BUDGET_SHARE = 0.5
"""How much it may take where it holds a table's header that would have to be trimmed otherwise: without their columns,
rows say little."""
_TELLING = 8
_CHARACTERS_PER_TOKEN = 3.2


@dataclass(frozen=True, kw_only=True)
class Room:
    """How long a chunk may be, of which its context takes a share. Infinite where it is not bounded."""

    characters: float = inf
    tokens: float = inf


@dataclass(frozen=True, kw_only=True)
class Context:
    """A context and about how many tokens it has."""

    text: str = ""
    tokens: int = 0

    def at(self, _position: int) -> int:
        """Its tokens, for a cutter whose windows all have this context."""
        return self.tokens


NO_CONTEXT = Context()


def estimate_tokens(text: str) -> int:
    """About how many tokens a text has, rather too many than too few. What is embedded is counted exactly later."""
    if text.isascii():
        return int(len(text) / _CHARACTERS_PER_TOKEN) + 1
    plain = sum(character < "\u0250" for character in text)
    return int(plain / _CHARACTERS_PER_TOKEN) + len(text) - plain + 1


def fit_lines(lines: Sequence[str], room: Room, *, share: float = BUDGET_SHARE) -> Context:
    """Lines of a context, trimmed so that they take at most their share of a chunk.

    Each line is trimmed in the middle, the longest first, and the trimmed place is marked by an ellipsis. Lines that
    find no room are left out from the end.
    """
    lines = [line for line in lines if line]
    text = "\n".join(lines)
    if not text:
        return NO_CONTEXT
    tokens = estimate_tokens(text)
    budget = min(room.characters * share, len(text) * room.tokens * share / tokens)
    if len(text) > budget:
        lines = list(lines)
        while lines and int(budget) // len(lines) < _TELLING:
            lines.pop()
        text = "\n".join(trim_middle(line, most) for line, most in zip(lines, _widths(lines, int(budget)), strict=True))
        tokens = estimate_tokens(text) if text else 0
    return Context(text=text, tokens=tokens)


def _widths(lines: Sequence[str], budget: int) -> list[int]:
    """Characters for each line: short lines keep all of theirs, the long ones share what is left."""
    left = budget - max(0, len(lines) - 1)
    widths = [0] * len(lines)
    order = sorted(range(len(lines)), key=lambda place: len(lines[place]))
    for done, place in enumerate(order):
        widths[place] = min(len(lines[place]), left // (len(lines) - done))
        left -= widths[place]
    return widths


def write_context(headings: Sequence[str], header_rows: str, budget: int) -> str:
    """Headings on one line, the table's header below it, trimmed in the middle to `budget` characters."""
    path = write_path([title for title in headings if title], budget // 2 if header_rows else budget)
    rows = trim_rows(header_rows, budget - len(path) - 1 if path else budget)
    return "\n".join(part for part in (path, rows) if part)


def write_path(headings: Sequence[str], budget: int) -> str:
    """`A > B > C`; where that is too long, what is between the outermost and the innermost goes first."""
    full = SEPARATOR.join(headings)
    if len(full) <= budget:
        return full
    outermost, innermost = headings[0], headings[-1]
    if len(headings) == 1:
        return trim_middle(innermost, budget)
    room = budget - len(innermost) - len(SEPARATOR) - len(ELLIPSIS)
    if len(headings) > 2 and room >= len(outermost) + len(SEPARATOR):
        return SEPARATOR.join((outermost, ELLIPSIS, innermost))
    if room >= _TELLING:
        return outermost[: graphemes.floor(outermost, room)].rstrip() + ELLIPSIS + SEPARATOR + innermost
    if room >= 0:
        return ELLIPSIS + SEPARATOR + innermost
    return trim_middle(innermost, budget)


def trim_rows(rows: str, budget: int) -> str:
    """Header rows, each trimmed so that all of them have `budget` characters at most."""
    if not rows or len(rows) <= budget:
        return rows
    lines = rows.splitlines()
    each = (budget - len(lines) + 1) // len(lines)
    return "\n".join(trim_middle(line, each) for line in lines) if each >= len(ELLIPSIS) + 2 else ""


def trim_middle(text: str, budget: int) -> str:
    """The start and the end of a text with an ellipsis between them, `budget` characters at most."""
    if len(text) <= budget:
        return text
    if budget < len(ELLIPSIS) + 2:
        return ""
    room = budget - len(ELLIPSIS)
    head = graphemes.floor(text, room - room // 2)
    tail = graphemes.ceiling(text, len(text) - room // 2, head)
    return text[:head].rstrip() + ELLIPSIS + text[tail:].lstrip()
