"""Jobs of ingestion, and what a version's payload is made of."""

import sqlalchemy as sa
from alembic import op
from kbmesh_retriever.catalog.tables import UtcDateTime

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("generations", sa.Column("payload_fingerprint", sa.String(64)))
    op.add_column("generations", sa.Column("text_characters", sa.BigInteger()))
    op.add_column("generations", sa.Column("found_metadata", sa.JSON()))
    op.add_column("generations", sa.Column("given_metadata", sa.JSON()))
    op.create_table(
        "jobs",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("knowledge_base_id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("updated_at", UtcDateTime(), nullable=False),
        sa.Column("finished_at", UtcDateTime()),
        sa.Column("results_kept", sa.BigInteger(), nullable=False),
        sa.Column("results_not_kept", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_jobs"),
        sa.UniqueConstraint("knowledge_base_id", "name", name="uq_jobs_knowledge_base_id_name"),
    )
    op.create_index("ix_jobs_updated_at", "jobs", ["updated_at"])
    op.create_table(
        "job_results",
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("key", sa.String(64), nullable=False),
        sa.Column("external_id", sa.String(1024), nullable=False),
        sa.Column("document_id", sa.String(36), nullable=False),
        sa.Column("outcome", sa.String(16), nullable=False),
        sa.Column("content_sha256", sa.LargeBinary(32), nullable=False),
        sa.Column("chunks", sa.Integer(), nullable=False),
        sa.Column("embedded", sa.Integer(), nullable=False),
        sa.Column("tokens", sa.BigInteger(), nullable=False),
        sa.Column("truncated", sa.Integer(), nullable=False),
        sa.Column("error_reason", sa.String(64), nullable=False),
        sa.Column("error_message", sa.Text(), nullable=False),
        sa.Column("error_metadata", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("job_id", "key", name="pk_job_results"),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_job_results_job_id", ondelete="CASCADE"),
    )


def downgrade() -> None:
    op.drop_table("job_results")
    op.drop_table("jobs")
    for column in ("given_metadata", "found_metadata", "text_characters", "payload_fingerprint"):
        op.drop_column("generations", column)
