"""An operator's database: made, migrated from whatever version there is, opened by several at once, or not there."""

import asyncio
import subprocess
import sys
from pathlib import Path
from uuid import UUID

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from edge_process import free_port
from kbmesh_retriever.catalog.database import Database, migrate
from kbmesh_retriever.catalog.sql import SqlCatalog
from kbmesh_retriever.catalog.tables import metadata
from kbmesh_rpc.errors import DependencyUnavailable
from retriever.catalog_values import BOTH_DATABASES, knowledge_base, publish
from sqlalchemy import Connection, text

FIRST_VERSION = """
INSERT INTO knowledge_bases (id, tenant, name, description, chunking, embedding_model, model_fingerprint, dimension,
    placement, collection, vector_top_k, min_vector_score, weight, generation, document_count, chunk_count,
    created_at, updated_at, state, state_since)
VALUES (:id, 'default', 'old', '', '{}', 'm', 'f', 4, 'dedicated', 'kb-old', 20, 0.2, 1, 0, 0, 0,
    '2026-01-01 00:00:00', '2026-01-01 00:00:00', 'live', '2026-01-01 00:00:00')
"""


@BOTH_DATABASES
async def test_migrations_and_tables_agree(catalog: SqlCatalog, catalog_url: str) -> None:
    def differences(connection: Connection) -> list[object]:
        return list(compare_metadata(MigrationContext.configure(connection), metadata))

    database = Database(catalog_url)
    async with database.reading() as connection:
        assert await connection.run_sync(differences) == []
    await database.close()


@BOTH_DATABASES
async def test_what_an_earlier_version_kept_is_found(catalog_url: str) -> None:
    kept = UUID(int=4815)
    database = Database(catalog_url)
    async with database.writing() as connection:
        await connection.run_sync(migrate, "0001")
        shown = str(kept) if connection.dialect.name == "postgresql" else kept.hex
        await connection.execute(text(FIRST_VERSION), {"id": shown})
    await database.close()

    catalog = SqlCatalog(catalog_url)
    await catalog.open()
    found = await catalog.get_knowledge_base("default", str(kept))
    assert (found.id, found.public_id, found.name) == (kept, kept, "old")
    await publish(catalog, kept, "t")
    assert [document.title for document in await catalog.list_documents(kept, limit=9, after="")] == ["t"]
    await catalog.close()


@BOTH_DATABASES
async def test_retrievers_that_start_at_once_all_get_in(catalog_url: str) -> None:
    """On an empty database, each in a process of its own."""
    opening = "import asyncio, sys\nfrom kbmesh_retriever.catalog.sql import SqlCatalog\n"
    opening += "async def main():\n catalog = SqlCatalog(sys.argv[1])\n await catalog.open()\n await catalog.close()\n"
    command = [sys.executable, "-c", opening + "asyncio.run(main())", catalog_url]
    processes = [await asyncio.create_subprocess_exec(*command, stderr=subprocess.PIPE) for _ in range(2)]
    ended = await asyncio.gather(*(process.communicate() for process in processes))
    assert [process.returncode for process in processes] == [0, 0], [error.decode() for _, error in ended]

    # And in one process, where SQLite's own lock does not tell them apart.
    catalogs = [SqlCatalog(catalog_url) for _ in range(4)]
    await asyncio.gather(*(catalog.open() for catalog in catalogs))
    await catalogs[0].create_knowledge_base(knowledge_base("x"))
    for catalog in catalogs:
        assert (await catalog.get_knowledge_base("default", "x")).name == "x"
        await catalog.close()


@BOTH_DATABASES
async def test_external_ids_of_the_greatest_length_are_kept_apart(catalog: SqlCatalog) -> None:
    """Each has 1024 characters, or 2048 bytes, and all but the last are the same: no index is too narrow for them."""
    kb = knowledge_base()
    await catalog.create_knowledge_base(kb)
    wide = "".join(chr(0x100 + (number * 37) % 0x600) for number in range(1023))
    names = [*(f"{'/path' * 204}123"[:1023] + last for last in "ab"), *(wide + last for last in "éè")]
    for name in names:
        assert len(name.encode()) <= 2048
        await publish(catalog, kb.id, name[-1], name)
    assert [(await catalog.get_document(kb.id, name)).title for name in names] == ["a", "b", "é", "è"]


def test_the_catalog_is_not_kept_in_memory() -> None:
    with pytest.raises(ValueError, match="outlive"):
        Database("sqlite://")


async def test_a_database_that_cannot_be_reached_says_so(tmp_path: Path) -> None:
    (tmp_path / "broken.db").mkdir()
    catalog = SqlCatalog(f"sqlite:///{tmp_path / 'broken.db'}")
    with pytest.raises(DependencyUnavailable):
        await catalog.open()
    await catalog.close()


@pytest.mark.usefixtures("postgres")
async def test_a_server_that_cannot_be_reached_says_so() -> None:
    catalog = SqlCatalog(f"postgresql://kbmesh@127.0.0.1:{free_port()}/catalog")
    with pytest.raises(DependencyUnavailable):
        await catalog.open()
    await catalog.close()
