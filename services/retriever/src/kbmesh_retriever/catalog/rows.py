"""Between the catalog's rows and its values."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from sqlalchemy import RowMapping

from kbmesh_retriever.catalog.port import Document, KnowledgeBase, RetrievalDefaults
from kbmesh_retriever.catalog.tables import documents, generations


def knowledge_base_of(row: RowMapping) -> KnowledgeBase:
    """`row` has all columns of `knowledge_bases`."""
    return KnowledgeBase(
        id=row["id"],
        tenant=row["tenant"],
        name=row["name"],
        description=row["description"],
        chunking=row["chunking"],
        embedding_model=row["embedding_model"],
        model_fingerprint=row["model_fingerprint"],
        dimension=row["dimension"],
        embedding_provider=row["embedding_provider"],
        vector_store=row["vector_store"],
        placement=row["placement"],
        collection=row["collection"],
        distance=row["distance"],
        readers=tuple(row["readers"]),
        retrieval=RetrievalDefaults(
            vector_top_k=row["vector_top_k"], min_vector_score=row["min_vector_score"], weight=row["weight"]
        ),
        generation=row["generation"],
        document_count=row["document_count"],
        chunk_count=row["chunk_count"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        known_as=None if row["public_id"] == row["id"] else row["public_id"],
    )


def knowledge_base_values(knowledge_base: KnowledgeBase) -> Mapping[str, Any]:
    """The columns of `knowledge_bases` that its value has."""
    return {
        "id": knowledge_base.id,
        "public_id": knowledge_base.public_id,
        "tenant": knowledge_base.tenant,
        "name": knowledge_base.name,
        "description": knowledge_base.description,
        "chunking": dict(knowledge_base.chunking),
        "embedding_model": knowledge_base.embedding_model,
        "model_fingerprint": knowledge_base.model_fingerprint,
        "dimension": knowledge_base.dimension,
        "embedding_provider": knowledge_base.embedding_provider,
        "vector_store": knowledge_base.vector_store,
        "placement": knowledge_base.placement,
        "collection": knowledge_base.collection,
        "distance": knowledge_base.distance,
        "readers": list(knowledge_base.readers),
        "generation": knowledge_base.generation,
        "document_count": knowledge_base.document_count,
        "chunk_count": knowledge_base.chunk_count,
        "created_at": knowledge_base.created_at,
        "updated_at": knowledge_base.updated_at,
        **retrieval_values(knowledge_base.retrieval),
    }


def retrieval_values(retrieval: RetrievalDefaults) -> Mapping[str, Any]:
    return {
        "vector_top_k": retrieval.vector_top_k,
        "min_vector_score": retrieval.min_vector_score,
        "weight": retrieval.weight,
    }


DOCUMENT_COLUMNS = (documents.c.external_id, *generations.c)
"""What `document_of` reads."""


def document_of(row: RowMapping) -> Document:
    """The document as the generation in `row` has it."""
    return Document(
        id=row["document_id"],
        knowledge_base_id=row["knowledge_base_id"],
        external_id=row["external_id"],
        title=row["title"],
        uri=row["uri"],
        source_type=row["source_type"],
        media_type=row["media_type"],
        author=row["author"],
        created_at=row["created_at"],
        ingested_at=row["ingested_at"],
        content_sha256=row["content_sha256"],
        fingerprint=row["fingerprint"],
        description_fingerprint=row["description_fingerprint"],
        source_fingerprint=row["source_fingerprint"] or "",
        generation=row["number"],
        chunk_count=row["chunk_count"],
        strategy=row["strategy"],
        metadata=row["metadata"],
        found_metadata=row["found_metadata"] or {},
        given_metadata=row["given_metadata"] or {},
        payload_fingerprint=row["payload_fingerprint"] or "",
        text_characters=row["text_characters"],
        tags=tuple(row["tags"] or ()),
        principals=tuple(row["principals"] or ()),
        narrowed_to=tuple(row["narrowed_to"] or ()),
    )


def description_values(document: Document) -> Mapping[str, Any]:
    """The columns of `generations` that may change while its chunks stay."""
    return {
        "title": document.title,
        "uri": document.uri,
        "author": document.author,
        "created_at": document.created_at,
        "description_fingerprint": document.description_fingerprint,
        "source_fingerprint": document.source_fingerprint,
        "narrowed_to": list(document.narrowed_to),
    }


def document_values(document: Document) -> Mapping[str, Any]:
    """The columns of `generations` that describe a version."""
    return {
        "source_type": document.source_type,
        "media_type": document.media_type,
        "ingested_at": document.ingested_at,
        "content_sha256": document.content_sha256,
        "fingerprint": document.fingerprint,
        "chunk_count": document.chunk_count,
        "strategy": document.strategy,
        "metadata": dict(document.metadata),
        "found_metadata": dict(document.found_metadata),
        "given_metadata": dict(document.given_metadata),
        "payload_fingerprint": document.payload_fingerprint,
        "text_characters": document.text_characters,
        "tags": list(document.tags),
        "principals": list(document.principals),
        **description_values(document),
    }


def uuid_or_none(text: str) -> UUID | None:
    """The UUID that `text` is in its usual form, with dashes."""
    if len(text) != 36:
        return None
    try:
        return UUID(text)
    except ValueError:
        return None
