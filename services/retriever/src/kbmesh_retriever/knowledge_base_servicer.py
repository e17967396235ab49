"""KnowledgeBaseService: Protobuf to domain and back."""

from collections.abc import Collection
from typing import Any

import grpc
from google.protobuf.timestamp_pb2 import Timestamp
from kbmesh.errors.v1 import errors_pb2
from kbmesh.retriever.v1 import knowledge_base_pb2 as pb
from kbmesh.retriever.v1.knowledge_base_pb2_grpc import KnowledgeBaseServiceServicer
from kbmesh_rpc.call import current_call
from kbmesh_rpc.errors import FieldViolation, InvalidField, shown

from kbmesh_retriever import chunking_config
from kbmesh_retriever.catalog.port import Catalog, DistanceName, KnowledgeBase, Placement, RetrievalDefaults
from kbmesh_retriever.ingest import metrics
from kbmesh_retriever.knowledge_bases import KnowledgeBases, NewKnowledgeBase, refuse
from kbmesh_retriever.page_token import cut_page, page_limit, read_page_token
from kbmesh_retriever.rebuilds import Rebuild, Rebuilds

_Context = grpc.aio.ServicerContext[Any, Any]

_LIST = "knowledge_bases"
_UPDATABLE = ("description", "retrieval", "readers")
_UPDATED_WITHOUT_MASK = ("description", "retrieval")
"""Who may read changes only where it is named: a caller who does not know the field must not open what was closed."""
_REBUILT = ("chunking", "embedding_model", "placement")
_FIXED = "cannot be changed without a rebuild, because the vectors that are there would no longer fit"
_PLACEMENTS: dict[pb.Placement.ValueType, Placement] = {
    pb.PLACEMENT_DEDICATED: "dedicated",
    pb.PLACEMENT_SHARED: "shared",
}
_DISTANCES: dict[pb.Distance.ValueType, DistanceName] = {
    pb.DISTANCE_COSINE: "cosine",
    pb.DISTANCE_EUCLIDEAN: "euclidean",
    pb.DISTANCE_DOT: "dot",
}
_DISTANCE_VALUES = {name: value for value, name in _DISTANCES.items()}


