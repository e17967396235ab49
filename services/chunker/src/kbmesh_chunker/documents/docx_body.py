"""The text of a Word file: its paragraphs, tables, notes and text boxes, put into a Markdown text."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from kbmesh_chunker.documents.docx_package import (
    Element,
    Package,
    Reference,
    attribute,
    child,
    local,
    switched_on,
)
from kbmesh_chunker.documents.docx_styles import Label, Numbering, Style, Styles
from kbmesh_chunker.documents.docx_table import columns_of, row_spans
from kbmesh_chunker.documents.docx_text import chosen, formula, has_choice, inner_elements, texts
from kbmesh_chunker.documents.markdown_writer import Container, MarkdownWriter
from kbmesh_chunker.documents.reading import Reading

MAX_DEPTH = 120
"""Elements within elements. The text of what is deeper is read without its structure."""

_CHECK_EVERY = 200
_THROUGH = frozenset({"ins", "moveTo", "smartTag", "customXml", "sdtContent", "dir", "bdo", "Choice", "oMathPara"})
_NOTES = {"footnoteReference": "footnotes", "endnoteReference": "endnotes", "commentReference": "comments"}
_NOTE_MARKS = {"footnotes": "", "endnotes": "e", "comments": "c"}
_NOTE_ELEMENTS = frozenset({"footnote", "endnote", "comment"})
_LINK_FIELD = re.compile(r"\s*HYPERLINK\s+(?:\\[a-z]\s+)*\"([^\"]*)\"", re.IGNORECASE)
_MAX_HEADING = 6


@dataclass(slots=True)
class _Level:
    """A list that is open."""

    level: int
    ordered: bool
    item: Container | None


class Body:
    """Reads the text of a file once."""

    def __init__(self, package: Package, reading: Reading) -> None:
        self.writer = MarkdownWriter(reading=reading)
        self.left_out: Counter[str] = Counter()
        """Characters of what was left out, by what it was."""
        self.metadata: dict[str, str] = {}
        self.title = ""
        self.page = 1
        self._package = package
        self._reading = reading
        self._references: Mapping[str, Reference] = package.references(package.main)
        self._styles = Styles(package.optional(self._target("styles")))
        self._numbering = Numbering(package.optional(self._target("numbering")))
        self._notes: dict[str, dict[str, Element]] = {}
        self._due: list[tuple[str, Element]] = []
        """Notes and text boxes that are written after the block in which they stand."""
        self._lists: list[_Level] = []
        self._code = False
        self._quote: Container | None = None
        self._cells = 0
        self._depth = 0
        self._paragraphs = 0
        self._shift = 0
        """By how many levels headings stand below those that their styles name: a title stands above them all."""
        self._fields: list[list[str]] = []
        """Of each field that is open, its instruction, as long as its result has not begun."""
        self._links: list[bool] = []

    def _target(self, kind: str) -> str:
        return next((ref.target for ref in self._references.values() if ref.kind == kind and not ref.external), "")

    def read(self) -> None:
        """Reads all of it."""
        root = self._package.xml(self._package.main)
        body = child(root, "body")
        body = body if body is not None else root
        self._shift = int(self._has_title(body))
        self._blocks(body)
        self._end_lists()
        self._write_due()
        self._read_margins()

    def _has_title(self, body: Element) -> bool:
        """Whether a paragraph has the style of a title and says something."""
        for element in body.iter():
            if local(element) != "pStyle" or not self._styles.of(attribute(element, "val")).is_title:
                continue
            paragraph = next((above for above in element.iterancestors() if local(above) == "p"), None)
            if paragraph is not None and any(text.strip() for text in texts(paragraph)):
                return True
        return False

    # Blocks

    def _blocks(self, element: Element) -> None:
        self._depth += 1
        for inner in element:
            name = local(inner)
            if self._depth > MAX_DEPTH:
                self.writer.end_block()
                self._text("".join(inner.itertext()))
            elif name == "p":
                self._paragraph(inner)
            elif name == "tbl":
                self._table(inner)
            elif name == "sdt":
                self._blocks_of(child(inner, "sdtContent"))
            elif name == "AlternateContent":
                self._blocks_of(chosen(inner))
            elif name in _THROUGH:
                self._blocks(inner)
            elif name in {"del", "moveFrom"}:
                self._leave_out("deleted text", inner)
            elif name == "altChunk":
                self.left_out["embedded document"] += 0
        self._depth -= 1

    def _blocks_of(self, element: Element | None) -> None:
        if element is not None:
            self._blocks(element)

    def _paragraph(self, element: Element) -> None:
        self._paragraphs += 1
        if not self._paragraphs % _CHECK_EVERY:
            self._reading.checkpoint()
        properties = child(element, "pPr")
        style = self._styles.of(attribute(child(properties, "pStyle"), "val"))
        label, level = self._label(properties, style)
        heading = self._heading(properties, style)
        if not style.is_code and self._code:
            self.writer.close_code()
            self._code = False
        if not style.is_quote:
            self._end_quote()
        if heading and not self._cells and any(text.strip() for text in element.itertext()):
            self._end_lists()
            self.writer.heading(min(heading, _MAX_HEADING))
            if label is not None and label.text:
                self._text(label.text + " ")
        elif label is not None:
            self._open_item(label, level)
        elif style.is_code:
            self._end_lists()
            if self._code:
                self.writer.line_end(self.page)
            else:
                self.writer.open_code("")
                self._code = True
        else:
            self._end_lists()
            if style.is_quote and self._quote is None:
                self._quote = self.writer.open_quote()
        self._inline(element)
        if style.is_title and not self.title:
            self.title = " ".join("".join(texts(element)).split())
        if child(properties, "rPr", "del") is not None:
            # Its end was deleted: the next paragraph goes on in it.
            self.writer.space()
            return
        if not self._code:
            self.writer.end_block()
        if not self._cells and not self._code:
            self._write_due()

    def _heading(self, properties: Element | None, style: Style) -> int:
        if style.is_title:
            return 1
        outline = attribute(child(properties, "outlineLvl"), "val")
        if outline.isdigit():
            return int(outline) + 1 + self._shift if int(outline) < 9 else 0
        return style.heading + self._shift if style.heading else 0

    def _label(self, properties: Element | None, style: Style) -> tuple[Label | None, int]:
        given = child(properties, "numPr")
        number = attribute(child(given, "numId"), "val") or style.number
        level = attribute(child(given, "ilvl"), "val")
        at = int(level) if level.isdigit() else style.level
        if not self._numbering.known(number):
            return None, 0
        label = self._numbering.next(number, at)
        # Word's own styles for nested lists have a numbering each, all of the first level.
        return label, max(at, style.nesting)

    def _open_item(self, label: Label, level: int) -> None:
        ordered = label.number > 0
        while self._lists and self._lists[-1].level > level:
            self._end_list()
        if self._lists and self._lists[-1].level == level and self._lists[-1].ordered == ordered:
            self.writer.close(self._lists[-1].item)
        else:
            if self._lists and self._lists[-1].level == level:
                self._end_list()
            self.writer.open_list(ordered=ordered)
            self._lists.append(_Level(level, ordered, None))
        self._lists[-1].item = self.writer.open_item(label.number if ordered else None)
        if label.text and not ordered:
            self._text(label.text + " ")

    def _end_list(self) -> None:
        self.writer.close(self._lists.pop().item)
        self.writer.close_list()

    def _end_lists(self) -> None:
        while self._lists:
            self._end_list()

    def _end_quote(self) -> None:
        if self._quote is not None:
            self.writer.close(self._quote)
            self._quote = None

    def _table(self, element: Element) -> None:
        if self._code:
            self.writer.close_code()
            self._code = False
        if not self._cells:
            # Word's tables stand between the paragraphs of a list, not in them.
            self._end_lists()
            self._end_quote()
        outer, self._lists = self._lists, []
        self.writer.open_table()
        self._cells += 1
        spans = row_spans(element)
        for row in inner_elements(element, "tr"):
            if child(row, "trPr", "del") is not None:
                self._leave_out("deleted text", row)
                continue
            self.writer.open_row(header=switched_on(child(row, "trPr", "tblHeader")))
            for cell in inner_elements(row, "tc"):
                rows = spans.get(cell, 1)
                if not rows and not any(text.strip() for text in texts(cell)):
                    continue
                self.writer.open_cell(columns=columns_of(cell), rows=max(1, rows))
                self._blocks(cell)
                self._end_lists()
                self.writer.close_cell()
        self._cells -= 1
        self.writer.close_table()
        self._lists = outer
        if not self._cells:
            self._write_due()

    # Within a paragraph

    def _inline(self, element: Element) -> None:
        self._depth += 1
        for inner in element:
            name = local(inner)
            if self._depth > MAX_DEPTH:
                self._text("".join(texts(inner)))
            elif name == "r":
                self._run(inner)
            elif name == "hyperlink":
                self._hyperlink(inner)
            elif name == "fldSimple":
                self._linked(_LINK_FIELD.match(attribute(inner, "instr")), inner)
            elif name == "sdt":
                if child(inner, "sdtPr", "showingPlcHdr") is None:
                    content = child(inner, "sdtContent")
                    if content is not None:
                        self._inline(content)
            elif name == "AlternateContent":
                one = chosen(inner)
                if one is not None:
                    self._inline(one)
            elif name in _THROUGH:
                self._inline(inner)
            elif name in {"del", "moveFrom"}:
                self._leave_out("deleted text", inner)
            elif name == "oMath":
                self._text(formula(inner))
        self._depth -= 1

    def _run(self, element: Element) -> None:
        if switched_on(child(element, "rPr", "vanish")):
            self._leave_out("hidden text", element)
            return
        if attribute(child(element, "rPr", "vertAlign"), "val") == "superscript":
            self.writer.raise_next()
        for inner in element:
            name = local(inner)
            match name:
                case "t":
                    if not self._fields or not self._fields[-1]:
                        self._text(inner.text or "")
                case "tab" | "ptab":
                    self._text("\t")
                case "br" | "cr":
                    if attribute(inner, "type") in {"page", "column"}:
                        self.writer.space()
                    else:
                        self.writer.line_break(self.page)
                case "noBreakHyphen":
                    self._text("\u2011")
                case "sym":
                    self._symbol(inner)
                case "lastRenderedPageBreak":
                    self.page += 1
                case "fldChar":
                    self._field(attribute(inner, "fldCharType"))
                case "instrText":
                    if self._fields and self._fields[-1]:
                        self._fields[-1].append(inner.text or "")
                case "footnoteReference" | "endnoteReference" | "commentReference":
                    self._note(_NOTES[name], attribute(inner, "id"))
                case "drawing" | "pict" | "object":
                    self._drawing(inner)
                case "AlternateContent":
                    one = chosen(inner)
                    for part in one if one is not None else ():
                        self._drawing(part)
                case "ruby":
                    self._ruby(inner)

    def _text(self, text: str) -> None:
        parts = text.split("\n")
        for count, part in enumerate(parts):
            if count:
                self.writer.line_end(self.page)
            if part:
                self.writer.text(part, self.page)

    def _hyperlink(self, element: Element) -> None:
        reference = self._references.get(attribute(element, "id"))
        address = reference.target if reference is not None and reference.external else ""
        self._with_link(address, element)

    def _linked(self, found: "re.Match[str] | None", element: Element) -> None:
        self._with_link(found.group(1) if found else "", element)

    def _with_link(self, address: str, element: Element) -> None:
        begun = bool(address) and self.writer.begin_mark("link", address)
        self._inline(element)
        if begun:
            self.writer.end_mark("link")

    def _field(self, kind: str) -> None:
        match kind:
            case "begin":
                self._fields.append([" "])
                self._links.append(False)
            case "separate" if self._fields:
                found = _LINK_FIELD.match("".join(self._fields[-1]))
                self._fields[-1] = []
                self._links[-1] = found is not None and self.writer.begin_mark("link", found.group(1))
            case "end" if self._fields:
                self._fields.pop()
                if self._links.pop():
                    self.writer.end_mark("link")

    def _symbol(self, element: Element) -> None:
        code = attribute(element, "char")
        value = int(code, 16) if re.fullmatch(r"[0-9A-Fa-f]{1,5}", code) else 0
        # Symbol fonts put their signs into the private area; what they look like is known to the font alone.
        self._text("\u25a1" if 0xE000 <= value <= 0xF8FF or not value or 0xD800 <= value < 0xE000 else chr(value))

    def _ruby(self, element: Element) -> None:
        for name in ("rubyBase", "rt"):
            part = child(element, name)
            if part is not None and name == "rt":
                said = "".join(texts(part)).strip()
                if said:
                    self.writer.literal(f"({said})", self.page)
            elif part is not None:
                self._inline(part)

    def _drawing(self, element: Element) -> None:
        described = ""
        for inner in element.iter():
            name = local(inner)
            if name == "docPr" or (name in {"shape", "imagedata"} and not described):
                described = described or attribute(inner, "descr") or attribute(inner, "alt")
            elif name == "txbxContent":
                if not any(local(above) == "Fallback" and has_choice(above) for above in inner.iterancestors()):
                    self._due.append(("box", inner))
            elif name == "oMath":
                self._text(formula(inner))
            elif name in {"relIds", "chart", "OLEObject"}:
                self.left_out[{"relIds": "diagram", "chart": "chart"}.get(name, "embedded object")] += 0
        if described.strip():
            self.writer.image(" ".join(described.split()), self.page)

    # Notes, text boxes, margins

    def _note(self, kind: str, note_id: str) -> None:
        if kind not in self._notes:
            root = self._package.optional(self._target(kind))
            self._notes[kind] = {
                attribute(note, "id"): note
                for note in (root if root is not None else ())
                if local(note) in _NOTE_ELEMENTS
            }
        note = self._notes[kind].pop(note_id, None)
        mark = f"[^{_NOTE_MARKS[kind]}{note_id}]"
        self.writer.literal(mark, self.page)
        if note is not None:
            self._due.append((mark, note))

    def _write_due(self) -> None:
        """What belongs to the block that has just ended."""
        while self._due:
            due, self._due = self._due, []
            for mark, element in due:
                outer, self._lists = self._lists, []
                self.writer.end_block()
                if mark != "box":
                    author = attribute(element, "author") if local(element) == "comment" else ""
                    self.writer.literal(f"{mark} {author}:" if author else mark, self.page)
                    self.writer.space()
                self._cells += 1
                self._blocks(element)
                self._cells -= 1
                self._end_lists()
                self._lists = outer

    def _read_margins(self) -> None:
        """Headers and footers stand beside every page: they are told apart from the text."""
        for kind in ("header", "footer"):
            found: dict[str, None] = {}
            for reference in self._references.values():
                if reference.kind == kind and not reference.external:
                    root = self._package.optional(reference.target)
                    text = " ".join("".join(texts(root)).split()) if root is not None else ""
                    if text:
                        found[text] = None
            if found:
                whole = " | ".join(found)
                self.metadata[kind] = whole[:1_000]
                self.left_out[f"page {kind}"] += len(whole)

    def _leave_out(self, what: str, element: Element) -> None:
        count = sum(len(text.strip()) for text in texts(element, deleted=True))
        if count:
            self.left_out[what] += count
