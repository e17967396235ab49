"""How far long work is, where there is no terminal to draw a bar on."""

import time
from collections.abc import Callable

from kbmesh_cli.output import messages

PAUSE_SECONDS = 15.0
"""Between two lines."""


class ProgressLines:
    """Tells on stderr how much is done, now and then. On a terminal it says nothing."""

    def __init__(self, form: str, *, total: int, clock: Callable[[], float] = time.monotonic) -> None:
        """`form` is a sentence with `{done}` and `{total}` in it."""
        self._form = form
        self._total = total
        self._clock = clock
        self._done = 0
        self._told = clock()
        self._console = messages()

    def advance(self) -> None:
        """One more is done."""
        self._done += 1
        if self._console.is_terminal or self._clock() - self._told < PAUSE_SECONDS:
            return
        self._told = self._clock()
        self._console.print(self._form.format(done=f"{self._done:,}", total=f"{self._total:,}"), markup=False)
