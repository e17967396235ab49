"""Who may read a knowledge base and a document, tags, and how vectors are compared."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Until now everybody of the tenant could read everything, and vectors were compared by their cosine.
    columns = (
        sa.Column("readers", sa.JSON(), nullable=False, server_default="[]"),
        sa.Column("distance", sa.String(16), nullable=False, server_default="cosine"),
    )
    for column in columns:
        op.add_column("knowledge_bases", column)
        if op.get_bind().dialect.name != "sqlite":
            op.alter_column("knowledge_bases", column.name, server_default=None)
    for name in ("tags", "principals", "narrowed_to"):
        op.add_column("generations", sa.Column(name, sa.JSON()))


def downgrade() -> None:
    for name in ("narrowed_to", "principals", "tags"):
        op.drop_column("generations", name)
    op.drop_column("knowledge_bases", "distance")
    op.drop_column("knowledge_bases", "readers")
