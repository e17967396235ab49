"""Plain blocks of Markdown, each found by one regular expression.

Most text is made of them: paragraphs, headings, fenced code, lists of such text, tables, quotes. What may be anything
else is not told to be a block here: then the scanner that goes line by line has to say. Whatever is told is what that
scanner would tell.
"""

import re
from collections.abc import Callable, Mapping
from functools import cache
from itertools import accumulate

from markdown_it.rules_block.html_block import HTML_SEQUENCES

from kbmesh_chunker.documents.block import Block, BlockKind, Parts
from kbmesh_chunker.documents.commonmark import MAX_BLOCK_LINES
from kbmesh_chunker.documents.heading_title import heading_title, without_closing

Found = tuple[Block | None, int] | None
"""A block and where the text goes on after it, without a block where that is none to be told; None: not known here."""

_REST = r"[^\n]*+\n"
_BLANKS = r"(?:[ \t]*+\n)"
# How a line of a paragraph may begin, after its indentation: certainly with nothing that begins another block, ends
# a table's header or turns the lines above into a heading.
_SIGN = (
    r"`(?!``)|~(?!~~)|\*\*?[^\s*]|__?[^\s_]|-[^\s\-|:]|\+\S|[0-9]++(?![.)][ \t\n])|\#{1,6}+[^\s#]|=[^\s=]|:(?!-)"
    r"|<https?:"
)
_ON = rf"(?:[^\s`~>*\-_+<#=0-9|:]|{_SIGN}|</?(?:a|b|br|code|em|i|img|kbd|strong|sub|sup|span)(?=[\s/>]))"
# And its first line, which also begins no definition of a link.
_FIRST = (
    r"(?:[^\s`~>*\-_+<#=0-9|:\[]|\[[^\[\]\\\n]*+(?:\[|\](?:(?!:)|:[ \t]*+[^\s<\"'()\\]++[ \t]++[^\s\"'(]))"
    rf"|{_SIGN})"
)
_MARK = r"(?:[-*+]|[0-9]{1,9}[.)])"
_QUOTE_TEXT = rf"> ?+ {{0,2}}{_FIRST}"
_ITEM_TEXT = rf"(?:(?:> ?+){{1,3}}+ {{0,2}})?+{_FIRST}"
"""Of an item: its text, or that of a quote in it."""
_ITEM = rf"{_MARK} {{1,4}}{_ITEM_TEXT}{_REST}"
# What certainly ends a paragraph, also one within an item.
_ENDS = (
    r"\Z|\#{1,6}[ \t\n]|`{3,}+[^`\n]*+\n|~~~"
    r"|<(?:!--|/?(?:center|details|div|h[1-6]|hr|ol|p|section|summary|table|ul)[ \t\n/>])"
)


def _fence_in(opening: str, indent: str) -> str:
    """Fenced code in an item, whose lines all have the indentation of the fence; without the end of its last line."""
    return (
        rf"{opening}```[^`|\n]*+\n(?:(?! *+```)(?:{indent}[^\n]*+|[ \t]*+)\n){{0,60}}+{indent}```[ \t]*+"
        rf"(?=\n(?:{_BLANKS}| *+(?:[-*+]|[0-9]{{1,9}}[.)]) |\Z))"
    )


_ITEM_FENCE = _fence_in(r"(?P<in> {2,}+)", r"(?P=in)")
# The same for where Python would lose count of a group: it may raise SystemError for one within a possessive loop.
_ANY_ITEM_FENCE = rf"(?=  )(?:{'|'.join(_fence_in(f' {{{width}}}', f' {{{width}}}') for width in range(2, 13))})"


