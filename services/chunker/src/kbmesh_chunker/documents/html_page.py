"""A page: the tokens of its source, put into the blocks of a Markdown text."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kbmesh_chunker.documents.html_elements import (
    BLOCKS,
    CLOSES_P,
    CODE,
    HEADINGS,
    MAY_BE_LEFT_OUT,
    SECTIONS,
    SHOWN_INPUTS,
    STRUCK,
    TRANSPARENT,
    VOID,
    Attributes,
    furniture,
    heading_level,
    hidden,
    language,
    number,
    shown_as_block,
)
from kbmesh_chunker.documents.html_nesting import Frame, Nesting
from kbmesh_chunker.documents.html_tokens import Token, TokenKind, tokens, unescape
from kbmesh_chunker.documents.markdown_writer import Container, MarkdownWriter
from kbmesh_chunker.documents.reading import Reading

_PERMALINKS = frozenset({"¶", "#", "§", "🔗", "\uf0c1", ""})
_CHECK_EVERY = 5_000
_LOOK_AHEAD = 100_000


@dataclass(frozen=True, kw_only=True)
class PageOptions:
    """How a page is read."""

    keep_all: bool = False
    """Whether navigation and the like stay in the text."""
    main: bool = False
    """Whether the page marks its main content."""
    xml: bool = False
    """Whether a tag that ends in `/>` is closed, as in XHTML."""
    filename: str = ""
    """Links to it are links within the page."""


class Page:
    """Reads a source once."""

    def __init__(self, source: str, reading: Reading, options: PageOptions) -> None:
        self.writer = MarkdownWriter(reading=reading)
        self.title = ""
        self.language = ""
        self.canonical = ""
        self.metas: dict[str, str] = {}
        self.left_out: Counter[str] = Counter()
        """Characters of what was left out, by what it was."""
        self._source = source
        self._reading = reading
        self._options = options
        self._open = Nesting()
        self._line = 1
        self._counted = 0
        self._skipped_at = -1
        self._skipped = ""
        self._sections = 0
        self._first_of_pre = False
        self._languages: list[str] = []
        self._aid: list[str] | None = None
        """What is read aloud of a ruby, which is written after the text that it belongs to."""
        self._in_aid = False
        self._permalink: list[tuple[str, int]] | None = None
        self._items: dict[int, Container | None] = {}
        """The open item of each definition list, by its place in the stack."""

    def read(self) -> None:
        """Reads the source from its beginning to its end."""
        handlers: Mapping[TokenKind, Callable[[Token], None]] = {
            TokenKind.TEXT: self._text,
            TokenKind.START: self._start,
            TokenKind.END: self._end,
            TokenKind.RAW: self._raw,
            TokenKind.COMMENT: self._comment,
        }
        for count, token in enumerate(tokens(self._source)):
            if not count % _CHECK_EVERY:
                self._reading.checkpoint()
            handlers[token.kind](token)
        self._end_permalink()
        self._open.pop_to(0)

    def _line_at(self, position: int) -> int:
        self._line += self._source.count("\n", self._counted, position)
        self._counted = position
        return self._line

    # Text

    def _text(self, token: Token) -> None:
        raw = self._source[token.start : token.end]
        if token.name == "title":
            if not self.title and not self._open.within("svg"):
                self.title = " ".join(unescape(raw).split())
        elif self._skipped_at >= 0:
            if self._skipped and not raw.isspace():
                self.left_out[self._skipped] += len(" ".join(raw.split()))
        elif self._in_aid and self._aid is not None:
            self._aid.append(" ".join(unescape(raw).split()))
        elif self._permalink is not None:
            self._permalink.append((raw, self._line_at(token.start)))
        else:
            line = self._line_at(token.start)
            if self._first_of_pre:
                self._first_of_pre = False
                if raw.startswith("\n"):
                    raw, line = raw[1:], line + 1
            self._write(raw, line)

    def _write(self, raw: str, line: int, *, references: bool = True) -> None:
        writer = self.writer
        if "\n" not in raw:
            self._write_part(raw, line, references=references)
            return
        for count, part in enumerate(raw.split("\n")):
            if count:
                writer.line_end(line + count - 1)
            if part:
                self._write_part(part, line + count, references=references)

    def _write_part(self, part: str, line: int, *, references: bool) -> None:
        if references and "&" in part:
            part = unescape(part)
            if "\n" in part or "\r" in part:
                for count, inner in enumerate(part.replace("\r\n", "\n").replace("\r", "\n").split("\n")):
                    if count:
                        self.writer.line_end(line)
                    self.writer.text(inner, line)
                return
        self.writer.text(part, line)

    def _raw(self, token: Token) -> None:
        raw = self._source[token.start : token.end]
        if token.name in {"script", "style", "iframe", "noembed", "noframes"}:
            if raw.strip():
                self.left_out[token.name if token.name in {"script", "style"} else "frame"] += len(raw)
        elif self._skipped_at >= 0:
            if self._skipped:
                self.left_out[self._skipped] += len(raw)
        else:
            inner = raw[9:-3] if token.name.startswith("!") else raw
            self._write(inner, self._line_at(token.start), references=False)

    def _comment(self, token: Token) -> None:
        # A comment that is never closed hides the rest of the page.
        if token.end == len(self._source) and self._source.startswith("<!--", token.start):
            rest = self._source[token.start + 4 :]
            if rest.strip() and not rest.endswith(("-->", "--!>")):
                self.left_out["unclosed comment"] += len(rest)

    # Tags

    def _start(self, token: Token) -> None:
        name = token.name.removeprefix("html:").removeprefix("xhtml:") or token.name
        attributes: Attributes = token.attributes or {}
        self._first_of_pre = False
        if self._permalink is not None:
            self._end_permalink()
        if name in TRANSPARENT:
            if name == "html":
                self.language = self.language or attributes.get("lang", "") or attributes.get("xml:lang", "")
            return
        if name in VOID:
            self._void(name, attributes, token)
            return
        if self._skipped_at < 0:
            self._make_room(name)
            self._enter(name, attributes, token)
        else:
            self._open.push(name)
        if token.closed and (self._options.xml or self._open.within("svg") or self._open.within("math")):
            self._open.pop()

    def _enter(self, name: str, attributes: Attributes, token: Token) -> None:
        if attributes or name in MAY_BE_LEFT_OUT:
            what = hidden(name, attributes) or self._furniture(name, attributes, token)
            if what:
                self._leave_out(name, what)
                return
        level = heading_level(name, attributes)
        special = _SPECIAL.get(name)
        if level:
            self.writer.heading(level)
            self._open.push(name, self.writer.end_block)
        elif special is not None:
            special(self, name, attributes)
        elif name in BLOCKS or (attributes and shown_as_block(attributes)):
            self._enter_block(name, attributes)
        else:
            self._open.push(name)

    def _make_room(self, name: str) -> None:
        """Ends what a start tag ends without saying so."""
        opened = self._open
        if name in CLOSES_P and opened.has("p"):
            opened.close("p")
        if name in HEADINGS:
            for other in HEADINGS:
                if opened.has(other):
                    opened.close(other)
        elif name in {"li", "dt", "dd"}:
            if opened.list() is not None:
                opened.end_part()
            elif opened.has(name):
                opened.close(name)
        elif opened.tables and name in {"tr", "td", "th", "thead", "tbody", "tfoot"}:
            table = opened.tables[-1]
            if name in {"td", "th"}:
                if table.cell >= 0:
                    opened.pop_to(table.cell)
                elif opened.within("caption"):
                    opened.end_row()
                if table.part < 0:
                    self._enter_row("tr", {})
            elif name == "tr":
                opened.end_row()
            else:
                opened.end_section()
        elif name in {"option", "optgroup"} and opened.has("option"):
            opened.close("option")
        elif name in {"rt", "rp"}:
            for other in ("rt", "rp"):
                if opened.has(other):
                    opened.close(other)

    def _furniture(self, name: str, attributes: Attributes, token: Token) -> str:
        if self._options.keep_all:
            return ""
        what = furniture(name, attributes, of_page=self._options.main and not self._sections)
        if what == "page header":
            # The name of the page itself may stand in its header.
            end = self._source.find(f"</{name}", token.end, token.end + _LOOK_AHEAD)
            if "<h1" in self._source[token.end : max(end, token.end)].lower():
                return ""
        return what

    def _leave_out(self, name: str, what: str) -> None:
        if name in BLOCKS:
            self.writer.end_block()
        at = len(self._open)
        self._skipped_at, self._skipped = at, "" if what == "alternative" else what
        self._open.push(name, self._end_skipping)

    def _end_skipping(self) -> None:
        self._skipped_at = -1

    def _end(self, token: Token) -> None:
        name = token.name.removeprefix("html:").removeprefix("xhtml:") or token.name
        self._first_of_pre = False
        if name == "br":
            self._void("br", {}, token)
            return
        if self._permalink is not None:
            self._end_permalink(inside=True)
        if name == "p" and self._skipped_at < 0 and not self._open.has("p"):
            self.writer.end_block()
        elif name not in TRANSPARENT:
            self._open.end_tag(name)

    def _void(self, name: str, attributes: Attributes, token: Token) -> None:
        match name:
            case "meta":
                key = attributes.get("name") or attributes.get("property") or attributes.get("itemprop") or ""
                self.metas.setdefault(key.strip().lower(), " ".join(attributes.get("content", "").split()))
            case "link" if "canonical" in attributes.get("rel", "").lower().split():
                self.canonical = self.canonical or attributes.get("href", "").strip()
            case _ if self._skipped_at >= 0 or hidden(name, attributes):
                return
            case "br":
                self.writer.line_break(self._line_at(token.start))
            case "hr":
                self._make_room("hr")
                self.writer.end_block()
            case "img" | "area":
                self._image(attributes, self._line_at(token.start))
            case "input":
                shown = attributes.get("value", "").strip()
                if shown and attributes.get("type", "").strip().lower() in SHOWN_INPUTS:
                    self.writer.space()
                    self._write(" ".join(shown.split()), self._line_at(token.start), references=False)
                    self.writer.space()
            case "input" | "frame":
                self.writer.space()

    def _image(self, attributes: Attributes, line: int) -> None:
        described = " ".join(attributes.get("alt", "").split())
        if described:
            self.writer.image(described, line)

    # Elements

    def _enter_block(self, name: str, attributes: Attributes) -> None:
        self.writer.end_block()
        if name in SECTIONS:
            self._sections += 1
            self._open.push(name, self._end_of_section)
            return
        named = language(attributes) if name == "div" and attributes else ""
        if named:
            self._languages.append(named)
            self._open.push(name, self._end_of_language)
            return
        self._open.push(name, self.writer.end_block)

    def _end_of_section(self) -> None:
        self._sections -= 1
        self.writer.end_block()

    def _end_of_language(self) -> None:
        self._languages.pop()
        self.writer.end_block()

    def _enter_quote(self, name: str, _attributes: Attributes) -> None:
        quote = self.writer.open_quote()
        self._sections += 1
        self._open.push(name, lambda: self._end_of_quote(quote))

    def _end_of_quote(self, quote: Container | None) -> None:
        self._sections -= 1
        self.writer.close(quote)

    def _enter_list(self, name: str, attributes: Attributes) -> None:
        self.writer.open_list(ordered=name == "ol", start=number(attributes.get("start", ""), 1))
        at = len(self._open)
        self._open.push(name, lambda: self._end_of_list(at))
        self._open.lists.append(Frame(at, name))

    def _end_of_list(self, at: int) -> None:
        self.writer.close(self._items.pop(at, None))
        self.writer.close_list()

    def _enter_item(self, name: str, attributes: Attributes) -> None:
        inside = self._open.list()
        value = number(attributes["value"], 1) if "value" in attributes else None
        at = len(self._open)
        if name == "li" or inside is None:
            item = self.writer.open_item(value) if name == "li" else None
            self._open.push(name, lambda: self.writer.close(item))
        else:
            # A term and its descriptions are one item.
            if inside.at not in self._items or name == "dt":
                self.writer.close(self._items.get(inside.at))
                self._items[inside.at] = self.writer.open_item()
            else:
                self.writer.stay_close()
            self._open.push(name, self.writer.end_block)
        if inside is not None:
            inside.part = at

    def _enter_pre(self, name: str, attributes: Attributes) -> None:
        self.writer.open_code(self._languages[-1] if self._languages else "")
        named = language(attributes)
        if named:
            self.writer.name_language(named)
        self._first_of_pre = True
        self._open.push(name, self.writer.close_code)

    def _enter_code(self, name: str, attributes: Attributes) -> None:
        named = language(attributes) if attributes else ""
        if named:
            self.writer.name_language(named)
        self._enter_mark(name, "code")

    def _enter_struck(self, name: str, _attributes: Attributes) -> None:
        self._enter_mark(name, "struck")

    def _enter_mark(self, name: str, kind: str) -> None:
        if self.writer.begin_mark(kind):
            self._open.push(name, lambda: self.writer.end_mark(kind))
        else:
            self._open.push(name)

    def _enter_link(self, name: str, attributes: Attributes) -> None:
        self.writer.end_mark("link")
        address = attributes.get("href", "").strip(" \t\r\n\f\"'")
        target, _, fragment = address.partition("#")
        here = not target or target.rpartition("/")[2] == self._options.filename != ""
        if here and fragment and (self._open.has_heading() or self._open.has("dt")):
            self._permalink = []
            self._open.push(name)
            return
        if here or target.lower().startswith(("javascript:", "data:", "about:")):
            self._open.push(name)
            return
        self.writer.begin_mark("link", address)
        self._open.push(name, lambda: self.writer.end_mark("link"))

    def _end_permalink(self, *, inside: bool = False) -> None:
        """What was held back of a link to the heading that it stands in: a sign is left out, a text is not."""
        held, self._permalink = self._permalink or [], None
        if inside and unescape("".join(raw for raw, _ in held)).strip() in _PERMALINKS:
            return
        for raw, line in held:
            self._write(raw, line)

    def _enter_table(self, name: str, attributes: Attributes) -> None:
        layout = attributes.get("role", "").strip().lower() in {"presentation", "none"}
        at = len(self._open)
        self.writer.open_table(layout=layout)
        self._open.push(name, self.writer.close_table)
        self._open.tables.append(Frame(at, name))

    def _enter_table_part(self, name: str, _attributes: Attributes) -> None:
        self.writer.end_block()
        self._open.push(name, self.writer.end_block)
        if self._open.tables:
            self._open.tables[-1].header = name == "thead"

    def _enter_row(self, name: str, _attributes: Attributes) -> None:
        if not self._open.tables:
            self._enter_block(name, {})
            return
        table = self._open.tables[-1]
        table.part = len(self._open)
        self.writer.open_row(header=table.header)
        self._open.push(name, self.writer.end_block)

    def _enter_cell(self, name: str, attributes: Attributes) -> None:
        if not self._open.tables:
            self._enter_block(name, {})
            return
        columns, rows = number(attributes.get("colspan", ""), 1), number(attributes.get("rowspan", ""), 1)
        if rows == 0:
            rows = 65_534
        self._open.tables[-1].cell = len(self._open)
        self.writer.open_cell(header=name == "th", columns=min(columns, 1_000), rows=min(rows, 65_534))
        self._open.push(name, self.writer.close_cell)

    def _enter_ruby(self, name: str, _attributes: Attributes) -> None:
        self._end_of_ruby()
        self._aid = []
        self._open.push(name, self._end_of_ruby)

    def _end_of_ruby(self) -> None:
        said, self._aid, self._in_aid = "".join(self._aid or []), None, False
        if said:
            self.writer.literal(f"({said})", self._line)

    def _enter_aid(self, name: str, _attributes: Attributes) -> None:
        self._in_aid = self._aid is not None
        self._open.push(name, self._end_of_aid)

    def _end_of_aid(self) -> None:
        self._in_aid = False

    def _enter_quoted(self, name: str, _attributes: Attributes) -> None:
        self._write('"', self._line, references=False)
        self._open.push(name, lambda: self._write('"', self._line, references=False))

    def _enter_raised(self, name: str, _attributes: Attributes) -> None:
        self.writer.raise_next()
        self._open.push(name)


_SPECIAL: Mapping[str, Callable[[Page, str, Attributes], None]] = {
    "ul": Page._enter_list, "ol": Page._enter_list, "menu": Page._enter_list, "dir": Page._enter_list,
    "dl": Page._enter_list, "li": Page._enter_item, "dt": Page._enter_item, "dd": Page._enter_item,
    "blockquote": Page._enter_quote, "pre": Page._enter_pre, "listing": Page._enter_pre, "xmp": Page._enter_pre,
    "plaintext": Page._enter_pre, "textarea": Page._enter_pre, "a": Page._enter_link, "q": Page._enter_quoted,
    "ruby": Page._enter_ruby, "rt": Page._enter_aid, "sup": Page._enter_raised,
    "table": Page._enter_table, "thead": Page._enter_table_part, "tbody": Page._enter_table_part,
    "tfoot": Page._enter_table_part, "tr": Page._enter_row, "td": Page._enter_cell, "th": Page._enter_cell,
    **dict.fromkeys(CODE, Page._enter_code), **dict.fromkeys(STRUCK, Page._enter_struck),
}  # fmt: skip
