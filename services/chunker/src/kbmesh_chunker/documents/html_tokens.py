"""HTML, taken apart into tags and text by the rules of browsers (WHATWG HTML, 13.2.5), with the place of each.

Every text passes, however malformed, and in time that is linear in its length. Where the standard drops what follows
a mark that is never closed, the rest of the text is kept instead.
"""

import html
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum


class TokenKind(IntEnum):
    """What a token is."""

    TEXT = 0
    """Text with its character references still in it."""
    START = 1
    END = 2
    RAW = 3
    """What stands in an element that holds no markup, such as `script`. No reference in it means anything."""
    COMMENT = 4


@dataclass(frozen=True, slots=True)
class Token:
    """A stretch of the source."""

    kind: TokenKind
    start: int
    end: int
    name: str = ""
    """Of a tag, in lower case; of raw text, that of its element."""
    attributes: Mapping[str, str] | None = None
    """Of a start tag, where it has any. Names are in lower case, the first of a name counts."""
    closed: bool = False
    """Whether a start tag ends in `/>`."""


RAW_ELEMENTS = frozenset({"script", "style", "xmp", "iframe", "noembed", "noframes", "plaintext"})
"""Their text holds neither tags nor references."""
_TEXT_ELEMENTS = frozenset({"title", "textarea"})
"""Their text holds no tags, but references."""

_CDATA = "![cdata["
_NAME = re.compile(r"[a-zA-Z][^\s/>\x00]*")
_ATTRIBUTE = re.compile(
    r"""[\s/]*+(?:(>)|([^\s/>][^\s/>=]*+)(?:\s*+=\s*+(?:"([^"]*)"|'([^']*)'|([^\s>]*+)))?)""",
)
_REFERENCE = re.compile(r"&(?:#[0-9]{1,7};?|#[xX][0-9a-fA-F]{1,6};?|[A-Za-z][A-Za-z0-9]{1,31};)")
_HUGE_REFERENCE = re.compile(r"&#(?:[0-9]{8,}|[xX][0-9a-fA-F]{7,});?")


def unescape(text: str) -> str:
    """Text with its character references resolved, once."""
    if "&" not in text:
        return text
    if "&#" in text:
        # The standard library turns the digits into a number, however many there are.
        text = _HUGE_REFERENCE.sub("\ufffd", text)
    return html.unescape(text)


def tokens(source: str) -> Iterator[Token]:
    """The tokens of a source, in order, without gaps that hold text."""
    return _Tokenizer(source).run()


class _Tokenizer:
    def __init__(self, source: str) -> None:
        self._source = source
        self._unclosed: set[str] = set()
        """Elements of raw text whose end tag is known not to follow."""

    def run(self) -> Iterator[Token]:
        source, position, length = self._source, 0, len(self._source)
        while position < length:
            mark = source.find("<", position)
            if mark < 0:
                yield Token(TokenKind.TEXT, position, length)
                return
            if mark > position:
                yield Token(TokenKind.TEXT, position, mark)
            following = source[mark + 1 : mark + 2]
            if following == "/":
                token = self._end_tag(mark)
            elif following in {"!", "?"}:
                token = self._declaration(mark)
            elif following.isascii() and following.isalpha():
                token = self._start_tag(mark)
            else:
                token = Token(TokenKind.TEXT, mark, mark + 1)
            yield token
            position = token.end
            if token.kind is TokenKind.START and (token.name in RAW_ELEMENTS or token.name in _TEXT_ELEMENTS):
                raw = self._raw(token)
                if raw is not None:
                    yield raw
                    position = raw.end

    def _start_tag(self, mark: int) -> Token:
        source = self._source
        name = _NAME.match(source, mark + 1)
        assert name is not None
        position = name.end()
        if source.startswith(">", position):
            return Token(TokenKind.START, mark, position + 1, name.group().lower())
        attributes: dict[str, str] = {}
        while found := _ATTRIBUTE.match(source, position):
            position = found.end()
            if found.group(1):
                closed = source[position - 2] == "/"
                return Token(TokenKind.START, mark, position, name.group().lower(), attributes, closed)
            key = found.group(2).lower()
            if key not in attributes:
                attributes[key] = _value(found)
        # No `>` follows: the mark was none.
        return Token(TokenKind.TEXT, mark, len(source))

    def _end_tag(self, mark: int) -> Token:
        source = self._source
        name = _NAME.match(source, mark + 2)
        end = source.find(">", mark + 2)
        if end < 0:
            return Token(TokenKind.TEXT, mark, len(source))
        if name is None:
            return Token(TokenKind.COMMENT, mark, end + 1)
        return Token(TokenKind.END, mark, end + 1, name.group().lower())

    def _declaration(self, mark: int) -> Token:
        source = self._source
        if source.startswith("<!--", mark):
            for empty in ("<!-->", "<!--->"):
                if source.startswith(empty, mark):
                    return Token(TokenKind.COMMENT, mark, mark + len(empty))
            end = source.find("--", mark + 4)
            while end >= 0:
                if source.startswith(">", end + 2):
                    return Token(TokenKind.COMMENT, mark, end + 3)
                if source.startswith("!>", end + 2):
                    return Token(TokenKind.COMMENT, mark, end + 4)
                end = source.find("--", end + 1)
            return Token(TokenKind.COMMENT, mark, len(source))
        if source.startswith("<![CDATA[", mark):
            end = -1 if _CDATA in self._unclosed else source.find("]]>", mark)
            if end < 0:
                self._unclosed.add(_CDATA)
            else:
                return Token(TokenKind.RAW, mark, end + 3, _CDATA)
        end = source.find(">", mark)
        return Token(TokenKind.TEXT, mark, len(source)) if end < 0 else Token(TokenKind.COMMENT, mark, end + 1)

    def _raw(self, tag: Token) -> Token | None:
        name, start = tag.name, tag.end
        if name == "plaintext":
            return Token(TokenKind.RAW, start, len(self._source), name)
        end = -1
        if name not in self._unclosed:
            found = _end_of(name).search(self._source, start)
            end = found.start() if found else -1
            if end < 0:
                self._unclosed.add(name)
        if end < 0:
            if tag.closed:
                # XHTML, where the element is empty.
                return None
            if name in _TEXT_ELEMENTS:
                end = self._source.find("<", start)
            if end < 0:
                end = len(self._source)
        kind = TokenKind.TEXT if name in _TEXT_ELEMENTS else TokenKind.RAW
        return Token(kind, start, end, name) if end > start else None


_ENDS = {name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE) for name in RAW_ELEMENTS | _TEXT_ELEMENTS}


def _end_of(name: str) -> "re.Pattern[str]":
    return _ENDS[name]


def _value(found: "re.Match[str]") -> str:
    value = found.group(3)
    if value is None:
        value = found.group(4)
    if value is None:
        value = found.group(5) or ""
    # Names without a semicolon are no references here: `?a=1&copy=2` is an address.
    return _REFERENCE.sub(_resolve, value) if "&" in value else value


def _resolve(found: "re.Match[str]") -> str:
    return html.unescape(found.group())
