"""Where the command writes: results to stdout, everything else to stderr."""

import json
import os
import sys
from typing import TextIO

from rich.console import Console
from rich.markup import escape
from rich.rule import Rule

from kbmesh_cli.errors import Failure

PIPED_WIDTH = 1000
"""Columns of what is not a terminal: a program that reads lines wants them whole."""
RULE_WIDTH = 100
"""A rule is never wider."""


def results() -> Console:
    """The console of stdout. Made when needed, so that it follows a redirected stdout."""
    return Console(highlight=False, width=_width(sys.stdout))


def messages() -> Console:
    """The console of stderr."""
    return Console(stderr=True, highlight=False, width=_width(sys.stderr))


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
