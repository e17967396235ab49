"""Qdrant's services, on the servicer stubs of qdrant-client. A call that is not written here answers UNIMPLEMENTED."""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial, wraps
from importlib.metadata import version
from typing import Any, TypeVar
from uuid import UUID

import grpc
import qdrant_edge as engine
from google.protobuf.descriptor import ServiceDescriptor
from kbmesh_rpc.server import Registration
from qdrant_client import grpc as qdrant
from qdrant_client.grpc import collections_service_pb2, points_service_pb2, snapshots_service_pb2

from kbmesh_edge.engine import Collection, Engine
from kbmesh_edge.errors import (
    CollectionAlreadyExists,
    CollectionNotFound,
    EdgeError,
    EngineFailed,
    InvalidRequest,
    NotServed,
    StillOpening,
)
from kbmesh_edge.filters import point_id, to_filter
from kbmesh_edge.points import id_message, record_message, scored_message, to_payload, to_point
from kbmesh_edge.queries import checked_limit, to_payload_selector, to_query, to_vector_selector
from kbmesh_edge.schema import info_message, to_config, to_index

Servicer = TypeVar("Servicer")
Request = TypeVar("Request")
Response = TypeVar("Response")
Context = grpc.aio.ServicerContext[Any, Any]
Handler = Callable[[Any, Any, Context], Awaitable[Any]]

_CODES: Mapping[type[EdgeError], grpc.StatusCode] = {
    CollectionNotFound: grpc.StatusCode.NOT_FOUND,
    CollectionAlreadyExists: grpc.StatusCode.ALREADY_EXISTS,
    InvalidRequest: grpc.StatusCode.INVALID_ARGUMENT,
    NotServed: grpc.StatusCode.UNIMPLEMENTED,
    StillOpening: grpc.StatusCode.UNAVAILABLE,
    EngineFailed: grpc.StatusCode.INTERNAL,
}


def _answers(handler: Handler) -> Handler:
    """Turns an EdgeError into its status and tells the seconds that the call took."""

    @wraps(handler)
    async def answer(servicer: object, request: object, context: Context) -> object:
        started = time.perf_counter()
        try:
            response = await handler(servicer, request, context)
        except EdgeError as error:
            await context.abort(_CODES[type(error)], str(error))
        response.time = time.perf_counter() - started
        return response

    return answer


def _refuses_the_rest(service: ServiceDescriptor) -> Callable[[type[Servicer]], type[Servicer]]:
    """Gives the class a handler that answers UNIMPLEMENTED for each method of the service that it has not written."""

    def decorate(cls: type[Servicer]) -> type[Servicer]:
        for method in service.methods:
            if method.name not in vars(cls):
                setattr(cls, method.name, _refusal(f"{service.name}/{method.name}"))
        return cls

    return decorate


def _refusal(call: str) -> Handler:
    async def refuse(servicer: object, request: object, context: Context) -> None:
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, str(NotServed(call)))

    return refuse


@_refuses_the_rest(collections_service_pb2.DESCRIPTOR.services_by_name["Collections"])
class CollectionsServicer(qdrant.CollectionsServicer):
    def __init__(self, engine_: Engine) -> None:
        self._engine = engine_

    @_answers
    async def Create(self, request: qdrant.CreateCollection, context: Context) -> qdrant.CollectionOperationResponse:
        await self._engine.create(request.collection_name, to_config(request))
        return qdrant.CollectionOperationResponse(result=True)

    @_answers
    async def Get(self, request: qdrant.GetCollectionInfoRequest, context: Context) -> qdrant.GetCollectionInfoResponse:
        def work(collection: Collection) -> qdrant.CollectionInfo:
            return info_message(collection.config, collection.shard.info())

        return qdrant.GetCollectionInfoResponse(result=await self._engine.run(request.collection_name, work))

    @_answers
    async def List(self, request: qdrant.ListCollectionsRequest, context: Context) -> qdrant.ListCollectionsResponse:
        names = await self._engine.names()
        return qdrant.ListCollectionsResponse(collections=[qdrant.CollectionDescription(name=name) for name in names])

    @_answers
    async def CollectionExists(
        self, request: qdrant.CollectionExistsRequest, context: Context
    ) -> qdrant.CollectionExistsResponse:
        exists = request.collection_name in await self._engine.names()
        return qdrant.CollectionExistsResponse(result=qdrant.CollectionExists(exists=exists))

    @_answers
    async def Delete(self, request: qdrant.DeleteCollection, context: Context) -> qdrant.CollectionOperationResponse:
        return qdrant.CollectionOperationResponse(result=await self._engine.delete(request.collection_name))


