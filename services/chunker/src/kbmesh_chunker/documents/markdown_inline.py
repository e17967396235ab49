"""The text of one block: words, links and code, with the line of the source of each."""

import re
from dataclasses import dataclass, field

from kbmesh_chunker.documents.markdown_escape import code_span, escape_address, escape_heading

MAX_ADDRESS = 300
"""Targets of links that are longer are left out: they are of use to a machine alone."""

Piece = tuple[str, int]
"""A stretch of text without a line end, and the line of the source where it stands."""

_SPACE = re.compile(r"[ \t\r\n\f\v\xa0]+")
_UNSEEN = re.compile("[\u00ad\u2060\ufeff]|(?<![\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff])\u200b")
_MAY_BE_UNSEEN = re.compile("[\u00ad\u200b\u2060\ufeff]")
# Scripts without spaces: a line end within them is none (CSS Text 3, segment break transformation rules).
_EAST_ASIAN = re.compile("[\u2e80-\u312f\u3190-\ua4cf\uf900-\ufaff\ufe30-\ufe4f\uff01-\uffdc\U00020000-\U0003ffff]")


@dataclass(slots=True)
class _Mark:
    """A link or the like, from where it begins in the current block."""

    kind: str
    begin: int
    address: str = ""


@dataclass(kw_only=True)
class Inline:
    """Takes the text of a block in the order of the source."""

    heading: bool = False
    """Whether it is that of a heading, whose title is read by the rules of Markdown."""
    _parts: list[Piece] = field(default_factory=list)
    _pending: str = ""
    _marks: list[_Mark] = field(default_factory=list)
    _raised: bool = False

    def text(self, text: str, line: int) -> None:
        """Text without a line end."""
        if not text.isascii() and _MAY_BE_UNSEEN.search(text):
            text = _UNSEEN.sub("", text)
        text = _SPACE.sub(" ", text)
        if text.startswith(" "):
            self._pending = self._pending or " "
            text = text[1:]
        if not text:
            return
        after = text.endswith(" ")
        if after:
            text = text[:-1]
        if self._raised:
            self._raised = False
            text = f"^{text}" if text[0] in "0123456789-+−" and not self._pending else text
        if self.heading and not self._in_code:
            text = escape_heading(text)
        self._append(text, line)
        if after:
            self._pending = " "

    def _append(self, text: str, line: int) -> None:
        parts = self._parts
        if self._pending and parts and parts[-1][0] != "\n":
            joined = self._pending == "\n" and _EAST_ASIAN.match(parts[-1][0][-1]) and _EAST_ASIAN.match(text)
            if not joined:
                text = " " + text
        self._pending = ""
        parts.append((text, line))

    def line_end(self) -> None:
        """The source goes on in the next line."""
        self._pending = "\n"

    def space(self) -> None:
        """What follows is a word of its own."""
        self._pending = self._pending or " "

    def line_break(self, line: int) -> bool:
        """What follows stands on a line of its own. False where that line would be the second in a row."""
        if self.heading:
            self.space()
        elif self._parts and self._parts[-1][0] == "\n":
            return False
        elif self._parts:
            self._pending = ""
            self._parts.append(("\n", line))
        return True

    def literal(self, text: str, line: int) -> None:
        """Markup."""
        self._append(text, line)

    @property
    def last(self) -> str:
        """The last character of the current block; empty where a white space or nothing stands before."""
        return self._parts[-1][0][-1] if self._parts and not self._pending else ""

    @property
    def _in_code(self) -> bool:
        return any(mark.kind == "code" for mark in self._marks)

    def begin_mark(self, kind: str, address: str = "") -> bool:
        """Begins `code`, a `link` or `struck` text. One within another of its kind is none: False."""
        if any(mark.kind == kind for mark in self._marks):
            return False
        self._marks.append(_Mark(kind, len(self._parts), address))
        return True

    def raise_next(self) -> None:
        """What follows is raised. A number is then set apart from the word or number that it is raised above."""
        self._raised = self.last.isalnum()

    def end_mark(self, kind: str) -> None:
        """Ends what was begun, if it was."""
        for place in range(len(self._marks) - 1, -1, -1):
            if self._marks[place].kind == kind:
                self._write_mark(self._marks.pop(place))
                return

    def _write_mark(self, mark: _Mark) -> bool:
        parts, begin = self._parts, mark.begin
        while begin < len(parts) and parts[begin][0] == "\n":
            begin += 1
        end = len(parts)
        while end > begin and parts[end - 1][0] == "\n":
            end -= 1
        if begin >= end:
            return False
        match mark.kind:
            case "code":
                before, after = code_span("".join(text for text, _ in parts[begin:end]))
            case "struck":
                before, after = "~~", "~~"
            case _:
                before, after = "[", f"]({escape_address(mark.address)})"
                address = mark.address.removeprefix("mailto:").removeprefix("tel:")
                shown = "".join(text for text, _ in parts[begin:end]).strip() if len(address) <= MAX_ADDRESS else ""
                if shown.rstrip("/") == address.rstrip("/") or len(mark.address) > MAX_ADDRESS:
                    return True
        text, line = parts[begin]
        bare = text.lstrip(" ") if begin or text.startswith(" ") else text
        parts[begin] = (text[: len(text) - len(bare)] + before + bare, line)
        text, line = parts[end - 1]
        parts[end - 1] = (text + after, line)
        return True

    def take(self) -> list[list[Piece]]:
        """The lines of the block, which begins anew."""
        self._pending, self.heading, self._raised = "", False, False
        if self._marks:
            self._cut_marks()
        parts, self._parts = self._parts, []
        return _lines(parts) if parts else []

    def _cut_marks(self) -> None:
        """Marks do not reach over blocks. A link is written in the first block that it holds."""
        for mark in reversed(self._marks):
            if self._write_mark(mark) and mark.kind == "link":
                mark.kind = "done"
            mark.begin = 0
        self._marks = [mark for mark in self._marks if mark.kind != "done"]


def _lines(parts: list[Piece]) -> list[list[Piece]]:
    """The lines of a block, those that are empty left out."""
    lines: list[list[Piece]] = [[]]
    for part in parts:
        if part[0] == "\n":
            lines.append([])
        else:
            lines[-1].append(part)
    return [line for line in lines if line]