def _list(first: str, following: str, other: str) -> re.Pattern[str]:
    """A list of plain items, by the mark of its first item, of those in the same column, and of another list."""
    line = (
        rf"(?:(?:{_BLANKS}{{0,3}}+(?:{following} {{1,4}}{_ITEM_TEXT}| ++{_ITEM[: -len(_REST)]})"
        rf"|[ \t]*+{_ON}|{_BLANKS}{{1,3}}+(?P=lead) {{2,}}+{_ITEM_TEXT}| {{2,}}+{_QUOTE_TEXT}){_REST})"
    )
    # A line without the indentation of an item's text, and without a mark.
    outside = rf"(?!(?P=lead)  ) {{0,3}}(?!{_MARK}[ \t\n])[^ \t\n]"
    ends = rf"{_ENDS}|>|{other}[ \t]++\S|{_BLANKS}++(?:\Z|{outside}|{other} )"
    return re.compile(
        rf"(?P<run>(?P<lead> {{0,3}}){first} {{1,4}}{_ITEM_TEXT}{_REST}(?:{line}|{_BLANKS}{{0,3}}+{_ANY_ITEM_FENCE}\n)"
        rf"{{0,{MAX_BLOCK_LINES}}}+(?:(?!{_BLANKS}{{0,3}}+[-*+0-9]){line})*+)(?P<end>(?={ends}))?"
    )


_BULLETS = _list(r"(?P<sign>[-*+])", r"(?P=sign)", r"(?:(?!(?P=sign))[-*+]|1[.)])")
_NUMBERS = _list(r"[0-9]{1,9}(?P<sign>[.)])", r"[0-9]{1,9}(?P=sign)", r"(?:[-*+]|1(?!(?P=sign))[.)])")
_FLAT_ITEM = re.compile(rf"^{_MARK} ", re.MULTILINE)
# What comes after the first line of a list, each with the end of the line before it.
_NESTED = re.compile(rf"\n(?: ++(?:{_MARK} |```|>)|[ \t]*+\n )")
_ITEM_MARK = r"(?P<indent> *+)(?:(?P<bullet>[-*+])|(?P<number>[0-9]{1,9})(?P<point>[.)])) +(?=\S)"
_FIRST_PART = re.compile(_ITEM_MARK)
_PART = re.compile(
    rf"\n(?:{_ITEM_MARK}|(?P<quote> ++)(?=>)|[ \t]*+\n(?P<paragraph> ++)(?!{_MARK} |```)(?=\S)|{_ITEM_FENCE})"
)
_FENCE_IN_LIST = re.compile(rf"\n{_ITEM_FENCE}")
_MAX_DEPTH = 6
_MOST_LINES = re.compile(rf"(?:[^\n]*+\n){{{MAX_BLOCK_LINES}}}")
_ITEM_SIGN = re.compile(r"^[-*+0-9]", re.MULTILINE)
_QUOTED = re.compile(r"^>", re.MULTILINE)

