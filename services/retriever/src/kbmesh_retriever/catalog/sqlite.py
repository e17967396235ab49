"""SQLite as SQLAlchemy's driver serves it, but for how a connection ends whose user was cancelled."""

import asyncio
from typing import Any

from sqlalchemy.dialects import registry
from sqlalchemy.dialects.sqlite.aiosqlite import SQLiteDialect_aiosqlite

DRIVER = "sqlite+kbmesh"
"""What a URL names this by."""


class CatalogSqlite(SQLiteDialect_aiosqlite):
    """Ends a connection without waiting for it. The driver's own way waits, and where it is cancelled while it does, it
    leaves a task behind that never ends."""

    supports_statement_cache = True

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._ending: set[asyncio.Future[Any]] = set()

    def do_terminate(self, dbapi_connection: Any) -> None:
        """The connection's thread closes it after the statement it is at; what was not committed is rolled back."""
        ended: asyncio.Future[Any] | None = dbapi_connection.driver_connection.stop()
        if ended is not None:
            self._ending.add(ended)
            ended.add_done_callback(self._ending.discard)

    async def ended(self) -> None:
        """Waits until every connection that was to end has ended."""
        if self._ending:
            await asyncio.wait(self._ending)


registry.register("sqlite.kbmesh", __name__, CatalogSqlite.__name__)
