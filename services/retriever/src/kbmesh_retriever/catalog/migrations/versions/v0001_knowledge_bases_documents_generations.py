"""Knowledge bases, documents and their generations."""

import sqlalchemy as sa
from alembic import op
from kbmesh_retriever.catalog.tables import UtcDateTime

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "knowledge_bases",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("tenant", sa.String(255), nullable=False),
        sa.Column("name", sa.String(63), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("chunking", sa.JSON(), nullable=False),
        sa.Column("embedding_model", sa.String(255), nullable=False),
        sa.Column("model_fingerprint", sa.String(255), nullable=False),
        sa.Column("dimension", sa.Integer(), nullable=False),
        sa.Column("placement", sa.String(16), nullable=False),
        sa.Column("collection", sa.String(255), nullable=False),
        sa.Column("vector_top_k", sa.Integer(), nullable=False),
        sa.Column("min_vector_score", sa.Float(), nullable=False),
        sa.Column("weight", sa.Float(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("document_count", sa.BigInteger(), nullable=False),
        sa.Column("chunk_count", sa.BigInteger(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("updated_at", UtcDateTime(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("owner", sa.String(64)),
        sa.Column("state_since", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_knowledge_bases"),
    )
    op.create_index(
        "uq_knowledge_bases_live_name",
        "knowledge_bases",
        ["tenant", "name"],
        unique=True,
        sqlite_where=sa.text("state = 'live'"),
        postgresql_where=sa.text("state = 'live'"),
    )
    op.create_index("ix_knowledge_bases_state_since", "knowledge_bases", ["state", "state_since"])
    op.create_table(
        "documents",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("knowledge_base_id", sa.Uuid(), nullable=False),
        sa.Column("external_id", sa.String(1024), nullable=False),
        sa.Column("current_generation", sa.BigInteger()),
        sa.Column("last_generation", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_documents"),
        sa.ForeignKeyConstraint(["knowledge_base_id"], ["knowledge_bases.id"], name="fk_documents_knowledge_base_id"),
        sa.UniqueConstraint("knowledge_base_id", "external_id", name="uq_documents_knowledge_base_id_external_id"),
    )
    op.create_table(
        "generations",
        sa.Column("document_id", sa.Uuid(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("knowledge_base_id", sa.Uuid(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("owner", sa.String(64), nullable=False),
        sa.Column("published_counter", sa.BigInteger()),
        sa.Column("superseded_counter", sa.BigInteger()),
        sa.Column("state_since", UtcDateTime(), nullable=False),
        sa.Column("title", sa.Text()),
        sa.Column("uri", sa.Text()),
        sa.Column("source_type", sa.String(32)),
        sa.Column("media_type", sa.String(255)),
        sa.Column("author", sa.Text()),
        sa.Column("created_at", UtcDateTime()),
        sa.Column("ingested_at", UtcDateTime()),
        sa.Column("content_sha256", sa.LargeBinary(32)),
        sa.Column("fingerprint", sa.String(64)),
        sa.Column("description_fingerprint", sa.String(64)),
        sa.Column("chunk_count", sa.Integer()),
        sa.Column("strategy", sa.String(32)),
        sa.Column("metadata", sa.JSON()),
        sa.PrimaryKeyConstraint("document_id", "number", name="pk_generations"),
        sa.ForeignKeyConstraint(["document_id"], ["documents.id"], name="fk_generations_document_id"),
        sa.ForeignKeyConstraint(["knowledge_base_id"], ["knowledge_bases.id"], name="fk_generations_knowledge_base_id"),
    )
    op.create_index("ix_generations_state_since", "generations", ["state", "state_since"])
    op.create_index("ix_generations_knowledge_base_id_state", "generations", ["knowledge_base_id", "state"])


def downgrade() -> None:
    op.drop_table("generations")
    op.drop_table("documents")
    op.drop_table("knowledge_bases")
