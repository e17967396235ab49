"""What a command did."""

import json
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Done:
    """Exit code and output of one command."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        """The one object that was printed."""
        return json.loads(self.out)

    def lines(self) -> list[Any]:
        """The objects that were printed, one a line."""
        return [json.loads(line) for line in self.out.splitlines()]


Kbmesh = Callable[..., Coroutine[Any, Any, Done]]
"""Runs a command in this process."""
