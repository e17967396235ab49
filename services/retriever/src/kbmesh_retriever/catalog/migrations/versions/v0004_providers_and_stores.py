"""Who serves a knowledge base's model, and which vector store holds its vectors."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Until now there were but these.
    for name, value in (("embedding_provider", "onnx"), ("vector_store", "qdrant")):
        op.add_column("knowledge_bases", sa.Column(name, sa.String(63), nullable=False, server_default=value))
        if op.get_bind().dialect.name != "sqlite":
            op.alter_column("knowledge_bases", name, server_default=None)


def downgrade() -> None:
    op.drop_column("knowledge_bases", "vector_store")
    op.drop_column("knowledge_bases", "embedding_provider")
