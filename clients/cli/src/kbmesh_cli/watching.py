"""Files that change while they are watched, found by looking at them again and again."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kbmesh_cli.sources import SourceFile

_State = tuple[int, int]
"""Modification time in nanoseconds and size."""
_NEVER = (-1, -1)


@dataclass(frozen=True, kw_only=True)
class Changes:
    """What is to be done since the last look."""

    files: Sequence[SourceFile]
    """New and changed ones that have come to rest."""
    gone: Sequence[str]
    """Names of those that are no longer there, at two looks in a row."""

    def __bool__(self) -> bool:
        return bool(self.files or self.gone)


class Waits:
    """Pauses between tries of what does not succeed: each twice as long as the one before."""

    def __init__(self, *, least: float, most: float = 30.0) -> None:
        """In seconds."""
        self._least = least
        self._most = most
        self._last = 0.0

    def next(self, *, asked: float | None = None) -> float:
        """Seconds until the next try; not less than what somebody asked for."""
        self._last = min(max(2 * self._last, self._least), max(self._most, self._least))
        return max(self._last, asked or 0.0)

    def over(self, seconds: float) -> float:
        """It has succeeded: `seconds` until the next look, and the next try that fails is the first again."""
        self._last = 0.0
        return seconds


class WatchedFiles:
    """Remembers how files were when they were last taken in.

    A file is reported once it is the same at two looks in a row: one that is still being written is left alone.
    Time and size tell; the mesh compares the content.
    """

    def __init__(self, find: Callable[[], Sequence[SourceFile]]) -> None:
        """`find` gives the files there are now."""
        self._find = find
        self._taken: dict[str, _State | None] = {}
        self._last: dict[str, _State | None] = {}

    def begin(self) -> Sequence[SourceFile]:
        """All files, to be taken in as they are."""
        files = list(self._find())
        self._last = {source.external_id: _state(source) for source in files}
        self._taken = dict(self._last)
        return files

    def look(self) -> Changes:
        """What has changed and come to rest since it was last taken in. Raises OSError where nothing can be seen."""
        files = {source.external_id: source for source in self._find()}
        now = {name: _state(source) for name, source in files.items()}
        changed = [
            files[name]
            for name, state in now.items()
            if state != self._taken.get(name, _NEVER) and name in self._last and self._last[name] == state
        ]
        gone = [name for name in self._taken if name not in now and name not in self._last]
        self._last = now
        return Changes(files=changed, gone=gone)

    def names(self) -> set[str]:
        """Of the files that were there at the last look."""
        return set(self._last)

    def taken(self, changes: Changes) -> None:
        """These were taken in, or cannot be as they are: they are looked at again when they change."""
        for source in changes.files:
            self._taken[source.external_id] = self._last.get(source.external_id)
        for name in changes.gone:
            self._taken.pop(name, None)

    def again(self, external_id: str) -> None:
        """This one could not be taken in for a reason that will pass: the next look gives it again."""
        self._taken[external_id] = _NEVER


def _state(source: SourceFile) -> _State | None:
    """None where it is gone by now, or cannot be looked at; a folder of a Slack channel is as its files are."""
    try:
        if source.channel is not None and source.path.is_dir():
            states = [entry.stat() for entry in os.scandir(source.path)]
            return max((state.st_mtime_ns for state in states), default=0), sum(state.st_size for state in states)
        state = source.path.stat()
    except OSError:
        return None
    return state.st_mtime_ns, state.st_size
