"""Which elements of a page are open, and which end where a tag is met.

Every step takes a time that does not depend on how deep elements are nested, over all steps of a page.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from kbmesh_chunker.documents.html_elements import BARRIERS, HEADINGS


@dataclass(slots=True)
class _Scope:
    """What is open since a barrier: an element whose content ends nothing outside it."""

    barrier: str
    at: int
    counts: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Frame:
    """A list or a table that is open, and where its open parts are in the stack; -1 where none is."""

    at: int
    name: str
    part: int = -1
    """The item, or the row."""
    cell: int = -1
    header: bool = False
    """Whether rows are those of a `thead`."""


class Nesting:
    """The elements that are open."""

    def __init__(self) -> None:
        self._stack: list[tuple[str, Callable[[], None] | None]] = []
        self._scopes = [_Scope("", -1)]
        self.lists: list[Frame] = []
        self.tables: list[Frame] = []

    def __len__(self) -> int:
        return len(self._stack)

    def push(self, name: str, close: Callable[[], None] | None = None) -> None:
        """Opens an element. `close` is called when it ends."""
        counts = self._scopes[-1].counts
        counts[name] = counts.get(name, 0) + 1
        self._stack.append((name, close))
        if name in BARRIERS:
            self._scopes.append(_Scope(name, len(self._stack) - 1))

    def pop_to(self, depth: int) -> None:
        """Ends elements, the innermost first, until only `depth` are open."""
        stack = self._stack
        while len(stack) > depth:
            name, close = stack.pop()
            at = len(stack)
            if self._scopes[-1].at == at:
                self._scopes.pop()
            self._scopes[-1].counts[name] -= 1
            if self.lists:
                self._leave(self.lists, at)
            if self.tables:
                self._leave(self.tables, at)
            if close is not None:
                close()

    @staticmethod
    def _leave(frames: "list[Frame]", at: int) -> None:
        frame = frames[-1]
        if frame.at >= at:
            frames.pop()
            return
        if frame.part >= at:
            frame.part = -1
        if frame.cell >= at:
            frame.cell = -1

    def pop(self) -> None:
        """Ends the innermost element."""
        self.pop_to(len(self._stack) - 1)

    def has(self, name: str) -> bool:
        """Whether an element of the name is open that a tag here may end."""
        return self._scopes[-1].counts.get(name, 0) > 0

    def has_heading(self) -> bool:
        """Whether a heading is open."""
        return any(self.has(name) for name in HEADINGS)

    def within(self, name: str) -> bool:
        """Whether the innermost barrier has this name."""
        return self._scopes[-1].barrier == name

    def close(self, name: str) -> bool:
        """Ends the innermost element of the name and all in it. False where a tag here can end none."""
        if self.has(name):
            while self._stack[-1][0] != name:
                self.pop()
            self.pop()
            return True
        if self._scopes[-1].barrier == name != "":
            self.pop_to(self._scopes[-1].at)
            return True
        return False

    def end_tag(self, name: str) -> None:
        """Ends what an end tag ends; nothing, where it fits nothing."""
        if name in HEADINGS:
            name = next((other for other in HEADINGS if self.has(other)), name)
        if name == "table" and self.tables:
            self.pop_to(self.tables[-1].at)
        elif name in {"td", "th"} and self.tables:
            if self.tables[-1].cell >= 0:
                self.pop_to(self.tables[-1].cell)
        elif name == "tr" and self.tables:
            self.end_row()
        elif name in {"thead", "tbody", "tfoot"} and self.tables:
            self.end_section()
        elif name == "li" and self.list() is not None:
            self.end_part()
        else:
            self.close(name)

    def list(self) -> Frame | None:
        """The innermost list, unless a barrier stands between."""
        return self.lists[-1] if self.lists and self.lists[-1].at > self._scopes[-1].at else None

    def end_part(self) -> None:
        """Ends the open item of the innermost list."""
        inside = self.list()
        if inside is not None and inside.part >= 0:
            self.pop_to(inside.part)

    def end_row(self) -> None:
        """Ends the open row of the innermost table, or a caption."""
        table = self.tables[-1]
        if table.part >= 0:
            self.pop_to(table.part)
        elif self.within("caption") and self._scopes[-1].at > table.at:
            self.pop_to(self._scopes[-1].at)

    def end_section(self) -> None:
        """Ends what is open in the innermost table, but not the table."""
        self.pop_to(self.tables[-1].at + 1)
        self.tables[-1].header = False
