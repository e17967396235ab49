"""What the styles and numbers of a Word file say about its paragraphs (ECMA-376, part 1, 17.7 and 17.9)."""

import re
from collections import defaultdict
from dataclasses import dataclass, field

from kbmesh_chunker.documents.docx_package import Element, attribute, child, local

_HEADING = re.compile(
    r"(?:heading|überschrift|titre|título|titolo|rubrik|kop|標題|标题|見出し|заголовок)\s*([1-9])\b", re.IGNORECASE
)
_NESTED = re.compile(r"list (?:bullet|number) ([2-9])", re.IGNORECASE)
_MAX_CHAIN = 16
_LEVELS = 9


@dataclass(frozen=True, kw_only=True)
class Style:
    """A paragraph style, with what it takes from those that it is based on."""

    name: str = ""
    heading: int = 0
    """1 to 9; 0 where it is no heading."""
    number: str = ""
    """Id of the numbering that its paragraphs have. Empty where they have none."""
    level: int = 0
    """Level of that numbering, from 0."""

    @property
    def is_title(self) -> bool:
        return self.name.lower() == "title"

    @property
    def nesting(self) -> int:
        """How deep its name says that its lists are, from 0."""
        found = _NESTED.match(self.name)
        return int(found.group(1)) - 1 if found else 0

    @property
    def is_code(self) -> bool:
        return self.name.lower() in {"code", "source code", "html preformatted", "preformatted text", "macro text"}

    @property
    def is_quote(self) -> bool:
        return self.name.lower() in {"quote", "intense quote", "quotations"}


class Styles:
    """The styles by their ids."""

    def __init__(self, root: Element | None) -> None:
        self._elements = {
            attribute(element, "styleId"): element
            for element in (root if root is not None else ())
            if local(element) == "style"
        }
        self._known: dict[str, Style] = {}

    def of(self, style_id: str) -> Style:
        """The style of an id. One that is missing goes by its id."""
        if style_id not in self._known:
            self._known[style_id] = self._read(style_id)
        return self._known[style_id]

    def _read(self, style_id: str) -> Style:
        name, heading, number, level = "", 0, "", -1
        at = style_id
        for _ in range(_MAX_CHAIN):
            element = self._elements.get(at)
            if element is None:
                break
            own = attribute(child(element, "name"), "val")
            name = name or own
            outline = attribute(child(element, "pPr", "outlineLvl"), "val")
            if not heading and outline.isdigit() and int(outline) < _LEVELS:
                heading = int(outline) + 1
            if not heading and (found := _HEADING.match(own)):
                heading = int(found.group(1))
            numbered = child(element, "pPr", "numPr")
            if numbered is not None:
                number = number or attribute(child(numbered, "numId"), "val")
                given = attribute(child(numbered, "ilvl"), "val")
                level = int(given) if level < 0 and given.isdigit() else level
            at = attribute(child(element, "basedOn"), "val")
            if not at:
                break
        name = name or style_id
        if not heading and (found := _HEADING.match(name)):
            heading = int(found.group(1))
        return Style(name=name, heading=heading, number=number, level=max(0, level))


@dataclass(frozen=True, kw_only=True)
class _Level:
    format: str = "decimal"
    text: str = ""
    start: int = 1


@dataclass(frozen=True, kw_only=True)
class Label:
    """What stands before a numbered paragraph."""

    text: str
    """Such as `1.2` or `(a)`. Empty for a bullet."""
    number: int = 0
    """Where the text is a number and a full stop or a bracket; else 0."""


@dataclass(kw_only=True)
class _Count:
    values: list[int] = field(default_factory=lambda: [0] * _LEVELS)
    begun: list[bool] = field(default_factory=lambda: [False] * _LEVELS)


