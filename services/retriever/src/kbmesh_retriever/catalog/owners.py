"""Which processes are alive, by PostgreSQL's advisory locks."""

import hashlib
from collections.abc import Collection

from sqlalchemy import BigInteger, bindparam, func, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine


class Owners:
    """Every process holds a lock on its own name for as long as it lives; the server takes it away from a killed one.

    A lock that is lost with its connection, or kept by a pooler between here and the server, costs nothing that is
    right: who is wrongly taken for dead finds its reservation gone when it publishes, and begins anew; who is wrongly
    taken for alive is given up by the reservation's timeout.
    """

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._owner = ""
        self._connection: AsyncConnection | None = None

    async def hold(self, owner: str) -> None:
        """Takes the lock on `owner` until `close`."""
        self._owner = owner
        await self._take()

    async def hold_again(self) -> None:
        """Takes the lock again where its connection was lost. Does nothing before `hold` and after `close`."""
        if not self._owner:
            return
        if self._connection is not None:
            try:
                await self._connection.execute(select(1))
                return
            except (SQLAlchemyError, OSError):
                await self._drop()
        await self._take()

    async def lost(self, connection: AsyncConnection, owners: Collection[str]) -> Collection[str]:
        """Those of these whose lock nobody holds."""
        gone = []
        for owner in owners:
            # Given back when the transaction ends, so that a process of that name may come back.
            taken = select(func.pg_try_advisory_xact_lock(bindparam("key", _key(owner), BigInteger)))
            if owner != self._owner and await connection.scalar(taken):
                gone.append(owner)
        return gone

    async def close(self) -> None:
        """Gives the lock up."""
        self._owner = ""
        await self._drop()

    async def _take(self) -> None:
        # Outside of any transaction, which would stay open for as long as the process lives.
        connection = await self._engine.connect()
        try:
            await connection.execution_options(isolation_level="AUTOCOMMIT")
            await connection.execute(select(func.pg_advisory_lock(bindparam("key", _key(self._owner), BigInteger))))
        except BaseException:
            await connection.invalidate()
            await connection.close()
            raise
        self._connection = connection

    async def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            # Not back to the pool, where it would keep the lock.
            await connection.invalidate()
            await connection.close()


def _key(owner: str) -> int:
    return int.from_bytes(hashlib.sha256(f"kbmesh owner {owner}".encode()).digest()[:8], "big", signed=True)