_ON_TO_END = (
    rf"{_REST}(?:[ \t]*+{_ON}{_REST}){{0,{MAX_BLOCK_LINES - 2}}}+"
    rf"(?:(?={_BLANKS}| {{0,3}}(?:{_ENDS}|>|[-*+][ \t]++\S|1[.)][ \t]++\S))|(?P<under>=++|-++)[ \t]*+\n)"
)
_PARAGRAPH = re.compile(rf" {{0,3}}{_FIRST}{_ON_TO_END}")
_TAGGED = re.compile(rf"<{_ON_TO_END}")
"""A paragraph that begins with a tag within a line."""
_HEADING = re.compile(r" {0,3}(#{1,6}+)(?:\n|(?=[ \t])([^\n|]*+\n|[^\n]*+\n(?![ \t]*+[-|:])))")
_RULE = re.compile(r"([*_-])[ \t]*+(?:\1[ \t]*+){2,}+\n")
_FENCE = re.compile(r" {0,3}(?:(?P<ticks>`{3,40}+)(?P<info>[^`|\n]*+)|(?P<waves>~{3,40}+)(?P<after>[^~|\n]*+))\n")
_TABLE = re.compile(
    rf"(?P<header>\|[^\n\\]*\|[ \t]*+\n)(?P<dashes>\|(?:[ \t]*+:?+-++:?+[ \t]*+\|)++)[ \t]*+\n"
    rf"(?P<rows>(?:\|{_REST})*+)(?={_BLANKS}|{_ENDS}|>)"
)
_ROW = re.compile(r"^", re.MULTILINE)
_QUOTE = re.compile(
    rf"> {{0,3}}{_FIRST}{_REST}(?:>?+[ \t]*+{_ON}{_REST}|(?:>[ \t]*+\n){{1,3}}+> {{0,3}}{_FIRST}{_REST})"
    rf"{{0,{MAX_BLOCK_LINES}}}+(?:>[ \t]*+\n){{0,3}}+(?P<end>(?={_BLANKS}|{_ENDS}))?"
)
_QUOTE_PART = re.compile(r"^>[ \t]*+\n(>)[ \t]*+\S", re.MULTILINE)
_DEFINITION = re.compile(
    r"\[(?=[ \t]*+[^\s\]])[^\[\]\\|\n]++\]:[ \t]*+(?:https?://[!#$%&*-;=?-\[\]-{}~]++|[A-Za-z0-9_./#?=-]++)"
    r"(?:[ \t]++\"[^\"\\|\n]*+\")?+[ \t]*+\n(?![ \t]*+[\"'(])"
)
_CODE = re.compile(rf"(?:{_BLANKS}*+(?: {{4}}| {{0,3}}\t)[ \t]*+[^ \t\n]{_REST})++")
_INDENT = re.compile(r" *+")
_FILLED = re.compile(r"(?:[ \t]*+[^ \t\n][^\n]*+\n)++")
_NO_LINE = ""
_INDENTED = frozenset("#`~-*+0123456789")
_MAY_DELIMIT = re.compile(r"[ \t]*+[-|:]")
_SPACE = re.compile(rf"{_BLANKS}++")


