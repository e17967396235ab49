"""The migrations make the tables that the code uses."""

from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from kbmesh_retriever.catalog.database import Database
from kbmesh_retriever.catalog.sql import SqlCatalog
from kbmesh_retriever.catalog.tables import metadata
from sqlalchemy import create_engine
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateIndex, CreateTable


async def test_migrations_and_tables_agree(catalog: SqlCatalog, tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'catalog.db'}")
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
    engine.dispose()


def test_the_tables_can_be_written_for_postgresql() -> None:
    dialect = postgresql.dialect()
    for table in metadata.sorted_tables:
        assert "CREATE TABLE" in str(CreateTable(table).compile(dialect=dialect))
        indexes = [str(CreateIndex(index).compile(dialect=dialect)) for index in table.indexes]
        if table.name == "knowledge_bases":
            assert any("UNIQUE" in index and "WHERE state = 'live'" in index for index in indexes)


def test_the_catalog_is_not_kept_in_memory() -> None:
    with pytest.raises(ValueError, match="outlive"):
        Database("sqlite://")
