"""The vector store: a Qdrant cluster, or kbmesh-edge, which speaks the same protocol."""

import asyncio
import json
import math
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Self, TypeVar
from urllib.parse import urlsplit
from uuid import UUID

import grpc
import numpy as np
from kbmesh_rpc.call import optional_call
from kbmesh_rpc.channel import SERVICE_CONFIG
from kbmesh_rpc.errors import (
    DeadlineExceeded,
    DependencyInvalidResponse,
    DependencyUnavailable,
    KbmeshError,
)
from kbmesh_rpc.status import from_rpc_error
from qdrant_client import AsyncQdrantClient, models
from qdrant_client.common.client_exceptions import QdrantException

from kbmesh_retriever.stores.filters import METADATA_NUMBERS, build_filter, metadata_numbers
from kbmesh_retriever.stores.port import Hit, Point, Scope, SearchQuery, SearchResult
from kbmesh_retriever.stores.schema import (
    BM25,
    DENSE,
    PAYLOAD_INDEXES,
    check_collection,
    dense_vectors,
    missing_indexes,
    sparse_vectors,
)

T = TypeVar("T")

DEPENDENCY = "qdrant"
UPSERT_BATCH_POINTS = 100
_DEFAULT_GRPC_PORT = 6334
_PAYLOAD = models.PayloadSelectorExclude(exclude=[METADATA_NUMBERS])


