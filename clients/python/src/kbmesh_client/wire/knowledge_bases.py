"""Knowledge bases, between values and messages."""

from collections.abc import Sequence

from google.protobuf.field_mask_pb2 import FieldMask
from kbmesh.retriever.v1 import knowledge_base_pb2

from kbmesh_client.chunks import ChunkingConfig
from kbmesh_client.enums import Distance, Placement, RebuildState
from kbmesh_client.knowledge_bases import KnowledgeBase, Rebuild, RetrievalDefaults
from kbmesh_client.wire.chunks import config_from_wire, config_to_wire, time_from_wire
from kbmesh_client.wire.enums import from_number, reason_name


def create_request(
    name: str,
    *,
    description: str,
    chunking: ChunkingConfig | None,
    embedding_model: str,
    placement: Placement | str,
    retrieval: RetrievalDefaults | None,
    readers: Sequence[str],
    distance: Distance | str,
) -> knowledge_base_pb2.CreateKnowledgeBaseRequest:
    """Raises ValueError for a placement, distance, strategy or unit that there is not."""
    return knowledge_base_pb2.CreateKnowledgeBaseRequest(
        knowledge_base=knowledge_base_pb2.KnowledgeBase(
            name=name,
            description=description,
            chunking=config_to_wire(chunking),
            embedding_model=embedding_model,
            placement=knowledge_base_pb2.Placement.Value(f"PLACEMENT_{Placement(placement)}"),
            retrieval=_defaults_to_wire(retrieval),
            readers=_names(readers),
            distance=knowledge_base_pb2.Distance.Value(f"DISTANCE_{Distance(distance)}"),
        )
    )


def update_request(
    name: str, *, description: str | None, retrieval: RetrievalDefaults | None, readers: Sequence[str] | None
) -> knowledge_base_pb2.UpdateKnowledgeBaseRequest:
    """Changes only what is given. Raises ValueError where nothing is."""
    paths = [
        *(["description"] if description is not None else []),
        *(["retrieval"] if retrieval is not None else []),
        *(["readers"] if readers is not None else []),
    ]
    if not paths:
        raise ValueError("nothing to update: give a description, retrieval defaults or readers")
    return knowledge_base_pb2.UpdateKnowledgeBaseRequest(
        knowledge_base=knowledge_base_pb2.KnowledgeBase(
            name=name,
            description=description or "",
            retrieval=_defaults_to_wire(retrieval),
            readers=_names(readers or ()),
        ),
        update_mask=FieldMask(paths=paths),
    )


def rebuild_request(
    name: str, *, chunking: ChunkingConfig | None, embedding_model: str, placement: Placement | str | None
) -> knowledge_base_pb2.UpdateKnowledgeBaseRequest:
    """What is None or empty stays as it is. Raises ValueError for a placement, strategy or unit that there is not."""
    return knowledge_base_pb2.UpdateKnowledgeBaseRequest(
        knowledge_base=knowledge_base_pb2.KnowledgeBase(
            name=name,
            chunking=None if chunking is None else config_to_wire(chunking),
            embedding_model=embedding_model,
            placement=(
                knowledge_base_pb2.PLACEMENT_UNSPECIFIED
                if placement is None
                else knowledge_base_pb2.Placement.Value(f"PLACEMENT_{Placement(placement)}")
            ),
        ),
        rebuild=True,
    )


def knowledge_base_from_wire(message: knowledge_base_pb2.KnowledgeBase) -> KnowledgeBase:
    """Reads a knowledge base."""
    retrieval = message.retrieval
    return KnowledgeBase(
        id=message.id,
        name=message.name,
        description=message.description,
        chunking=config_from_wire(message.chunking),
        embedding_model=message.embedding_model,
        model_fingerprint=message.model_fingerprint,
        dimension=message.dimension,
        placement=_placement(message.placement),
        retrieval=RetrievalDefaults(
            vector_top_k=retrieval.vector_top_k if retrieval.HasField("vector_top_k") else None,
            min_vector_score=retrieval.min_vector_score if retrieval.HasField("min_vector_score") else None,
            weight=retrieval.weight if retrieval.HasField("weight") else None,
        ),
        generation=message.generation,
        document_count=message.document_count,
        chunk_count=message.chunk_count,
        created_at=time_from_wire(message.created_at),
        updated_at=time_from_wire(message.updated_at),
        embedding_provider=message.embedding_provider,
        vector_store=message.vector_store,
        readers=tuple(message.readers),
        distance=from_number(
            Distance, knowledge_base_pb2.Distance.Name, message.distance, "DISTANCE_", Distance.UNKNOWN
        ),
        rebuild=_rebuild_from_wire(message.rebuild) if message.HasField("rebuild") else None,
    )


def _rebuild_from_wire(message: knowledge_base_pb2.Rebuild) -> Rebuild:
    return Rebuild(
        state=from_number(
            RebuildState, knowledge_base_pb2.RebuildState.Name, message.state, "REBUILD_STATE_", RebuildState.UNKNOWN
        ),
        chunking=config_from_wire(message.chunking),
        embedding_model=message.embedding_model,
        model_fingerprint=message.model_fingerprint,
        dimension=message.dimension,
        placement=_placement(message.placement),
        documents_done=message.documents_done,
        documents_total=message.documents_total,
        documents_failed=message.documents_failed,
        failures={failure.external_id: reason_name(failure.reason) for failure in message.failures},
        started_at=time_from_wire(message.started_at),
    )


def _names(names: Sequence[str]) -> Sequence[str]:
    if isinstance(names, str):
        # Each letter of it would be a name.
        raise ValueError(f"{names!r} is one name where several are meant")
    return names


def _placement(number: int) -> Placement:
    return from_number(Placement, knowledge_base_pb2.Placement.Name, number, "PLACEMENT_", Placement.UNKNOWN)


def _defaults_to_wire(defaults: RetrievalDefaults | None) -> knowledge_base_pb2.RetrievalDefaults | None:
    if defaults is None:
        return None
    return knowledge_base_pb2.RetrievalDefaults(
        vector_top_k=defaults.vector_top_k, min_vector_score=defaults.min_vector_score, weight=defaults.weight
    )
