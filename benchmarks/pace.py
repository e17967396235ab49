"""How fast splitters are, measured side by side."""

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.corpus import CorpusFile
from benchmarks.splitters import Splitter

CLOCKS: Mapping[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}
"""The processor's clock counts the time of this process alone, and suits a machine that does other work besides."""


@dataclass(frozen=True, kw_only=True)
class Entrant:
    """A splitter with the files that it can cut."""

    splitter: Splitter
    files: Sequence[CorpusFile]

    @property
    def megabytes(self) -> float:
        """Millions of bytes of UTF-8."""
        return sum(file.size_bytes for file in self.files) / 1e6


def megabytes_per_second(
    entrants: Sequence[Entrant], *, rounds: int, clock: str, progress: Callable[[str], None]
) -> dict[str, float]:
    """The speed of each, by name: the median of `rounds`.

    Every round measures every splitter once, each time in another order, so that what slows the machine down for a
    while slows all of them.
    """
    now = CLOCKS[clock]
    seconds: dict[str, list[float]] = {entrant.splitter.name: [] for entrant in entrants}
    # What the libraries hold themselves is no garbage of a splitter, and is not looked through again and again.
    gc.collect()
    gc.freeze()
    for turn in range(rounds):
        progress(f"round {turn + 1} of {rounds}")
        start = turn % max(1, len(entrants))
        for entrant in (*entrants[start:], *entrants[:start]):
            gc.collect()
            began = now()
            for file in entrant.files:
                entrant.splitter.split(file)
            seconds[entrant.splitter.name].append(now() - began)
    return {
        entrant.splitter.name: entrant.megabytes / median(seconds[entrant.splitter.name])
        for entrant in entrants
        if entrant.files
    }
