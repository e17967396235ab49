"""What must be escaped so that text does not become structure. Nothing within a word ever is: who searches for
`snake_case` or `C#` finds it."""

import re

_BLOCK_START = re.compile(
    r"""(?:
        (?P<number>[0-9]{1,9})[.)](?=\s|$)   # an item of a numbered list
      | \#{1,6}(?=\s|$)                      # a heading
      | >                                    # a quote
      | [-+*](?=\s|$)                        # an item of a list
      | ```|~~~                              # code
      | <(?=[a-zA-Z/!?])                     # HTML
      | [-_*=](?:[ \t]*+[-_*=])*+$ | (?=[-:| \t]*+$)[:| \t]*-   # a rule, an underline or the second row of a table
      | \[[^\]]{1,999}\]:                    # the definition of a link
    )""",
    re.VERBOSE,
)
_FIRST = frozenset("#>-+*`~<_=[|:0123456789")
_WORD = r"[^\W_]"
_HEADING_MARKS = re.compile(
    rf"""
        ` | \](?=\()                                       # code and links
      | \\(?=[!-/:-@\[-`{{-~])                           # what would be an escape
      | (?<!{_WORD})[*_]+(?=\S) | (?<=\S)[*_]+(?!{_WORD}) # emphasis
      | <(?=[a-zA-Z/!?])                                 # HTML
      | &(?=\#?[0-9A-Za-z]{{1,32}};)                     # a reference
    """,
    re.VERBOSE,
)
_CLOSING = re.compile(r"(?<!\S)(#+)$")


def escape_line(line: str) -> str:
    """A line of a paragraph, so that it begins no other kind of block."""
    if line[:1] not in _FIRST:
        return line
    found = _BLOCK_START.match(line)
    if found is None:
        return line
    mark = found.end("number") if found["number"] else 0
    return f"{line[:mark]}\\{line[mark:]}"


def escape_heading(text: str) -> str:
    """Plain text within a heading, which is read for its title."""
    return _HEADING_MARKS.sub(lambda found: "".join(f"\\{mark}" for mark in found.group()), text)


def escape_closing(line: str) -> str:
    """The line of a heading, whose last marks are not to be read as its end."""
    return _CLOSING.sub(r"\\\1", line)


def escape_cell(text: str) -> str:
    """Text within a cell of a table."""
    return text.replace("|", "\\|") if "|" in text else text


def code_span(text: str) -> tuple[str, str]:
    """The marks before and after a text that stands as code within a line."""
    if "`" not in text:
        return "`", "`"
    fence = "`" * (longest_run(text, "`") + 1)
    return f"{fence} ", f" {fence}"


def longest_run(text: str, mark: str) -> int:
    """How often a mark stands in a row at most."""
    return max((len(run) for run in re.findall(f"{re.escape(mark)}+", text)), default=0)


def escape_address(address: str) -> str:
    """The target of a link, so that it ends where it ends."""
    return _ADDRESS.sub(lambda found: f"%{ord(found.group()):02X}", address)


_ADDRESS = re.compile(r"[\x00-\x20<>()\\\x7f]")