class QdrantStore:
    """`VectorStore` over `AsyncQdrantClient` by gRPC. Besides the port's errors, raises InvalidField for a filter that
    cannot be kept and Conflict for a collection of another shape."""

    def __init__(self, client: AsyncQdrantClient, *, timeout_seconds: float) -> None:
        self._client = client
        self._timeout_seconds = timeout_seconds

    @classmethod
    def connect(
        cls,
        url: str,
        *,
        api_key: str | None = None,
        timeout_seconds: float = 30.0,
        root_certificates: bytes | None = None,
        private_key: bytes | None = None,
        certificate_chain: bytes | None = None,
    ) -> Self:
        """A store at `http://host:port` or `https://host:port`, where port is Qdrant's gRPC port (6334 by default).

        No connection is made yet. The certificates are PEM and used with https: the authorities that may sign the
        server's, and this client's own for mutual TLS. Raises ValueError for a URL that is none.
        """
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/"):
            raise ValueError(f"{url!r} is not http://host:port or https://host:port")
        certificates = {
            "root_certificates": root_certificates,
            "private_key": private_key,
            "certificate_chain": certificate_chain,
        }
        client = AsyncQdrantClient(
            host=parts.hostname,
            grpc_port=parts.port or _DEFAULT_GRPC_PORT,
            https=parts.scheme == "https",
            prefer_grpc=True,
            api_key=api_key,
            # Only an upper bound: every call is cut off by its own timeout.
            timeout=math.ceil(timeout_seconds),
            # Asks over HTTP, which kbmesh-edge does not speak.
            check_compatibility=False,
            grpc_options={
                # Every call here can be repeated: points are written by id and deleted by what they are.
                "grpc.service_config": json.dumps(SERVICE_CONFIG),
                **{name: value for name, value in certificates.items() if value is not None},
            },
        )
        return cls(client, timeout_seconds=timeout_seconds)

    async def ensure_collection(self, collection: str, *, dimension: int) -> None:
        """May run at the same time as others of itself. Raises Conflict for a collection of another shape."""
        info = await self._find_collection(collection)
        if info is None:
            info = await self._create_collection(collection, dimension)
        check_collection(collection, info, dimension=dimension)
        for field in missing_indexes(info):
            await self._create_index(collection, field)

    async def upsert(self, collection: str, points: Sequence[Point]) -> None:
        for start in range(0, len(points), UPSERT_BATCH_POINTS):
            await self._upsert_batch(collection, points[start : start + UPSERT_BATCH_POINTS])

    async def search(self, query: SearchQuery) -> SearchResult:
        vectors: dict[str, list[float] | models.SparseVector] = {}
        if query.dense is not None:
            vectors[DENSE] = query.dense.tolist()
        if query.sparse is not None and query.sparse.indices:
            vectors[BM25] = models.SparseVector(indices=list(query.sparse.indices), values=list(query.sparse.values))
        filter_ = build_filter(query.scope, query.filter)
        requests = [
            models.QueryRequest(
                query=vector,
                using=name,
                filter=filter_,
                limit=query.limit,
                score_threshold=_just_below(query.min_dense_score) if name == DENSE else None,
                with_payload=_PAYLOAD,
            )
            for name, vector in vectors.items()
        ]
        if not requests:
            return SearchResult(dense=(), keyword=())
        answers = await self._call_on_existing(
            lambda timeout: self._client.query_batch_points(
                collection_name=query.collection, requests=requests, timeout=timeout
            )
        )
        if answers is None:
            return SearchResult(dense=(), keyword=())
        if len(answers) != len(requests):
            raise DependencyInvalidResponse(DEPENDENCY, f"{len(answers)} answers to {len(requests)} queries")
        hits = {name: _to_hits(answer.points) for name, answer in zip(vectors, answers, strict=True)}
        return SearchResult(
            dense=hits.get(DENSE, ()), keyword=tuple(hit for hit in hits.get(BM25, ()) if hit.score > 0)
        )

    async def delete_generations(
        self, collection: str, scope: Scope, document_id: UUID, generations: Collection[int]
    ) -> None:
        # An empty list of generations would be no condition at all, and delete the whole document.
        if generations:
            await self._delete(collection, build_filter(scope, document_id=document_id, generations=generations))

    async def delete_knowledge_base(self, collection: str, scope: Scope, *, drop_collection: bool) -> None:
        if drop_collection:
            await self._call(lambda timeout: self._client.delete_collection(collection, timeout=timeout))
        else:
            await self._delete(collection, build_filter(scope))

    async def count(self, collection: str, scope: Scope, *, document_id: UUID | None = None) -> int:
        filter_ = build_filter(scope, document_id=document_id)
        answer = await self._call_on_existing(
            lambda timeout: self._client.count(collection, count_filter=filter_, exact=True, timeout=timeout)
        )
        return 0 if answer is None else answer.count

    async def health(self) -> None:
        await self._call(lambda _: self._client.info())

    async def close(self) -> None:
        await self._client.close()

    async def _find_collection(self, collection: str) -> models.CollectionInfo | None:
        return await self._call_on_existing(lambda _: self._client.get_collection(collection))

    async def _create_collection(self, collection: str, dimension: int) -> models.CollectionInfo:
        refused: KbmeshError | None = None
        try:
            await self._call(
                lambda timeout: self._client.create_collection(
                    collection,
                    vectors_config=dense_vectors(dimension),
                    sparse_vectors_config=sparse_vectors(),
                    timeout=timeout,
                )
            )
        except DependencyInvalidResponse as error:
            # Perhaps somebody else made it meanwhile; Qdrant's versions say so in different ways.
            refused = error
        info = await self._find_collection(collection)
        if info is None:
            raise refused or DependencyInvalidResponse(
                DEPENDENCY, f"collection {collection} is gone after its creation"
            )
        return info

    async def _create_index(self, collection: str, field: str) -> None:
        await self._call(lambda _: self._client.create_payload_index(collection, field, PAYLOAD_INDEXES[field]))

    async def _upsert_batch(self, collection: str, points: Sequence[Point]) -> None:
        batch = [_to_struct(point) for point in points]
        await self._write(lambda timeout: self._client.upsert(collection, batch, wait=True, timeout=timeout))

    async def _delete(self, collection: str, filter_: models.Filter) -> None:
        """Deletes what the filter keeps; a collection that does not exist holds nothing of it."""
        selector = models.FilterSelector(filter=filter_)
        await self._write(
            lambda timeout: self._client.delete(collection, points_selector=selector, wait=True, timeout=timeout),
            missing_is_empty=True,
        )

    async def _write(
        self, call: Callable[[int], Awaitable[models.UpdateResult]], *, missing_is_empty: bool = False
    ) -> None:
        answer = await (self._call_on_existing(call) if missing_is_empty else self._call(call))
        if answer is not None and answer.status != models.UpdateStatus.COMPLETED:
            # The write was taken and may yet be done; the caller waited for it in vain.
            raise DeadlineExceeded(DEPENDENCY)

    async def _call_on_existing(self, call: Callable[[int], Awaitable[T]]) -> T | None:
        """What `_call` gives, or None where the collection does not exist."""
        try:
            return await self._call(call)
        except DependencyInvalidResponse as error:
            cause = error.__cause__
            if isinstance(cause, grpc.aio.AioRpcError) and cause.code() is grpc.StatusCode.NOT_FOUND:
                return None
            raise

    async def _call(self, call: Callable[[int], Awaitable[T]]) -> T:
        """`call` gets its timeout in whole seconds, which is what the client can send; it is cut off at the exact one:
        the store's, or what is left to the call being served if that is less."""
        served = optional_call()
        seconds = self._timeout_seconds
        if served is not None and served.deadline is not None:
            seconds = min(seconds, served.deadline.remaining())
        if seconds <= 0:
            raise DeadlineExceeded(DEPENDENCY)
        try:
            async with asyncio.timeout(seconds):
                return await call(math.ceil(seconds))
        except TimeoutError as error:
            raise DeadlineExceeded(DEPENDENCY) from error
        except grpc.aio.AioRpcError as error:
            raise _typed(error) from error
        except QdrantException as error:
            raise DependencyUnavailable(DEPENDENCY, f"{DEPENDENCY} is overloaded: {error}") from error
        except (grpc.aio.UsageError, RuntimeError) as error:
            # The channel or the client was closed under the call.
            raise DependencyUnavailable(DEPENDENCY, f"{DEPENDENCY} cannot be called: {error}") from error
        except ValueError as error:
            # What the client raises for an answer that it cannot read.
            raise DependencyInvalidResponse(
                DEPENDENCY, f"{DEPENDENCY} answered what cannot be read: {error}"
            ) from error


