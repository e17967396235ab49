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
        self._room = work.room
        self._tokens = work.tokens
        self._frame = fit_lines(work.document.context, self._room, share=BUDGET_SHARE / 2)
        self._known: dict[int, Context] = {}
        """By where the last of the headings begins."""
        self._in_tables: dict[int, Context] = {}
        """By where the table begins."""

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

    def within(self, layout: SectionLayout, start: int) -> Context:
        """The context of a piece that starts at `start` in a section that is cut, perhaps in one of its tables."""
        table = layout.table_at(start)
        if table is None:
            return self.of(layout.headings, start)
        # Every heading of a section stands above its tables.
        known = self._in_tables.get(table.start)
        if known is None:
            known = self._in_tables[table.start] = self.write(layout.headings, table)
        return known

    def tokens_within(self, layout: SectionLayout, start: int) -> int:
        """About how many tokens that has."""
        return self.within(layout, start).tokens

    def path(self, headings: Sequence[Block]) -> tuple[str, ...]:
        """The titles of the headings."""
        return tuple([heading.title for heading in headings])

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
