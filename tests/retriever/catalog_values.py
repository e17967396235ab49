"""Knowledge bases and documents for tests of the catalog alone."""

from uuid import UUID, uuid4

import pytest
from kbmesh_retriever.catalog.port import Document, KnowledgeBase, Reservation
from kbmesh_retriever.catalog.sql import SqlCatalog
from retriever.workshop import START

BOTH_DATABASES = pytest.mark.parametrize("catalog_url", ["sqlite", "postgresql"], indirect=True)
"""Runs a test once over SQLite and once over PostgreSQL, where there is one."""


def knowledge_base(name: str = "kb", tenant: str = "default") -> KnowledgeBase:
    kb_id = uuid4()
    return KnowledgeBase(
        id=kb_id,
        tenant=tenant,
        name=name,
        embedding_model="m",
        model_fingerprint="f",
        dimension=4,
        collection=f"kb-{kb_id}",
        created_at=START,
        updated_at=START,
    )


def described(reservation: Reservation, title: str = "", external_id: str = "a", chunks: int = 1) -> Document:
    return Document(
        id=reservation.document_id,
        knowledge_base_id=reservation.knowledge_base_id,
        external_id=external_id,
        title=title,
        uri="",
        source_type="file",
        media_type="text/plain",
        author="",
        created_at=None,
        ingested_at=START,
        content_sha256=b"\0" * 32,
        fingerprint="",
        generation=reservation.generation,
        chunk_count=chunks,
        strategy="fixed",
    )


async def publish(catalog: SqlCatalog, kb: UUID, title: str, external_id: str = "a", chunks: int = 1) -> Reservation:
    reservation = await catalog.reserve_generation(kb, external_id)
    await catalog.publish(reservation, described(reservation, title, external_id, chunks))
    return reservation