class KnowledgeBaseServicer(KnowledgeBaseServiceServicer):
    """Serves the tenant of the call."""

    def __init__(self, catalog: Catalog, knowledge_bases: KnowledgeBases, rebuilds: Rebuilds) -> None:
        self._catalog = catalog
        self._knowledge_bases = knowledge_bases
        self._rebuilds = rebuilds

    async def CreateKnowledgeBase(
        self, request: pb.CreateKnowledgeBaseRequest, context: _Context
    ) -> pb.CreateKnowledgeBaseResponse:
        wanted = request.knowledge_base
        wrong = _check_vector_settings(wanted)
        made = await self._knowledge_bases.create(
            current_call().tenant,
            NewKnowledgeBase(
                name=wanted.name,
                description=wanted.description,
                chunking={} if wrong else chunking_config.to_json(wanted.chunking),
                embedding_model=wanted.embedding_model,
                placement=_PLACEMENTS.get(wanted.placement, "dedicated"),
                distance=_DISTANCES.get(wanted.distance, "cosine"),
                readers=tuple(dict.fromkeys(wanted.readers)),
                vector_store=wanted.vector_store,
                retrieval=_retrieval(wanted.retrieval, RetrievalDefaults()),
            ),
            also_wrong=wrong,
        )
        return pb.CreateKnowledgeBaseResponse(knowledge_base=_message(made))

    async def GetKnowledgeBase(
        self, request: pb.GetKnowledgeBaseRequest, context: _Context
    ) -> pb.GetKnowledgeBaseResponse:
        found = await self._named(request.knowledge_base)
        return pb.GetKnowledgeBaseResponse(knowledge_base=_message(found, await self._rebuilds.find(found)))

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
        wanted = request.knowledge_base
        current = await self._named(wanted.id or wanted.name, "knowledge_base.name")
        paths = _paths(request)
        refuse(
            [
                *_check_fixed(wanted, current, rebuild=request.rebuild),
                *_check_readers_named(wanted, current, paths),
                *(_check_vector_settings(wanted) if request.rebuild else ()),
            ]
        )
        updated = current
        if not request.rebuild or paths & set(_UPDATABLE):
            updated = await self._knowledge_bases.update(
                current.tenant,
                str(current.public_id),
                description=wanted.description if "description" in paths else None,
                retrieval=_retrieval(wanted.retrieval, RetrievalDefaults()) if "retrieval" in paths else None,
                readers=tuple(dict.fromkeys(wanted.readers)) if "readers" in paths else None,
            )
        if request.rebuild:
            await self._rebuilds.start(
                current,
                chunking=chunking_config.to_json(wanted.chunking) if "chunking" in paths else None,
                embedding_model=wanted.embedding_model if "embedding_model" in paths else "",
                placement=_PLACEMENTS.get(wanted.placement) if "placement" in paths else None,
            )
        return pb.UpdateKnowledgeBaseResponse(knowledge_base=_message(updated, await self._rebuilds.find(updated)))

    async def DeleteKnowledgeBase(
        self, request: pb.DeleteKnowledgeBaseRequest, context: _Context
    ) -> pb.DeleteKnowledgeBaseResponse:
        _check_named(request.knowledge_base, "knowledge_base")
        deleted = await self._knowledge_bases.delete(current_call().tenant, request.knowledge_base)
        return pb.DeleteKnowledgeBaseResponse(documents_deleted=deleted)

    async def FinishRebuild(self, request: pb.FinishRebuildRequest, context: _Context) -> pb.FinishRebuildResponse:
        current = await self._named(request.knowledge_base)
        now, dropped = await self._catalog.finish_rebuild(current, drop_outstanding=request.drop_outstanding)
        metrics.rebuild("finished")
        return pb.FinishRebuildResponse(knowledge_base=_message(now), documents_dropped=dropped)

    async def CancelRebuild(self, request: pb.CancelRebuildRequest, context: _Context) -> pb.CancelRebuildResponse:
        await self._catalog.cancel_rebuild(await self._named(request.knowledge_base))
        metrics.rebuild("cancelled")
        return pb.CancelRebuildResponse()

    async def _named(self, name_or_id: str, field: str = "knowledge_base") -> KnowledgeBase:
        _check_named(name_or_id, field)
        return await self._catalog.get_knowledge_base(current_call().tenant, name_or_id)


def _check_named(name_or_id: str, field: str) -> None:
    if not name_or_id:
        raise InvalidField(field, "must name a knowledge base")


def _paths(request: pb.UpdateKnowledgeBaseRequest) -> set[str]:
    allowed = {*_UPDATABLE, *(_REBUILT if request.rebuild else ())}
    paths = set(request.update_mask.paths)
    if not paths:
        # Whatever of the vectors' settings is set, and the rest where it is all that can change.
        said = {path for path in _REBUILT if request.rebuild and _is_set(request.knowledge_base, path)}
        return said if request.rebuild else set(_UPDATED_WITHOUT_MASK)
    unknown = sorted(paths - allowed)
    refuse(
        [
            FieldViolation(
                field="update_mask",
                description=shown(path)
                + f" {_FIXED if path.split('.')[0] in _KNOWN else 'is no field of a knowledge base'}",
            )
            for path in unknown
        ]
    )
    return paths


_KNOWN: Collection[str] = pb.KnowledgeBase.DESCRIPTOR.fields_by_name


def _is_set(wanted: pb.KnowledgeBase, path: str) -> bool:
    return wanted.HasField("chunking") if path == "chunking" else bool(getattr(wanted, path))


def _check_vector_settings(wanted: pb.KnowledgeBase) -> list[FieldViolation]:
    wrong = chunking_config.check(wanted.chunking)
    if wanted.placement not in pb.Placement.values():
        wrong.append(FieldViolation(field="knowledge_base.placement", description="is none of the contract's"))
    if wanted.distance not in pb.Distance.values():
        wrong.append(FieldViolation(field="knowledge_base.distance", description="is none of the contract's"))
    return wrong