@_refuses_the_rest(points_service_pb2.DESCRIPTOR.services_by_name["Points"])
class PointsServicer(qdrant.PointsServicer):
    """Every write is applied, and in the write-ahead log, when its answer leaves, whatever `wait` says. Read
    consistency and write ordering mean nothing on one node."""

    def __init__(self, engine_: Engine) -> None:
        self._engine = engine_

    @_answers
    async def Upsert(self, request: qdrant.UpsertPoints, context: Context) -> qdrant.PointsOperationResponse:
        if request.HasField("update_filter") or request.update_mode != qdrant.UpdateMode.Upsert:
            raise NotServed("conditional upserts")
        _refuse_shard_keys(request)
        if not request.points:
            raise InvalidRequest("Empty update request")

        def work(collection: Collection) -> None:
            points = [to_point(point, collection.config) for point in request.points]
            collection.update(engine.UpdateOperation.upsert_points(points), points=len(points))

        await self._engine.run(request.collection_name, work)
        return _completed()

    @_answers
    async def Delete(self, request: qdrant.DeletePoints, context: Context) -> qdrant.PointsOperationResponse:
        _refuse_shard_keys(request)

        def work(collection: Collection) -> None:
            collection.update(_delete_operation(request.points))

        await self._engine.run(request.collection_name, work)
        return _completed()

    @_answers
    async def SetPayload(self, request: qdrant.SetPayloadPoints, context: Context) -> qdrant.PointsOperationResponse:
        _refuse_shard_keys(request)
        if request.HasField("key"):
            raise NotServed("changes below a key of the payload")
        payload = to_payload(request.payload)

        def work(collection: Collection) -> None:
            collection.update(_set_payload_operation(request.points_selector, payload))

        await self._engine.run(request.collection_name, work)
        return _completed()

    @_answers
    async def DeletePayload(
        self, request: qdrant.DeletePayloadPoints, context: Context
    ) -> qdrant.PointsOperationResponse:
        _refuse_shard_keys(request)

        def work(collection: Collection) -> None:
            collection.update(_delete_payload_operation(request.points_selector, list(request.keys)))

        await self._engine.run(request.collection_name, work)
        return _completed()

    @_answers
    async def CreateFieldIndex(
        self, request: qdrant.CreateFieldIndexCollection, context: Context
    ) -> qdrant.PointsOperationResponse:
        index = to_index(request)

        def work(collection: Collection) -> None:
            collection.update(engine.UpdateOperation.create_field_index(request.field_name, index))

        await self._engine.run(request.collection_name, work)
        return _completed()

    @_answers
    async def Get(self, request: qdrant.GetPoints, context: Context) -> qdrant.GetResponse:
        _refuse_shard_keys(request)

        def work(collection: Collection) -> list[qdrant.RetrievedPoint]:
            records = collection.shard.retrieve(
                [point_id(id_) for id_ in request.ids],
                to_payload_selector(request.with_payload),
                to_vector_selector(request.with_vectors),
            )
            return [record_message(record) for record in records]

        return qdrant.GetResponse(result=await self._engine.run(request.collection_name, work))

    @_answers
    async def Scroll(self, request: qdrant.ScrollPoints, context: Context) -> qdrant.ScrollResponse:
        _refuse_shard_keys(request)
        if request.HasField("order_by"):
            raise NotServed("scrolling in another order than the ids'")

        def work(collection: Collection) -> qdrant.ScrollResponse:
            records, next_id = collection.shard.scroll(
                engine.ScrollRequest(
                    offset=point_id(request.offset) if request.HasField("offset") else None,
                    limit=checked_limit(request.limit) if request.HasField("limit") else None,
                    filter=to_filter(request.filter) if request.HasField("filter") else None,
                    with_payload=to_payload_selector(request.with_payload),
                    with_vector=to_vector_selector(request.with_vectors),
                )
            )
            return qdrant.ScrollResponse(
                result=[record_message(record) for record in records],
                next_page_offset=None if next_id is None else id_message(next_id),
            )

        return await self._engine.run(request.collection_name, work)

    @_answers
    async def Count(self, request: qdrant.CountPoints, context: Context) -> qdrant.CountResponse:
        _refuse_shard_keys(request)

        def work(collection: Collection) -> int:
            filter_ = to_filter(request.filter) if request.HasField("filter") else None
            # Always exact: the estimate would save nothing at this size.
            return collection.shard.count(engine.CountRequest(exact=True, filter=filter_))

        count = await self._engine.run(request.collection_name, work)
        return qdrant.CountResponse(result=qdrant.CountResult(count=count))

    @_answers
    async def Query(self, request: qdrant.QueryPoints, context: Context) -> qdrant.QueryResponse:
        (batch,) = await self._query(request.collection_name, [request])
        return qdrant.QueryResponse(result=batch.result)

    @_answers
    async def QueryBatch(self, request: qdrant.QueryBatchPoints, context: Context) -> qdrant.QueryBatchResponse:
        for query in request.query_points:
            if query.collection_name not in ("", request.collection_name):
                raise InvalidRequest("a batch queries one collection")
        return qdrant.QueryBatchResponse(result=await self._query(request.collection_name, request.query_points))

    async def _query(self, name: str, requests: Sequence[qdrant.QueryPoints]) -> list[qdrant.BatchResult]:
        def work(collection: Collection) -> list[qdrant.BatchResult]:
            queries = [to_query(request, collection.config) for request in requests]
            found = collection.shard.query_batch(engine.QueryBatchRequest(queries)) if queries else []
            return [qdrant.BatchResult(result=[scored_message(point) for point in points]) for points in found]

        return await self._engine.run(name, work)


