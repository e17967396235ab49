"""KnowledgeBaseService: Protobuf to domain and back."""

from typing import Any

import grpc
from google.protobuf.timestamp_pb2 import Timestamp
from kbmesh.retriever.v1 import knowledge_base_pb2 as pb
from kbmesh.retriever.v1.knowledge_base_pb2_grpc import KnowledgeBaseServiceServicer
from kbmesh_rpc.call import current_call
from kbmesh_rpc.errors import InvalidField

from kbmesh_retriever import chunking_config
from kbmesh_retriever.catalog.port import Catalog, KnowledgeBase, RetrievalDefaults
from kbmesh_retriever.knowledge_bases import KnowledgeBases, NewKnowledgeBase
from kbmesh_retriever.page_token import cut_page, page_limit, read_page_token

_Context = grpc.aio.ServicerContext[Any, Any]

_LIST = "knowledge_bases"
_UPDATABLE = ("description", "retrieval")
_FIXED = "cannot be changed, because the vectors that are there would no longer fit; make another knowledge base"


class KnowledgeBaseServicer(KnowledgeBaseServiceServicer):
    """Serves the tenant of the call."""

    def __init__(self, catalog: Catalog, knowledge_bases: KnowledgeBases) -> None:
        self._catalog = catalog
        self._knowledge_bases = knowledge_bases

    async def CreateKnowledgeBase(
        self, request: pb.CreateKnowledgeBaseRequest, context: _Context
    ) -> pb.CreateKnowledgeBaseResponse:
        wanted = request.knowledge_base
        if wanted.placement not in pb.Placement.values():
            raise InvalidField("knowledge_base.placement", "is none of the contract's")
        made = await self._knowledge_bases.create(
            current_call().tenant,
            NewKnowledgeBase(
                name=wanted.name,
                description=wanted.description,
                chunking=chunking_config.to_json(wanted.chunking),
                embedding_model=wanted.embedding_model,
                placement="shared" if wanted.placement == pb.PLACEMENT_SHARED else "dedicated",
                retrieval=_retrieval(wanted.retrieval, RetrievalDefaults()),
            ),
        )
        return pb.CreateKnowledgeBaseResponse(knowledge_base=_message(made))

    async def GetKnowledgeBase(
        self, request: pb.GetKnowledgeBaseRequest, context: _Context
    ) -> pb.GetKnowledgeBaseResponse:
        _check_named(request.knowledge_base, "knowledge_base")
        found = await self._catalog.get_knowledge_base(current_call().tenant, request.knowledge_base)
        return pb.GetKnowledgeBaseResponse(knowledge_base=_message(found))

    async def ListKnowledgeBases(
        self, request: pb.ListKnowledgeBasesRequest, context: _Context
    ) -> pb.ListKnowledgeBasesResponse:
        tenant, limit = current_call().tenant, page_limit(request.page_size)
        after = read_page_token(request.page_token, _LIST, tenant)
        found = await self._catalog.list_knowledge_bases(tenant, limit=limit + 1, after=after)
        page, token = cut_page(found, limit, lambda knowledge_base: knowledge_base.name, _LIST, tenant)
        return pb.ListKnowledgeBasesResponse(knowledge_bases=map(_message, page), next_page_token=token)

    async def UpdateKnowledgeBase(
        self, request: pb.UpdateKnowledgeBaseRequest, context: _Context
    ) -> pb.UpdateKnowledgeBaseResponse:
        tenant, wanted = current_call().tenant, request.knowledge_base
        name_or_id = wanted.id or wanted.name
        _check_named(name_or_id, "knowledge_base.name")
        paths = _paths(request)
        current = await self._catalog.get_knowledge_base(tenant, name_or_id)
        _check_fixed(wanted, current)
        updated = await self._knowledge_bases.update(
            tenant,
            str(current.id),
            description=wanted.description if "description" in paths else None,
            retrieval=_retrieval(wanted.retrieval, RetrievalDefaults()) if "retrieval" in paths else None,
        )
        return pb.UpdateKnowledgeBaseResponse(knowledge_base=_message(updated))

    async def DeleteKnowledgeBase(
        self, request: pb.DeleteKnowledgeBaseRequest, context: _Context
    ) -> pb.DeleteKnowledgeBaseResponse:
        _check_named(request.knowledge_base, "knowledge_base")
        deleted = await self._knowledge_bases.delete(current_call().tenant, request.knowledge_base)
        return pb.DeleteKnowledgeBaseResponse(documents_deleted=deleted)


