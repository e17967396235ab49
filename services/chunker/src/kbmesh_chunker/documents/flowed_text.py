"""Text of a mail whose lines were broken for the way only, put together again (RFC 3676, format=flowed)."""

import re

_QUOTED = re.compile(r">*")


def unflow(text: str, *, delete_space: bool) -> str:
    """Joins lines that end with a space to the next of the same quote depth. Lines end with LF."""
    joined: list[str] = []
    paragraph: list[str] = []
    depth = 0
    for line in text.split("\n"):
        marks = _QUOTED.match(line)
        line_depth = marks.end() if marks else 0
        # A space was put before lines that begin with a space, a mark or "From ".
        content = line[line_depth:].removeprefix(" ")
        if paragraph and line_depth != depth:
            joined.append(_written(depth, paragraph))
            paragraph = []
        depth = line_depth
        if content.endswith(" ") and content != "-- ":
            paragraph.append(content[:-1] if delete_space else content)
        elif content == "-- " and paragraph:
            joined.append(_written(depth, paragraph))
            paragraph = []
            joined.append(_written(depth, [content]))
        else:
            joined.append(_written(depth, [*paragraph, content]))
            paragraph = []
    if paragraph:
        joined.append(_written(depth, paragraph))
    return "\n".join(joined)


def _written(depth: int, paragraph: list[str]) -> str:
    content = "".join(paragraph)
    if not depth:
        return content
    return ">" * depth + " " + content if content else ">" * depth