def _check_fixed(wanted: pb.KnowledgeBase, current: KnowledgeBase, *, rebuild: bool) -> list[FieldViolation]:
    """A caller who sends back what it read, with changes, must learn that some of them would not be made."""
    wrong: dict[str, str] = {}
    if wanted.id and wanted.name not in ("", current.name):
        wrong["name"] = "cannot be changed; make another knowledge base"
    if wanted.vector_store not in ("", current.vector_store):
        wrong["vector_store"] = "cannot be changed; make another knowledge base"
    if wanted.distance not in (pb.DISTANCE_UNSPECIFIED, _DISTANCE_VALUES[current.distance]):
        wrong["distance"] = "cannot be changed; make another knowledge base"
    if not rebuild:
        if wanted.HasField("chunking") and _differs(wanted, current):
            wrong["chunking"] = _FIXED
        if wanted.embedding_model not in ("", current.embedding_model):
            wrong["embedding_model"] = _FIXED
        if wanted.model_fingerprint not in ("", current.model_fingerprint):
            wrong["model_fingerprint"] = _FIXED
        if wanted.placement not in (pb.PLACEMENT_UNSPECIFIED, _placement(current)):
            wrong["placement"] = _FIXED
    return [FieldViolation(field=f"knowledge_base.{name}", description=said) for name, said in wrong.items()]


def _check_readers_named(wanted: pb.KnowledgeBase, current: KnowledgeBase, paths: set[str]) -> list[FieldViolation]:
    if "readers" in paths or not wanted.readers or set(wanted.readers) == set(current.readers):
        return []
    said = 'change only where `update_mask` names "readers"'
    return [FieldViolation(field="knowledge_base.readers", description=said)]


def _differs(wanted: pb.KnowledgeBase, current: KnowledgeBase) -> bool:
    return bool(chunking_config.check(wanted.chunking)) or chunking_config.to_json(wanted.chunking) != current.chunking


def _retrieval(message: pb.RetrievalDefaults, default: RetrievalDefaults) -> RetrievalDefaults:
    return RetrievalDefaults(
        vector_top_k=message.vector_top_k if message.HasField("vector_top_k") else default.vector_top_k,
        min_vector_score=message.min_vector_score if message.HasField("min_vector_score") else default.min_vector_score,
        weight=message.weight if message.HasField("weight") else default.weight,
    )


def _placement(knowledge_base: KnowledgeBase) -> pb.Placement.ValueType:
    return pb.PLACEMENT_SHARED if knowledge_base.placement == "shared" else pb.PLACEMENT_DEDICATED


def _message(knowledge_base: KnowledgeBase, rebuild: Rebuild | None = None) -> pb.KnowledgeBase:
    created_at, updated_at = Timestamp(), Timestamp()
    created_at.FromDatetime(knowledge_base.created_at)
    updated_at.FromDatetime(knowledge_base.updated_at)
    return pb.KnowledgeBase(
        id=str(knowledge_base.public_id),
        name=knowledge_base.name,
        description=knowledge_base.description,
        chunking=chunking_config.from_json(knowledge_base.chunking),
        embedding_model=knowledge_base.embedding_model,
        model_fingerprint=knowledge_base.model_fingerprint,
        dimension=knowledge_base.dimension,
        embedding_provider=knowledge_base.embedding_provider,
        vector_store=knowledge_base.vector_store,
        placement=_placement(knowledge_base),
        distance=_DISTANCE_VALUES[knowledge_base.distance],
        readers=knowledge_base.readers,
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
        rebuild=None if rebuild is None else _rebuild_message(rebuild),
    )


def _rebuild_message(rebuild: Rebuild) -> pb.Rebuild:
    started_at = Timestamp()
    started_at.FromDatetime(rebuild.successor.created_at)
    progress, successor = rebuild.progress, rebuild.successor
    ready = progress.done == progress.total
    return pb.Rebuild(
        state=pb.REBUILD_STATE_READY if ready else pb.REBUILD_STATE_BUILDING,
        chunking=chunking_config.from_json(successor.chunking),
        embedding_model=successor.embedding_model,
        model_fingerprint=successor.model_fingerprint,
        dimension=successor.dimension,
        placement=_placement(successor),
        documents_done=progress.done,
        documents_total=progress.total,
        documents_failed=progress.failed,
        failures=[
            pb.RebuildFailure(external_id=external_id, reason=errors_pb2.ErrorReason.Value(reason))
            for external_id, reason in progress.failures.items()
        ],
        started_at=started_at,
    )
