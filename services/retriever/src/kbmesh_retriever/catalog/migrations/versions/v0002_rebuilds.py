"""Rebuilds of whole knowledge bases."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_NOBODY = "0" * 32


def upgrade() -> None:
    # SQLite adds a column that must have a value only with a default, which is gone again where it can be.
    op.add_column("knowledge_bases", sa.Column("public_id", sa.Uuid(), nullable=False, server_default=_NOBODY))
    op.execute("UPDATE knowledge_bases SET public_id = id")
    if op.get_bind().dialect.name != "sqlite":
        op.alter_column("knowledge_bases", "public_id", server_default=None)
    op.add_column("knowledge_bases", sa.Column("rebuild_of", sa.Uuid()))
    op.create_index(
        "uq_knowledge_bases_live_public_id",
        "knowledge_bases",
        ["public_id"],
        unique=True,
        sqlite_where=sa.text("state = 'live'"),
        postgresql_where=sa.text("state = 'live'"),
    )
    op.create_index(
        "uq_knowledge_bases_rebuild_of",
        "knowledge_bases",
        ["rebuild_of"],
        unique=True,
        sqlite_where=sa.text("state = 'rebuilding'"),
        postgresql_where=sa.text("state = 'rebuilding'"),
    )
    op.add_column("generations", sa.Column("source_fingerprint", sa.String(64)))
    op.create_table(
        "rebuild_failures",
        sa.Column("knowledge_base_id", sa.Uuid(), nullable=False),
        sa.Column("external_id", sa.String(1024), nullable=False),
        sa.Column("reason", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("knowledge_base_id", "external_id", name="pk_rebuild_failures"),
        sa.ForeignKeyConstraint(
            ["knowledge_base_id"], ["knowledge_bases.id"], name="fk_rebuild_failures_knowledge_base_id"
        ),
    )


def downgrade() -> None:
    op.drop_table("rebuild_failures")
    op.drop_column("generations", "source_fingerprint")
    op.drop_index("uq_knowledge_bases_rebuild_of", "knowledge_bases")
    op.drop_index("uq_knowledge_bases_live_public_id", "knowledge_bases")
    op.drop_column("knowledge_bases", "rebuild_of")
    op.drop_column("knowledge_bases", "public_id")
