"""On PostgreSQL the processes know of each other who is alive."""

import pytest
from kbmesh_retriever.catalog.sql import SqlCatalog
from postgres_process import PostgresServer
from retriever.catalog_values import described, knowledge_base
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

pytestmark = pytest.mark.parametrize("catalog_url", ["postgresql"], indirect=True)


async def terminate_all(url: str) -> None:
    """Ends every other connection to the database, as a restart of the server does."""
    engine = create_async_engine(url.replace("postgresql://", "postgresql+asyncpg://"))
    async with engine.connect() as connection:
        await connection.execute(
            text(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        )
    await engine.dispose()


async def test_who_lost_its_connections_is_alive_again_with_its_next_sweep(
    catalog_url: str, postgres: PostgresServer
) -> None:
    first, second = SqlCatalog(catalog_url), SqlCatalog(catalog_url)
    await first.open()
    await second.open()
    kb = knowledge_base()
    await first.create_knowledge_base(kb)
    reservation = await first.reserve_generation(kb.id, "a")
    assert await second.due_for_deletion(older_than_seconds=0, limit=9) == [], "its owner is alive"

    for _ in range(2):
        await terminate_all(catalog_url)
        await first.due_for_deletion(older_than_seconds=0, limit=9)
        assert await second.due_for_deletion(older_than_seconds=0, limit=9) == []
    await first.publish(reservation, described(reservation))

    left = await first.reserve_generation(kb.id, "b")
    await first.close()
    [due] = await second.due_for_deletion(older_than_seconds=0, limit=9)
    assert due.document_id == left.document_id
    await second.close()
