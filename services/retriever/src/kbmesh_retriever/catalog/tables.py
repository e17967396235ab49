"""The catalog's tables. A change here needs a migration in `migrations/versions`."""

from datetime import UTC, datetime

from sqlalchemy import (
    JSON,
    BigInteger,
    Column,
    DateTime,
    Dialect,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
    Uuid,
)

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


class UtcDateTime(TypeDecorator[datetime]):
    """A point in time. SQLite keeps no time zone, so that it is UTC by agreement there."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return None if value is None else value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


MAKING, LIVE, REBUILDING, DELETED = "making", "live", "rebuilding", "deleted"
"""States of a knowledge base. Only LIVE ones are seen by readers; a REBUILDING one is to take the place of one."""

RESERVED, CURRENT, SUPERSEDED, ABANDONED = "reserved", "current", "superseded", "abandoned"
"""States of a generation."""

knowledge_bases = Table(
    "knowledge_bases",
    metadata,
    # What documents, generations and points belong to. A rebuild has one of its own.
    Column("id", Uuid, primary_key=True),
    # What callers know it by: the id that it was made with, also after rebuilds.
    Column("public_id", Uuid, nullable=False),
    # Of a rebuild, the knowledge base whose place it is to take.
    Column("rebuild_of", Uuid),
    Column("tenant", String(255), nullable=False),
    Column("name", String(63), nullable=False),
    Column("description", Text, nullable=False),
    Column("chunking", JSON, nullable=False),
    Column("embedding_model", String(255), nullable=False),
    Column("model_fingerprint", String(255), nullable=False),
    Column("dimension", Integer, nullable=False),
    Column("embedding_provider", String(63), nullable=False),
    Column("vector_store", String(63), nullable=False),
    Column("placement", String(16), nullable=False),
    Column("collection", String(255), nullable=False),
    Column("vector_top_k", Integer, nullable=False),
    Column("min_vector_score", Float, nullable=False),
    Column("weight", Float, nullable=False),
    # Principals who may retrieve from it; everybody of the tenant where empty.
    Column("readers", JSON, nullable=False),
    Column("distance", String(16), nullable=False),
    Column("generation", BigInteger, nullable=False),
    Column("document_count", BigInteger, nullable=False),
    Column("chunk_count", BigInteger, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("updated_at", UtcDateTime, nullable=False),
    Column("state", String(16), nullable=False),
    # The process that is making it: where that is gone, so is hope that it will be finished.
    Column("owner", String(64)),
    # When it was deleted, or its making began.
    Column("state_since", UtcDateTime, nullable=False),
)
live_name = Index(
    "uq_knowledge_bases_live_name",
    knowledge_bases.c.tenant,
    knowledge_bases.c.name,
    unique=True,
    sqlite_where=knowledge_bases.c.state == LIVE,
    postgresql_where=knowledge_bases.c.state == LIVE,
)
Index(
    "uq_knowledge_bases_live_public_id",
    knowledge_bases.c.public_id,
    unique=True,
    sqlite_where=knowledge_bases.c.state == LIVE,
    postgresql_where=knowledge_bases.c.state == LIVE,
)
one_rebuild = Index(
    "uq_knowledge_bases_rebuild_of",
    knowledge_bases.c.rebuild_of,
    unique=True,
    sqlite_where=knowledge_bases.c.state == REBUILDING,
    postgresql_where=knowledge_bases.c.state == REBUILDING,
)
Index("ix_knowledge_bases_state_since", knowledge_bases.c.state, knowledge_bases.c.state_since)

documents = Table(
    "documents",
    metadata,
    # Random, so that a document that is deleted, forgotten and made again never takes up old generation numbers.
    Column("id", Uuid, primary_key=True),
    Column("knowledge_base_id", Uuid, ForeignKey("knowledge_bases.id"), nullable=False),
    Column("external_id", String(1024), nullable=False),
    Column("current_generation", BigInteger),
    # Only grows, also over deletion and re-creation.
    Column("last_generation", BigInteger, nullable=False),
    UniqueConstraint("knowledge_base_id", "external_id"),
)

generations = Table(
    "generations",
    metadata,
    Column("document_id", Uuid, ForeignKey("documents.id"), primary_key=True),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("knowledge_base_id", Uuid, ForeignKey("knowledge_bases.id"), nullable=False),
    Column("state", String(16), nullable=False),
    # The process that reserved it.
    Column("owner", String(64), nullable=False),
    # What the knowledge base's counter became by its publication and by its end. Valid for a reader whose counter is
    # not below the first and below the second.
    Column("published_counter", BigInteger),
    Column("superseded_counter", BigInteger),
    # For the sweeper alone; validity never looks at a clock. When it was reserved, became current or ended.
    Column("state_since", UtcDateTime, nullable=False),
    Column("title", Text),
    Column("uri", Text),
    Column("source_type", String(32)),
    Column("media_type", String(255)),
    Column("author", Text),
    Column("created_at", UtcDateTime),
    Column("ingested_at", UtcDateTime),
    Column("content_sha256", LargeBinary(32)),
    Column("fingerprint", String(64)),
    Column("payload_fingerprint", String(64)),
    Column("description_fingerprint", String(64)),
    Column("text_characters", BigInteger),
    Column("source_fingerprint", String(64)),
    Column("chunk_count", Integer),
    Column("strategy", String(32)),
    Column("metadata", JSON),
    # What `metadata` is made of: found in the document, and given by the caller, who wins.
    Column("found_metadata", JSON),
    Column("given_metadata", JSON),
    Column("tags", JSON),
    # Who may read it, as its points say: everybody where empty.
    Column("principals", JSON),
    # Who of those may still read it, where the points lag behind: all of them where empty.
    Column("narrowed_to", JSON),
    Index("ix_generations_state_since", "state", "state_since"),
    Index("ix_generations_knowledge_base_id_state", "knowledge_base_id", "state"),
)

rebuild_failures = Table(
    "rebuild_failures",
    metadata,
    # The rebuild, and what could not be taken into it.
    Column("knowledge_base_id", Uuid, ForeignKey("knowledge_bases.id"), primary_key=True),
    Column("external_id", String(1024), primary_key=True),
    Column("reason", String(64), nullable=False),
)

jobs = Table(
    "jobs",
    metadata,
    Column("id", Uuid, primary_key=True),
    # Its public id: a job outlives a rebuild.
    Column("knowledge_base_id", Uuid, nullable=False),
    Column("name", String(128), nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("updated_at", UtcDateTime, nullable=False),
    Column("finished_at", UtcDateTime),
    Column("results_kept", BigInteger, nullable=False),
    Column("results_not_kept", BigInteger, nullable=False),
    UniqueConstraint("knowledge_base_id", "name"),
    Index("ix_jobs_updated_at", "updated_at"),
)

job_results = Table(
    "job_results",
    metadata,
    Column("job_id", Uuid, ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    # SHA-256 hex of the external id, which may be too long for an index of PostgreSQL.
    Column("key", String(64), primary_key=True),
    Column("external_id", String(1024), nullable=False),
    Column("document_id", String(36), nullable=False),
    Column("outcome", String(16), nullable=False),
    Column("content_sha256", LargeBinary(32), nullable=False),
    Column("chunks", Integer, nullable=False),
    Column("embedded", Integer, nullable=False),
    Column("tokens", BigInteger, nullable=False),
    Column("truncated", Integer, nullable=False),
    Column("error_reason", String(64), nullable=False),
    Column("error_message", Text, nullable=False),
    Column("error_metadata", JSON, nullable=False),
)

profiles = Table(
    "profiles",
    metadata,
    Column("tenant", String(255), primary_key=True),
    Column("name", String(63), primary_key=True),
    Column("description", Text, nullable=False),
    # What a request that names it says where it says nothing itself: RetrieveRequest as JSON.
    Column("defaults", JSON, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("updated_at", UtcDateTime, nullable=False),
)
