"""What stands on a page of a PDF, and where: PDFium's characters as fragments of lines."""

import ctypes
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pypdfium2 as pdfium
import pypdfium2.raw as native

from kbmesh_chunker.documents.pdf_text import DIVIDED, clean

_WORD = re.compile(f"[^\\s{DIVIDED}]+{DIVIDED}?|{DIVIDED}")
_FIXED_PITCH = 1
_BOLD_NAME = re.compile(r"bold|black|heavy|semibold|demi|cmbx|[-,]bd\b|medi$|-b$", re.IGNORECASE)
_FIXED_NAME = re.compile(r"mono|courier|cmtt|typewriter|consol|fixed|inconsolata|menlo", re.IGNORECASE)
_BOLD_WEIGHT = 600
_MAX_SIZE = 2_000.0


@dataclass(frozen=True, slots=True)
class Font:
    """What a font looks like."""

    bold: bool
    fixed: bool
    """Whether all its characters have one width, as in code."""


@dataclass(slots=True)
class Fragment:
    """Characters that stand side by side. Lengths in points, y grows upwards, as the page is shown."""

    text: str
    left: float
    right: float
    baseline: float
    size: float
    """Of the font of its longest word, as it is shown."""
    bold: bool
    """Whether all of it is."""
    fixed: bool
    """Whether all of it is in a font for code."""
    upright: bool
    first_width: float
    """Of its first word."""
    longest: int
    """Characters of its longest word."""


@dataclass(frozen=True, slots=True)
class Page:
    """A page that was read."""

    number: int
    """From 1."""
    width: float
    height: float
    fragments: Sequence[Fragment]
    """In the order in which they were drawn."""
    images: float
    """Which part of the page images cover, about: 0 to 1."""
    drawn: bool
    """Whether there is anything on it."""


@dataclass(slots=True)
class _Style:
    size: float
    font: Font
    upright: bool


_PLAIN = Font(bold=False, fixed=False)


class PageReader:
    """Reads the pages of one document."""

    def __init__(self, document: pdfium.PdfDocument) -> None:
        self._document = document
        self._fonts: dict[int, Font] = {}

    def read(self, index: int) -> Page:
        """The page, from 0. Raises PdfiumError where it cannot be read."""
        page = self._document[index]
        try:
            if _shows_annotations(page.raw):
                # The values of forms and free text are no text of the page until they are drawn on it.
                native.FPDFPage_Flatten(page.raw, native.FLAT_NORMALDISPLAY)
                page.close()
                page = self._document[index]
            text_page = page.get_textpage()
            try:
                turn = native.FPDFPage_GetRotation(page.raw) % 4
                box = page.get_mediabox()
                fragments = list(_PageText(text_page.raw, self._fonts, turn, box).fragments())
            finally:
                text_page.close()
            width, height = page.get_size()
            images, drawn = (0.0, True) if len(fragments) > _FEW else _drawing(page.raw, width * height)
            return Page(number=index + 1, width=width, height=height, fragments=fragments, images=images, drawn=drawn)
        finally:
            page.close()


_FEW = 3
_MAX_ANNOTATIONS = 2_000
_MAX_OBJECTS = 20_000


def _shows_annotations(page: object) -> bool:
    for index in range(min(native.FPDFPage_GetAnnotCount(page), _MAX_ANNOTATIONS)):
        annotation = native.FPDFPage_GetAnnot(page, index)
        if annotation:
            kind = native.FPDFAnnot_GetSubtype(annotation)
            native.FPDFPage_CloseAnnot(annotation)
            if kind in (native.FPDF_ANNOT_WIDGET, native.FPDF_ANNOT_FREETEXT):
                return True
    return False


def _drawing(page: object, area: float) -> tuple[float, bool]:
    """Which part of a page images cover, and whether anything is drawn on it."""
    left, bottom, right, top = (ctypes.c_float() for _ in range(4))
    covered = 0.0
    count = native.FPDFPage_CountObjects(page)
    for index in range(min(count, _MAX_OBJECTS)):
        drawn = native.FPDFPage_GetObject(page, index)
        if native.FPDFPageObj_GetType(drawn) in (native.FPDF_PAGEOBJ_IMAGE, native.FPDF_PAGEOBJ_FORM):
            native.FPDFPageObj_GetBounds(drawn, left, bottom, right, top)
            covered += abs(right.value - left.value) * abs(top.value - bottom.value)
    return min(1.0, covered / area) if area > 0 else 0.0, count > 0


