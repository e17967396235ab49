"""A database behind SQLAlchemy: SQLite in a file, or whatever server the URL names."""

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from alembic import command
from alembic.config import Config
from kbmesh_rpc.errors import DependencyUnavailable
from sqlalchemy import URL, Connection, Engine, RowMapping, Select, event, make_url
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from kbmesh_retriever.catalog.glances import Glances
from kbmesh_retriever.catalog.owners import Owners
from kbmesh_retriever.catalog.sqlite import DRIVER, CatalogSqlite

_DRIVERS = {"sqlite": DRIVER, "postgresql": "postgresql+asyncpg", "postgres": "postgresql+asyncpg"}
_TLS_PARAMETERS = ("sslmode", "sslrootcert", "sslcert", "sslkey", "sslcrl")
_BUSY_TIMEOUT_SECONDS = 15


class Database:
    """Connections for reading and for writing.

    On SQLite writers of one process queue up on a lock of this process, because SQLite itself would let them poll;
    writers of other processes wait by its busy timeout. Raises DependencyUnavailable where the database cannot be
    reached. Its errors do not show parameters, which are titles, names and the like, and would be in logs.
    """

    def __init__(self, url: str) -> None:
        parsed = make_url(url)
        parsed = parsed.set(drivername=_DRIVERS.get(parsed.drivername, parsed.drivername))
        self._sqlite_file: Path | None = None
        self._lock_file: int | None = None
        self._writer: AbstractAsyncContextManager[Any] = nullcontext()
        self._owners: Owners | None = None
        self._reading: dict[str, Any] = {}
        self._glances: Glances | None = None
        if parsed.get_backend_name() == "sqlite":
            if not parsed.database or parsed.database == ":memory:":
                raise ValueError("the catalog must outlive the process: give SQLite a file")
            self._sqlite_file = Path(parsed.database)
            self._writer = asyncio.Lock()
            self._engine = create_async_engine(
                parsed, connect_args={"timeout": _BUSY_TIMEOUT_SECONDS}, hide_parameters=True
            )
            _prepare_sqlite(self._engine.sync_engine)
            self._glances = Glances(self._sqlite_file)
            _prepare_sqlite(self._glances.engine)
        else:
            parsed, transport = _with_tls(parsed)
            self._engine = create_async_engine(
                parsed,
                pool_pre_ping=True,
                isolation_level="READ COMMITTED",
                connect_args=transport,
                hide_parameters=True,
            )
            self._owners = Owners(self._engine)
            self._reading = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}

    async def open(self, owner: str) -> bool:
        """Makes the tables, or brings them up to date, and makes `owner` known as alive until `close`. True where no
        other process has this database open: what earlier processes left half done is then nobody's. Only a SQLite file
        can tell; a server is asked for each owner (`lost`)."""
        alone = False
        if self._sqlite_file is not None:
            alone = await asyncio.to_thread(self._enter_sqlite, self._sqlite_file)
        async with self.writing() as connection:
            await connection.run_sync(migrate)
        if self._owners is not None:
            with _typed_errors():
                await self._owners.hold(owner)
        return alone

    async def lost(self, connection: AsyncConnection, owners: Collection[str]) -> Collection[str]:
        """Those of these that are known to be dead. A SQLite file cannot tell after `open`."""
        if self._owners is None:
            return ()
        await self._owners.hold_again()
        return await self._owners.lost(connection, owners)

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncConnection]:
        """A connection that sees one state of the database."""
        with _typed_errors():
            async with self._engine.connect() as connection:
                if self._reading:
                    await connection.execution_options(**self._reading)
                yield connection

    async def glance(
        self, statement: Select[Any], parameters: Mapping[str, Sequence[Any] | str]
    ) -> Sequence[RowMapping]:
        """The rows of one statement, which is made once: for what many calls wait for. `reading` takes several steps
        where this takes one."""
        with _typed_errors():
            if self._glances is not None:
                return await self._glances.rows(statement, parameters)
            async with self._engine.connect() as connection:
                await connection.execution_options(isolation_level="AUTOCOMMIT")
                rows: Sequence[RowMapping] = (await connection.execute(statement, parameters)).mappings().all()
                return rows

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[AsyncConnection]:
        """A transaction, committed where the block ends without an error."""
        with _typed_errors():
            async with self._writer, self._engine.connect() as connection:
                await connection.execution_options(kbmesh_writes=True)
                async with connection.begin():
                    yield connection

    async def close(self) -> None:
        if self._owners is not None:
            await self._owners.close()
        if self._glances is not None:
            await self._glances.close()
        await self._engine.dispose()
        if isinstance(self._engine.dialect, CatalogSqlite):
            await self._engine.dialect.ended()
        if self._lock_file is not None:
            os.close(self._lock_file)
            self._lock_file = None

    def _enter_sqlite(self, file: Path) -> bool:
        # Every process holds a shared lock for as long as it lives; the kernel takes it away from a killed one.
        # Whoever gets the exclusive lock is alone. It is given up at once, so that nobody is shut out.
        file.parent.mkdir(parents=True, exist_ok=True)
        if self._lock_file is not None:
            return False
        self._lock_file = os.open(file.with_name(file.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            alone = True
        except BlockingIOError:
            alone = False
        fcntl.flock(self._lock_file, fcntl.LOCK_SH)
        return alone


def _with_tls(url: URL) -> tuple[URL, dict[str, Any]]:
    """The URL without libpq's parameters of TLS, and what makes them work: asyncpg knows them in an address of its own
    alone, which SQLAlchemy does not give it. It reads the files anew for each connection."""
    asked = {name: value for name in _TLS_PARAMETERS if isinstance(value := url.query.get(name), str)}
    if not asked:
        return url, {}
    import asyncpg  # type: ignore[import-untyped]  # it ships no py.typed

    connect = partial(asyncpg.connect, f"postgresql://?{urlencode(asked)}")
    return url.difference_update_query(asked), {"async_creator_fn": connect}


@contextmanager
def _typed_errors() -> Iterator[None]:
    """Tells a database that cannot be reached from one that was asked something wrong."""
    try:
        yield
    except (OperationalError, InterfaceError, PoolTimeoutError, OSError) as error:
        raise _unavailable(error) from error
    except DBAPIError as error:
        # asyncpg has no class of its own for a server that shuts down, starts up or breaks off: that comes as the most
        # general one there is. What was asked wrong has a class.
        if type(error) is not DBAPIError and not error.connection_invalidated:
            raise
        raise _unavailable(error) from error


def _unavailable(error: Exception) -> DependencyUnavailable:
    return DependencyUnavailable("catalog", f"the catalog's database failed: {getattr(error, 'orig', None) or error}")


def _prepare_sqlite(engine: Engine) -> None:
    @event.listens_for(engine, "connect")
    def connect(connection: Any, _record: Any) -> None:
        # The driver would open transactions late and only for some statements: begin() below does it instead.
        connection.isolation_level = None
        cursor = connection.cursor()
        cursor.execute("PRAGMA journal_mode=WAL")
        # FULL, because a generation number that a power cut takes back would be given out twice.
        cursor.execute("PRAGMA synchronous=FULL")
        cursor.execute("PRAGMA foreign_keys=ON")
        cursor.close()

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # IMMEDIATE: a transaction that first reads and then writes would fail where another wrote in between.
        writes = connection.get_execution_options().get("kbmesh_writes", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def migrate(connection: Connection, revision: str = "head") -> None:
    """Brings the tables to a revision, in the connection's transaction."""
    if connection.dialect.name == "postgresql":
        # Replicas that start together take turns; the lock ends with the transaction.
        connection.exec_driver_sql("SELECT pg_advisory_xact_lock(7400)")
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).with_name("migrations")).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, revision)
