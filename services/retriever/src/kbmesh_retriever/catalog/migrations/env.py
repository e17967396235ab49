"""Runs the catalog's migrations on the connection it is handed. Alembic loads it."""

from alembic import context
from kbmesh_retriever.catalog.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    transactional_ddl=True,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