class Numbering:
    """Counts numbered paragraphs as they come."""

    def __init__(self, root: Element | None) -> None:
        self._levels: dict[str, dict[int, _Level]] = {}
        self._abstract: dict[str, str] = {}
        abstracts: dict[str, dict[int, _Level]] = {}
        for element in root if root is not None else ():
            match local(element):
                case "abstractNum":
                    abstracts[attribute(element, "abstractNumId")] = _levels(element)
                case "num":
                    number = attribute(element, "numId")
                    abstract = attribute(child(element, "abstractNumId"), "val")
                    levels = dict(abstracts.get(abstract, {}))
                    overridden = False
                    for override in element:
                        if local(override) == "lvlOverride":
                            overridden = True
                            _override(levels, override)
                    self._levels[number] = levels
                    # Lists that share a definition go on counting, unless one starts anew.
                    self._abstract[number] = f"num {number}" if overridden else abstract
        self._counts: defaultdict[str, _Count] = defaultdict(_Count)

    def known(self, number: str) -> bool:
        """Whether there is a numbering of the id. 0 stands for none."""
        return number in self._levels and number != "0"

    def next(self, number: str, level: int) -> Label:
        """Counts a paragraph of a numbering and level, and gives what stands before it."""
        level = min(max(0, level), _LEVELS - 1)
        levels = self._levels.get(number, {})
        count = self._counts[self._abstract.get(number, number)]
        at = levels.get(level, _Level())
        count.values[level] = count.values[level] + 1 if count.begun[level] else at.start
        count.begun[level] = True
        for deeper in range(level + 1, _LEVELS):
            count.begun[deeper] = False
        if at.format in {"bullet", "none"} or not at.text:
            return Label(text="")
        text = at.text
        for place in range(level + 1):
            one = levels.get(place, _Level())
            value = count.values[place] if count.begun[place] else one.start
            text = text.replace(f"%{place + 1}", _written(value, one.format))
        plain = at.format == "decimal" and at.text in {f"%{level + 1}.", f"%{level + 1})", f"%{level + 1}"}
        return Label(text=text.strip(), number=count.values[level] if plain else 0)


def _levels(element: Element) -> dict[int, _Level]:
    levels = {}
    for inner in element:
        given = attribute(inner, "ilvl")
        if local(inner) == "lvl" and given.isdigit() and int(given) < _LEVELS:
            levels[int(given)] = _level(inner)
    return levels


def _level(element: Element) -> _Level:
    start = attribute(child(element, "start"), "val", "1")
    return _Level(
        format=attribute(child(element, "numFmt"), "val", "decimal"),
        text=attribute(child(element, "lvlText"), "val")[:100],
        start=int(start) if start.isdigit() and len(start) < 9 else 1,
    )


def _override(levels: dict[int, _Level], override: Element) -> None:
    given = attribute(override, "ilvl")
    if not given.isdigit() or int(given) >= _LEVELS:
        return
    at = int(given)
    whole = child(override, "lvl")
    level = _level(whole) if whole is not None else levels.get(at, _Level())
    start = attribute(child(override, "startOverride"), "val")
    if start.isdigit() and len(start) < 9:
        level = _Level(format=level.format, text=level.text, start=int(start))
    levels[at] = level


_ROMAN = (
    (1000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc"), (50, "l"), (40, "xl"), (10, "x"),
    (9, "ix"), (5, "v"), (4, "iv"), (1, "i"),
)  # fmt: skip


def _written(value: int, number_format: str) -> str:
    match number_format:
        case "lowerLetter" | "upperLetter" if value > 0:
            letter = chr(ord("a") + (value - 1) % 26) * min(10, (value - 1) // 26 + 1)
            return letter.upper() if number_format == "upperLetter" else letter
        case "lowerRoman" | "upperRoman" if 0 < value < 5_000:
            text = ""
            for one, sign in _ROMAN:
                text += sign * (value // one)
                value %= one
            return text.upper() if number_format == "upperRoman" else text
        case "decimalZero":
            return f"{value:02}"
        case _:
            return str(value)
