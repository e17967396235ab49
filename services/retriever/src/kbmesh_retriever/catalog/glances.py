"""Short reads of a SQLite file, each in one step of one thread, and none where nothing was written since.

SQLAlchemy's asynchronous driver goes to its thread and back for every part of a read: begin, cursor, execution, rows,
end. Where a call waits for one small read, that is most of its time.
"""

import asyncio
import sqlite3
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Engine, RowMapping, Select, create_engine

_THREADS = 2
_BUSY_TIMEOUT_SECONDS = 15
_MAX_REMEMBERED = 1000


class Glances:
    """Reads of one statement. `engine` is to be prepared as that of other connections before the first."""

    def __init__(self, file: Path) -> None:
        self.engine: Engine = create_engine(
            URL.create("sqlite", database=str(file)),
            # A connection is used by one thread at a time, and not always by the same.
            connect_args={"timeout": _BUSY_TIMEOUT_SECONDS, "check_same_thread": False},
            hide_parameters=True,
        )
        self._file = file
        self._threads = ThreadPoolExecutor(max_workers=_THREADS, thread_name_prefix="catalog-glance")
        self._watch: sqlite3.Connection | None = None
        self._version: int | None = None
        self._remembered: dict[object, Sequence[RowMapping]] = {}

    async def rows(self, statement: Select[Any], parameters: Mapping[str, Sequence[Any] | str]) -> Sequence[RowMapping]:
        """The rows, as the file had them at one moment between call and answer. `statement` is made once and lives as
        long as the process. A caller who leaves does not end the read, which is short."""
        version = self._data_version()
        if version != self._version:
            self._remembered.clear()
            self._version = version
        key = (
            id(statement),
            tuple((name, value if isinstance(value, str) else tuple(value)) for name, value in parameters.items()),
        )
        known = self._remembered.get(key)
        if known is not None:
            return known
        rows = await asyncio.get_running_loop().run_in_executor(self._threads, self._rows, statement, dict(parameters))
        # As of the version or later: what was written since then changes the version too.
        if version is not None and version == self._version and len(self._remembered) < _MAX_REMEMBERED:
            self._remembered[key] = rows
        return rows

    async def close(self) -> None:
        await asyncio.to_thread(self._threads.shutdown)
        self.engine.dispose()
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def _data_version(self) -> int | None:
        """A number that is another one after every commit to the file, by whatever process. None where it cannot be
        told. It is read from memory that SQLite shares among its users, in some 10 µs: a thread would take longer."""
        try:
            if self._watch is None:
                # Without a wait: where the file is not free at once, it is read in a thread.
                self._watch = sqlite3.connect(f"{self._file.absolute().as_uri()}?mode=ro", uri=True, timeout=0)
            version: int = self._watch.execute("PRAGMA data_version").fetchone()[0]
        except sqlite3.Error:
            return None
        return version

    def _rows(self, statement: Select[Any], parameters: Mapping[str, Any]) -> Sequence[RowMapping]:
        with self.engine.connect() as connection:
            return connection.execute(statement, parameters).mappings().all()