@_refuses_the_rest(snapshots_service_pb2.DESCRIPTOR.services_by_name["Snapshots"])
class SnapshotsServicer(qdrant.SnapshotsServicer):
    """Refuses every call: a copy of the data folder of a stopped process is the backup."""


class QdrantServicer(qdrant.QdrantServicer):
    async def HealthCheck(self, request: qdrant.HealthCheckRequest, context: Context) -> qdrant.HealthCheckReply:
        # No version of Qdrant is claimed: clients would take its features for granted.
        return qdrant.HealthCheckReply(title="kbmesh-edge", version=version("kbmesh-edge"))


def registrations(engine_: Engine) -> Sequence[Registration]:
    return (
        _registration("Qdrant", qdrant.add_QdrantServicer_to_server, QdrantServicer()),
        _registration("Collections", qdrant.add_CollectionsServicer_to_server, CollectionsServicer(engine_)),
        _registration("Points", qdrant.add_PointsServicer_to_server, PointsServicer(engine_)),
        _registration("Snapshots", qdrant.add_SnapshotsServicer_to_server, SnapshotsServicer()),
    )


def _registration(service: str, add: Callable[[Any, grpc.aio.Server], None], servicer: object) -> Registration:
    return Registration(name=f"qdrant.{service}", add=partial(add, servicer))


def _refuse_shard_keys(
    request: (
        qdrant.UpsertPoints
        | qdrant.DeletePoints
        | qdrant.SetPayloadPoints
        | qdrant.DeletePayloadPoints
        | qdrant.GetPoints
        | qdrant.ScrollPoints
        | qdrant.CountPoints
    ),
) -> None:
    if request.HasField("shard_key_selector"):
        raise NotServed("custom sharding")


def _delete_operation(selector: qdrant.PointsSelector) -> engine.UpdateOperation:
    chosen = _chosen(selector)
    if isinstance(chosen, list):
        return engine.UpdateOperation.delete_points(chosen)
    return engine.UpdateOperation.delete_points_by_filter(chosen)


def _set_payload_operation(selector: qdrant.PointsSelector, payload: dict[str, Any]) -> engine.UpdateOperation:
    chosen = _chosen(selector)
    if isinstance(chosen, list):
        return engine.UpdateOperation.set_payload(chosen, payload)
    return engine.UpdateOperation.set_payload_by_filter(chosen, payload)


def _delete_payload_operation(selector: qdrant.PointsSelector, keys: list[str]) -> engine.UpdateOperation:
    chosen = _chosen(selector)
    if isinstance(chosen, list):
        return engine.UpdateOperation.delete_payload(chosen, keys)
    return engine.UpdateOperation.delete_payload_by_filter(chosen, keys)


def _chosen(selector: qdrant.PointsSelector) -> list[int | UUID | str] | engine.Filter:
    match selector.WhichOneof("points_selector_one_of"):
        case "points":
            return [point_id(id_) for id_ in selector.points.ids]
        case "filter":
            return to_filter(selector.filter)
        case _:
            raise InvalidRequest("the selection of points is missing")


def _completed() -> qdrant.PointsOperationResponse:
    return qdrant.PointsOperationResponse(result=qdrant.UpdateResult(status=qdrant.UpdateStatus.Completed))
