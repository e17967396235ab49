"""Where the command writes: results to stdout, everything else to stderr."""

import json
import os
import re
import sys
from collections.abc import Iterable
from typing import TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.rule import Rule
from rich.segment import Segment

from kbmesh_cli.errors import Failure

PIPED_WIDTH = 1000
"""Columns of what is not a terminal: a program that reads lines wants them whole."""
RULE_WIDTH = 100
"""A rule is never wider."""
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""All but tab and line feed."""


class _PlainConsole(Console):
    """Shows control characters in place of obeying them: names of files and texts of documents are others', and an
    escape sequence in one would command the terminal."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control or _CONTROL.search(segment.text) is None:
                yield segment
            else:
                shown = _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), segment.text)
                yield Segment(shown, segment.style)


def results() -> Console:
    """The console of stdout. Made when needed, so that it follows a redirected stdout."""
    return _PlainConsole(highlight=False, width=_width(sys.stdout))


def messages() -> Console:
    """The console of stderr."""
    return _PlainConsole(stderr=True, highlight=False, width=_width(sys.stderr))


def _width(stream: TextIO) -> int | None:
    return None if stream.isatty() or "COLUMNS" in os.environ else PIPED_WIDTH


def print_rule(console: Console, title: str) -> None:
    """Prints a title with a line. The title is markup."""
    console.print(Rule(title, align="left"), width=min(console.width, RULE_WIDTH))


def counted(number: int, noun: str) -> str:
    """A number with its noun: "1 chunk", "1,200 chunks"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def print_json(value: object) -> None:
    """Writes one object as one line."""
    try:
        sys.stdout.write(json.dumps(value, ensure_ascii=False, allow_nan=False) + "\n")
    except UnicodeEncodeError:
        # Half of a surrogate pair, such as a name that is no text has, or a stdout of few characters.
        sys.stdout.write(json.dumps(value, allow_nan=False) + "\n")
    sys.stdout.flush()


def print_failure(failure: Failure, *, as_json: bool) -> None:
    """Tells of an error: an object on stdout with `--json`, else readable lines on stderr."""
    if as_json:
        print_json(
            {
                "error": {
                    "reason": failure.reason,
                    "message": failure.message,
                    "metadata": dict(failure.metadata),
                    "hint": failure.hint,
                }
            }
        )
        return
    console = messages()
    console.print(f"[bold red]{escape(failure.reason)}[/]: {escape(failure.message)}", soft_wrap=True)
    if failure.hint:
        console.print(f"  hint: {escape(failure.hint)}", soft_wrap=True)