def _typed(error: grpc.aio.AioRpcError) -> KbmeshError:
    mapped = from_rpc_error(error, dependency=DEPENDENCY)
    if isinstance(mapped, DeadlineExceeded | DependencyUnavailable | DependencyInvalidResponse):
        return mapped
    if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
        return DependencyUnavailable(DEPENDENCY, f"{DEPENDENCY} is going away: {error.details()}")
    return DependencyInvalidResponse(DEPENDENCY, f"{DEPENDENCY} answered {error.code().name}: {error.details()}")


def _to_struct(point: Point) -> models.PointStruct:
    payload = dict(point.payload)
    if numbers := metadata_numbers(payload.get("metadata") or {}):
        payload[METADATA_NUMBERS] = numbers
    vector: dict[str, list[float] | models.SparseVector] = {
        BM25: models.SparseVector(indices=list(point.sparse.indices), values=list(point.sparse.values))
    }
    if point.dense is not None:
        vector[DENSE] = point.dense.tolist()
    return models.PointStruct(id=str(point.id), vector=vector, payload=payload)


def _to_hits(points: Sequence[models.ScoredPoint]) -> tuple[Hit, ...]:
    """Best first; equal scores in the order of their ids, which Qdrant does not promise."""
    try:
        hits = [Hit(id=UUID(str(point.id)), score=point.score, payload=point.payload or {}) for point in points]
    except ValueError as error:
        raise DependencyInvalidResponse(DEPENDENCY, "a point was not written by kbmesh: its id is no UUID") from error
    return tuple(sorted(hits, key=lambda hit: (-hit.score, hit.id)))


def _just_below(min_score: float | None) -> float | None:
    """Qdrant keeps what is above its threshold; the port keeps what equals it too. Scores are float32."""
    if min_score is None:
        return None
    return float(np.nextafter(np.float32(min_score), np.float32(-np.inf)))