def _check_named(name_or_id: str, field: str) -> None:
    if not name_or_id:
        raise InvalidField(field, "must name a knowledge base")


def _paths(request: pb.UpdateKnowledgeBaseRequest) -> tuple[str, ...]:
    if not request.HasField("update_mask"):
        return _UPDATABLE
    paths = tuple(request.update_mask.paths)
    if not paths:
        return _UPDATABLE
    for path in paths:
        if path not in _UPDATABLE:
            known = path.split(".")[0] in pb.KnowledgeBase.DESCRIPTOR.fields_by_name
            raise InvalidField("update_mask", f"{path!r} {_FIXED if known else 'is no field of a knowledge base'}")
    return paths


def _check_fixed(wanted: pb.KnowledgeBase, current: KnowledgeBase) -> None:
    """A caller who sends back what it read, with changes, must learn that some of them would not be made."""
    if wanted.id and wanted.name not in ("", current.name):
        raise InvalidField("knowledge_base.name", "cannot be changed; make another knowledge base")
    if wanted.HasField("chunking") and chunking_config.to_json(wanted.chunking) != current.chunking:
        raise InvalidField("knowledge_base.chunking", _FIXED)
    if wanted.embedding_model not in ("", current.embedding_model):
        raise InvalidField("knowledge_base.embedding_model", _FIXED)
    if wanted.model_fingerprint not in ("", current.model_fingerprint):
        raise InvalidField("knowledge_base.model_fingerprint", _FIXED)
    if wanted.placement not in (pb.PLACEMENT_UNSPECIFIED, _placement(current)):
        raise InvalidField("knowledge_base.placement", _FIXED)


def _retrieval(message: pb.RetrievalDefaults, default: RetrievalDefaults) -> RetrievalDefaults:
    return RetrievalDefaults(
        vector_top_k=message.vector_top_k if message.HasField("vector_top_k") else default.vector_top_k,
        min_vector_score=message.min_vector_score if message.HasField("min_vector_score") else default.min_vector_score,
        weight=message.weight if message.HasField("weight") else default.weight,
    )


def _placement(knowledge_base: KnowledgeBase) -> pb.Placement.ValueType:
    return pb.PLACEMENT_SHARED if knowledge_base.placement == "shared" else pb.PLACEMENT_DEDICATED


def _message(knowledge_base: KnowledgeBase) -> pb.KnowledgeBase:
    created_at, updated_at = Timestamp(), Timestamp()
    created_at.FromDatetime(knowledge_base.created_at)
    updated_at.FromDatetime(knowledge_base.updated_at)
    return pb.KnowledgeBase(
        id=str(knowledge_base.id),
        name=knowledge_base.name,
        description=knowledge_base.description,
        chunking=chunking_config.from_json(knowledge_base.chunking),
        embedding_model=knowledge_base.embedding_model,
        model_fingerprint=knowledge_base.model_fingerprint,
        dimension=knowledge_base.dimension,
        placement=_placement(knowledge_base),
        retrieval=pb.RetrievalDefaults(
            vector_top_k=knowledge_base.retrieval.vector_top_k,
            min_vector_score=knowledge_base.retrieval.min_vector_score,
            weight=knowledge_base.retrieval.weight,
        ),
        generation=knowledge_base.generation,
        document_count=knowledge_base.document_count,
        chunk_count=knowledge_base.chunk_count,
        created_at=created_at,
        updated_at=updated_at,
    )