class _PageText:
    """The characters of a page. Calls into PDFium cost, so there are a few for each word, not for each character."""

    def __init__(self, page: object, fonts: dict[int, Font], turn: int, box: tuple[float, float, float, float]) -> None:
        self._page = page
        self._fonts = fonts
        self._turn = turn
        self._box = box
        self._x, self._y = ctypes.c_double(), ctypes.c_double()
        self._rect = native.FS_RECTF()
        self._matrix = native.FS_MATRIX()
        self._style = _Style(size=1.0, font=_PLAIN, upright=True)
        self._drawn: int | None = None

    def fragments(self) -> Iterator[Fragment]:
        """What PDFium takes for lines, parted where gaps are wide."""
        count = native.FPDFText_CountChars(self._page)
        if count <= 0:
            return
        buffer = (ctypes.c_uint16 * (count + 1))()
        written = native.FPDFText_GetText(self._page, 0, count, buffer)
        units = bytes(buffer)[: 2 * max(0, written - 1)]
        text = units.decode("utf-16-le", "surrogatepass")
        narrow = len(text) * 2 == len(units)
        if not narrow:
            # Positions are in UTF-16.
            text = "".join(chr(unit) for unit in memoryview(units).cast("H"))
        same = len(text) == count
        current: Fragment | None = None
        end = 0
        for word in _WORD.finditer(text):
            between = text[end : word.start()]
            end = word.end()
            first, last = word.start(), word.end() - 1
            if not same:
                first, last = self._index(first), self._index(last)
            if first < 0 or last < 0:
                continue
            content = word.group() if narrow else _characters(word.group())
            piece = self._fragment(content, first, last)
            if current is not None and _adjoin(current, piece, "\n" in between):
                current.text += (" " if between and "\n" not in between else "") + piece.text
                current.right = piece.right
                current.bold = current.bold and piece.bold
                current.fixed = current.fixed and piece.fixed
                if piece.longest > current.longest:
                    # What stands first may be a raised mark.
                    current.size, current.baseline, current.longest = piece.size, piece.baseline, piece.longest
            else:
                if current is not None and current.text:
                    yield current
                current = piece
            if content.endswith(DIVIDED):
                yield current
                current = None
        if current is not None and current.text:
            yield current

    def _index(self, position: int) -> int:
        return int(native.FPDFText_GetCharIndexFromTextIndex(self._page, position))

    def _fragment(self, content: str, first: int, last: int) -> Fragment:
        style = self._style_of(first)
        native.FPDFText_GetCharOrigin(self._page, first, self._x, self._y)
        left, baseline = self._turned(self._x.value, self._y.value)
        native.FPDFText_GetLooseCharBox(self._page, last, self._rect)
        rect = self._rect
        if self._turn:
            corners = (self._turned(rect.left, rect.bottom), self._turned(rect.right, rect.top))
            right = max(x for x, _ in corners)
        else:
            right = rect.right
        right = max(left, right)
        return Fragment(
            text=clean(content) if content != DIVIDED else content,
            left=left,
            right=right,
            baseline=baseline,
            size=style.size,
            bold=style.font.bold,
            fixed=style.font.fixed,
            upright=style.upright,
            first_width=right - left,
            longest=len(content),
        )

    def _style_of(self, index: int) -> _Style:
        drawn = native.FPDFText_GetTextObject(self._page, index)
        address = _address(drawn)
        if not address or address == self._drawn:
            return self._style
        self._drawn = address
        scale = 1.0
        if native.FPDFText_GetMatrix(self._page, index, self._matrix):
            scale = math.hypot(self._matrix.c, self._matrix.d)
        size = native.FPDFText_GetFontSize(self._page, index) * scale
        size = min(max(abs(size), 0.1), _MAX_SIZE) if math.isfinite(size) else 1.0
        angle = native.FPDFText_GetCharAngle(self._page, index) - self._turn * math.pi / 2
        self._style = _Style(size=size, font=self._font(drawn), upright=math.cos(angle) > 0.95)
        return self._style

    def _font(self, drawn: object) -> Font:
        font = native.FPDFTextObj_GetFont(drawn)
        address = _address(font)
        if not address:
            return _PLAIN
        if address not in self._fonts:
            name = ctypes.create_string_buffer(128)
            native.FPDFFont_GetBaseFontName(font, name, 128)
            label = name.value.decode("latin-1")
            self._fonts[address] = Font(
                bold=bool(_BOLD_NAME.search(label)) or native.FPDFFont_GetWeight(font) >= _BOLD_WEIGHT,
                fixed=bool(_FIXED_NAME.search(label)) or bool(native.FPDFFont_GetFlags(font) & _FIXED_PITCH),
            )
        return self._fonts[address]

    def _turned(self, x: float, y: float) -> tuple[float, float]:
        """A place as it is shown, where the page is turned clockwise."""
        left, bottom, right, top = self._box
        match self._turn:
            case 1:
                return y - bottom, right - x
            case 2:
                return right - x, top - y
            case 3:
                return top - y, x - left
            case _:
                return x - left, y - bottom


def _address(pointer: Any) -> int:
    """0 of one that points to nothing."""
    return ctypes.addressof(pointer.contents) if pointer else 0


def _characters(word: str) -> str:
    """A word whose characters beyond the 16 bits stand in two halves."""
    return word.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _adjoin(left: Fragment, right: Fragment, new_line: bool) -> bool:
    """Whether they are read in one go. PDFium begins a new line also behind a raised mark."""
    if not (left.upright and right.upright):
        return left.upright == right.upright and not new_line
    size = max(left.size, right.size)
    gap, rise = right.left - left.right, abs(left.baseline - right.baseline)
    if new_line:
        return abs(gap) < 0.35 * size and rise < 0.35 * size
    return -size < gap <= size and rise < size
