"""Where the command writes: results to stdout, everything else to stderr."""

import json
import sys

from rich.console import Console
from rich.markup import escape

from kbmesh_cli.errors import Failure


def results() -> Console:
    """The console of stdout. Made when needed, so that it follows a redirected stdout."""
    return Console(highlight=False)


def messages() -> Console:
    """The console of stderr."""
    return Console(stderr=True, highlight=False)


def print_json(value: object) -> None:
    """Writes one object as one line."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False, allow_nan=False) + "\n")
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
