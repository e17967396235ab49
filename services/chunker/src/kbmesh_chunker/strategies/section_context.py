"""What is put before the pieces of a section: the headings above it, and the header of a table that was cut."""

import re
from collections.abc import Sequence

from kbmesh_chunker.context import BUDGET_SHARE, SEPARATOR, TABLE_BUDGET_SHARE, Context, fit_lines, write_context
from kbmesh_chunker.documents.block import Block
from kbmesh_chunker.strategies.port import Work
from kbmesh_chunker.strategies.section_layout import SectionLayout, Table

_PADDING = re.compile(r"[ \t]{2,}")
_DASHES = re.compile(r"-{4,}")
_NO_HEADING = -1


class SectionContexts:
    """The contexts of one document's pieces. What stands below the same headings has the same one."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._room = work.room
        self._tokens = work.tokens
        self._frame = fit_lines(work.document.context, work.room, share=BUDGET_SHARE / 2)
        self._known: dict[int, Context] = {}

    def of(self, headings: Sequence[Block], start: int) -> Context:
        """The context of a piece that starts at `start` below `headings`, outermost first."""
        # A heading inside the piece needs no repeating.
        count = len(headings)
        while count and headings[count - 1].start >= start:
            count -= 1
        last = headings[count - 1].start if count else _NO_HEADING
        known = self._known.get(last)
        if known is None:
            known = self._known[last] = self.write(headings[:count])
        return known

    def within(self, headings: Sequence[Block], layout: SectionLayout) -> "ContextsWithin":
        """The contexts of the pieces of a section that is cut."""
        return ContextsWithin(self, headings, layout)

    def write(self, headings: Sequence[Block], table: Table | None = None) -> Context:
        """The context of what stands below these headings, and in a table below its header."""
        rows = _DASHES.sub("---", _PADDING.sub(" ", table.header)) if table is not None else ""
        titles = [heading.title for heading in headings]
        full = "\n".join(part for part in (SEPARATOR.join(filter(None, titles)), rows) if part)
        tokens = 0
        if self._tokens is not None:
            spans = [(heading.start, heading.end) for heading in headings]
            if table is not None:
                spans.append((table.start, table.header_end))
            tokens = sum(self._tokens.length(start, end) for start, end in spans) + len(spans)
        context = full
        if self._exceeds(full, tokens, TABLE_BUDGET_SHARE if rows else BUDGET_SHARE):
            context = write_context(titles, rows, self._budget(full, tokens))
        tokens = -(-tokens * len(context) // max(1, len(full)))
        frame = self._frame
        text = "\n".join(part for part in (frame.text, context) if part) if frame.text else context
        return Context(text=text, tokens=frame.tokens + tokens)

    def _exceeds(self, context: str, tokens: int, share: float) -> bool:
        """Whether a context takes more than its share of a chunk, in characters or in tokens."""
        room = self._room
        return len(context) > room.characters * share or tokens > room.tokens * share

    def _budget(self, context: str, tokens: int) -> int:
        """To how many characters a context must be trimmed."""
        room = self._room
        budget = min(float(len(context)), room.characters * BUDGET_SHARE)
        if tokens:
            budget = min(budget, len(context) * room.tokens * BUDGET_SHARE / tokens)
        return int(budget)


class ContextsWithin:
    """The contexts of the pieces of one section, some of which may begin in a table."""

    def __init__(self, contexts: SectionContexts, headings: Sequence[Block], layout: SectionLayout) -> None:
        self._contexts = contexts
        self._headings = headings
        self._layout = layout
        self._known: dict[tuple[int, int], Context] = {}

    def text(self, start: int) -> str:
        """The context of a piece that starts at `start`."""
        return self._at(start).text

    def tokens(self, start: int) -> int:
        """About how many tokens it has."""
        return self._at(start).tokens

    def _at(self, start: int) -> Context:
        table = self._layout.table_at(start)
        if table is None:
            return self._contexts.of(self._headings, start)
        above = [heading for heading in self._headings if heading.start < start]
        key = (len(above), table.start)
        if key not in self._known:
            self._known[key] = self._contexts.write(above, table)
        return self._known[key]