class PlainBlocks:
    """Looks for them in one text, whose lines end with a line feed, also the last."""

    def __init__(self, text: str, *, joined: bool = False) -> None:
        """Headings of one level without a title which follow each other are told as one where they are to be
        `joined`."""
        self._text = text
        self._joined = joined
        self._no_list_before = 0
        """Where lists are not looked for again, so that nothing is looked through twice."""
        self._finders: Mapping[str, Callable[[int], Found]] = {
            "#": self._heading,
            "`": self._fence,
            "~": self._fence,
            ">": self._quote,
            "|": self._table,
            "<": self._html,
            "[": self._definition,
            "_": self._rule,
            "-": self._bullets,
            "*": self._bullets,
            "+": self._bullets,
            "\t": self._code,
            " ": self._indented,
        } | dict.fromkeys("0123456789", self._numbers)

    def at(self, start: int) -> Found:
        """The block that begins with the line at `start`, which is not empty."""
        return self._finders.get(self._text[start], self._paragraph)(start)

    def skip_empty(self, start: int) -> int:
        """The first line from `start` on that is not empty."""
        found = _SPACE.match(self._text, start)
        return found.end() if found else start

    def _indented(self, start: int) -> Found:
        found = _INDENT.match(self._text, start)
        first = found.end() if found else start
        sign = self._text[first]
        if first - start >= 4 or sign == "\t":
            return self._code(start)
        if sign in _INDENTED:
            return self._finders[sign](start)
        return self._paragraph(start)

    def _code(self, start: int) -> Found:
        found = _CODE.match(self._text, start)
        if found is None:
            return None
        return Block(BlockKind.CODE, start, found.end(), 0, "", "", self._code_lines), found.end()

    def _paragraph(self, start: int, pattern: re.Pattern[str] = _PARAGRAPH) -> Found:
        found = pattern.match(self._text, start)
        if found is None:
            return None
        end = found.end()
        under = found["under"]
        if under is None:
            return Block(BlockKind.PARAGRAPH, start, end), end
        content = self._text[start : found.start("under")]
        if "|" in content:
            # It may be a table of one column.
            return None
        return Block(BlockKind.HEADING, start, end, 1 if under[0] == "=" else 2, heading_title(content)), end

    def _heading(self, start: int) -> Found:
        found = _HEADING.match(self._text, start)
        if found is None:
            return self._paragraph(start)
        marks, content = found.groups()
        end = found.end()
        title = heading_title(without_closing(content[:-1]) if "#" in content else content) if content else ""
        if not title and self._joined and (more := _untitled(marks).match(self._text, end)) is not None:
            end = more.end()
        return Block(BlockKind.HEADING, start, end, len(marks), title), end

    def _rule(self, start: int) -> Found:
        found = _RULE.match(self._text, start)
        if found is None:
            return self._paragraph(start)
        return Block(BlockKind.OTHER, start, found.end()), found.end()

    def _fence(self, start: int) -> Found:
        text = self._text
        found = _FENCE.match(text, start)
        if found is None:
            return self._paragraph(start)
        ticks, info, waves, after = found.groups()
        marks = ticks or waves
        info = info or after
        closing = _closing(marks).search(text, found.end() - 1)
        if closing is None:
            return None
        end = closing.end()
        language = info.split(maxsplit=1)[0] if info and not info.isspace() else ""
        return Block(BlockKind.CODE, start, end, 0, "", language, self._code_lines), end

    def _code_lines(self, block: Block) -> Parts:
        text, start, last = self._text, block.start, block.end - 1
        second = text.find("\n", start, last) + 1
        if text.find("\n", second, last) < 0:
            return ((second, 1),) if second else ()
        lines = text[start:last].split("\n")
        # Those after an empty line are more welcome.
        strengths = [1 if line and not line.isspace() else 2 for line in lines]
        starts = accumulate(map(len, lines), _next_line, initial=start)
        next(starts)
        return tuple(zip(starts, strengths[:-1], strict=False))

    def _bullets(self, start: int) -> Found:
        return self._list(start, _BULLETS) or self._rule(start)

    def _numbers(self, start: int) -> Found:
        return self._list(start, _NUMBERS) or self._paragraph(start)

    def _list(self, start: int, pattern: re.Pattern[str]) -> Found:
        if start < self._no_list_before:
            return None
        text = self._text
        found = pattern.match(text, start)
        if found is None:
            return None
        run = end = found.end("run")
        divided = self._division(start, end, _ITEM_SIGN)
        if divided:
            end = divided
        elif found["end"] is None:
            self._no_list_before = run
            return None
        parts: Parts | Callable[[Block], Parts] | None = self._flat_items
        if found["lead"] or _NESTED.search(text, start, end):
            parts = self._parts(start, end)
        if parts is None:
            self._no_list_before = run
            return None
        end = self.skip_empty(end)
        return Block(BlockKind.LIST, start, end, 0, "", "", parts, 0, self._item_fences), end

    def _item_fences(self, block: Block) -> tuple[Block, ...]:
        text, start, end = self._text, block.start, block.end
        if text.find("```", start, end) < 0:
            return ()
        found = []
        for fence in _FENCE_IN_LIST.finditer(text, start, end):
            info = text[fence.end("in") + 3 : text.index("\n", fence.end("in"))].split(maxsplit=1)
            language = info[0] if info else ""
            closed = min(fence.end() + 1, end)
            found.append(Block(BlockKind.CODE, fence.start("in"), closed, 0, "", language, self._code_lines))
        return tuple(found)

    def _flat_items(self, block: Block) -> Parts:
        return tuple([(found.start(), 3) for found in _FLAT_ITEM.finditer(self._text, block.start, block.end)])

    def _division(self, start: int, end: int, before: re.Pattern[str]) -> int:
        """Where a list or quote that has too many lines is divided; 0 where it is not."""
        if self._text.count("\n", start, end) < MAX_BLOCK_LINES:
            return 0
        most = _MOST_LINES.match(self._text, start, end)
        found = before.search(self._text, most.end(), end + 1) if most else None
        return found.start() if found else 0

    def _parts(self, start: int, end: int) -> Parts | None:
        """Where items and their paragraphs begin; None where a line may be of another list, or code."""
        text = self._text
        first = _FIRST_PART.match(text, start, end)
        if first is None:
            return None
        parts = [(start, 3)]
        items = [(first.end() - start, first["bullet"] or first["point"])]
        # Of each item that is open: the column of its content, and the sign of its list.
        quoted = text[first.end()] == ">"
        for found in _PART.finditer(text, first.end(), end):
            below = found["paragraph"] or found["quote"] or found["in"]
            if below is not None:
                column = len(below)
                while items and items[-1][0] > column:
                    items.pop()
                    quoted = False
                if not items or column - items[-1][0] >= 4:
                    return None
                # A line that goes on with a quote begins no part.
                if not quoted or not found["quote"]:
                    begins = found.start("in" if found["in"] else "quote" if found["quote"] else "paragraph")
                    parts.append((begins, 2 if len(items) == 1 else 1))
                quoted = found["in"] is None and text[found.end()] == ">"
                continue
            quoted = text[found.end()] == ">"
            column = len(found["indent"])
            sign = found["bullet"] or found["point"]
            outer, inner = (items[-2][0] if len(items) > 1 else 0), (items[-1][0] if items else 0)
            if column >= inner:
                # A list in an item goes on in its column, and numbers end a paragraph only from 1 on.
                if column - inner >= 4 or (items and found["number"] and int(found["number"]) != 1):
                    return None
            else:
                if column - outer >= 4:
                    return None
                while items and items[-1][0] > column:
                    last = items.pop()
                if column - (items[-1][0] if items else 0) >= 4 or (not items and last[1] != sign):
                    return None
            begins = found.start("indent")
            items.append((found.end() - begins, sign))
            if len(items) > _MAX_DEPTH:
                return None
            parts.append((begins, max(1, 4 - len(items))))
        return tuple(parts)

    def _table(self, start: int) -> Found:
        found = _TABLE.match(self._text, start)
        if found is None or found["header"].count("|") != found["dashes"].count("|"):
            return None
        first, end = found.span("rows")
        return Block(BlockKind.TABLE, start, end, 0, "", "", self._rows, first), end

    def _rows(self, block: Block) -> Parts:
        rows = _ROW.finditer(self._text, block.header_end, block.end)
        return tuple([(row.start(), 2) for row in rows if row.start() < block.end])

    def _quote(self, start: int) -> Found:
        text = self._text
        found = _QUOTE.match(text, start)
        if found is None:
            return None
        end = found.end()
        divided = self._division(start, end, _QUOTED)
        if divided:
            end = divided
        elif found["end"] is None:
            return None
        return Block(BlockKind.QUOTE, start, end, 0, "", "", self._quoted), end

    def _quoted(self, block: Block) -> Parts:
        parts = _QUOTE_PART.finditer(self._text, block.start, block.end)
        return ((block.start, 3), *[(part.start(1), 3) for part in parts])

    def _definition(self, start: int) -> Found:
        found = _DEFINITION.match(self._text, start)
        return (None, found.end()) if found else self._paragraph(start)

    def _html(self, start: int) -> Found:
        text = self._text
        line_end = text.find("\n", start)
        line = text[start:line_end]
        if "|" in line and _MAY_DELIMIT.match(text, line_end + 1):
            return None
        closing = next((closing for opening, closing, _ in HTML_SEQUENCES if opening.search(line)), None)
        if closing is None:
            return self._paragraph(start, _TAGGED)
        if closing.search(_NO_LINE):
            filled = _FILLED.match(text, start)
            end = filled.end() if filled else 0
        else:
            closed = closing.search(text, start)
            end = text.find("\n", closed.start()) + 1 if closed else 0
        return (Block(BlockKind.OTHER, start, end), end) if end else None


@cache
def _untitled(marks: str) -> re.Pattern[str]:
    """Headings of the same level without a title."""
    return re.compile(rf"(?:{_BLANKS}*+{marks}[ \t]*+\n)++")


@cache
def _closing(marks: str) -> re.Pattern[str]:
    """What closes a fence; there are few marks that open one."""
    return re.compile(rf"\n {{0,3}}{marks}{marks[0]}*+[ \t]*+\n")


def _next_line(position: int, length: int) -> int:
    return position + length + 1
