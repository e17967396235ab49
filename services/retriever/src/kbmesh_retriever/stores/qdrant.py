"""The vector store: a Qdrant cluster, or kbmesh-edge, which speaks the same protocol."""

import asyncio
import json
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit
from uuid import UUID

import grpc
from kbmesh_rpc.call import optional_call
from kbmesh_rpc.certificates import Certificates, Pems
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

from kbmesh_retriever.stores.conditions import check_selective, check_update, metadata_numbers
from kbmesh_retriever.stores.filters import METADATA_NUMBERS, build_filter, metadata_path
from kbmesh_retriever.stores.port import (
    ChunkRange,
    CollectionInfo,
    Distance,
    Point,
    PointFilter,
    Scope,
    SearchQuery,
    SearchResult,
    StoredChunk,
)
from kbmesh_retriever.stores.qdrant_points import (
    DEPENDENCY,
    as_it_is,
    nearness,
    threshold,
    to_chunk,
    to_hits,
    to_point,
    to_struct,
)
from kbmesh_retriever.stores.schema import (
    BM25,
    DENSE,
    FILTER_INDEXES,
    PAYLOAD_INDEXES,
    Index,
    check_collection,
    dense_of,
    dense_vectors,
    distance_of,
    has_keywords,
    keyword_index,
    missing_indexes,
    sparse_vectors,
)
from kbmesh_retriever.stores.sizing import GRAPH_FROM_POINTS, size_for

T = TypeVar("T")

UPSERT_BATCH_POINTS = 100
_DEFAULT_GRPC_PORT = 6334
_PAYLOAD = models.PayloadSelectorExclude(exclude=[METADATA_NUMBERS])
# Candidates of a quantised search are compared again by their full vectors; others do not know the setting.
_RESCORED = models.SearchParams(quantization=models.QuantizationSearchParams(rescore=True, oversampling=2.0))


class QdrantStore:
    """`VectorStore` over `AsyncQdrantClient` by gRPC. Besides the port's errors, raises InvalidField for a filter that
    cannot be kept and Conflict for a collection of another shape."""

    def __init__(
        self,
        open_client: Callable[[Pems | None], AsyncQdrantClient],
        *,
        timeout_seconds: float,
        expected_points: int = 0,
        filterable_metadata: Collection[str] = (),
        certificates: Certificates | None = None,
    ) -> None:
        """`open_client` makes a client of what the certificates hold."""
        self._open_client = open_client
        # Followers are kept weakly; this holds on to who tells of changes.
        self._certificates = certificates
        self._pems = certificates.pems if certificates is not None else None
        self._client = open_client(self._pems)
        self._retired: set[asyncio.Task[None]] = set()
        if certificates is not None:
            certificates.add(self)
        self._timeout_seconds = timeout_seconds
        self._expected_points = expected_points
        self._metadata_indexes = {metadata_path(name): keyword_index() for name in sorted(set(filterable_metadata))}

    @classmethod
    def connect(
        cls,
        url: str,
        *,
        api_key: str | None = None,
        timeout_seconds: float = 30.0,
        expected_points: int = 0,
        filterable_metadata: Collection[str] = (),
        certificates: Certificates | None = None,
    ) -> Self:
        """A store at `http://host:port` or `https://host:port`, where port is Qdrant's gRPC port (6334 by default).

        No connection is made yet. `expected_points` is what a collection is made for where the call does not say;
        `filterable_metadata` are names of metadata that get a payload index. The certificates are used with https: the
        authorities that may sign the server's, and this client's own for mutual TLS; without them the public ones may,
        and none is shown. Raises ValueError for a URL that is none.
        """
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/"):
            raise ValueError(f"{url!r} is not http://host:port or https://host:port")

        def open_client(pems: Pems | None) -> AsyncQdrantClient:
            files = (
                {}
                if pems is None
                else {
                    "root_certificates": pems.authorities,
                    "private_key": pems.key,
                    "certificate_chain": pems.certificate,
                }
            )
            return AsyncQdrantClient(
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
                    **{name: value for name, value in files.items() if value is not None},
                },
            )

        return cls(
            open_client,
            timeout_seconds=timeout_seconds,
            expected_points=expected_points,
            filterable_metadata=filterable_metadata,
            certificates=certificates,
        )

    async def follow(self, pems: Pems) -> None:
        """Goes on with other certificates. Calls that are in flight end with those before."""
        if pems is self._pems:
            return
        old, self._client, self._pems = self._client, self._open_client(pems), pems
        task = asyncio.create_task(self._close_later(old))
        self._retired.add(task)
        task.add_done_callback(self._retired.discard)

    async def _close_later(self, client: AsyncQdrantClient) -> None:
        try:
            # No call takes longer.
            await asyncio.sleep(self._timeout_seconds + 1)
        finally:
            await client.close()

    async def ensure_collection(
        self,
        collection: str,
        *,
        dimension: int,
        distance: Distance = Distance.COSINE,
        shared: bool = False,
        expected_points: int | None = None,
    ) -> None:
        """May run at the same time as others of itself. Raises Conflict for a collection of another shape."""
        expected = self._expected_points if expected_points is None else expected_points
        indexes = {**PAYLOAD_INDEXES, **self._metadata_indexes}
        if expected >= GRAPH_FROM_POINTS:
            indexes |= FILTER_INDEXES
        info = await self._find_collection(collection)
        if info is None:
            sizing = size_for(expected, dimension=dimension, shared=shared)
            info = await self._create_collection(
                collection,
                vectors_config=dense_vectors(dimension, distance, on_disk=sizing.vectors_on_disk),
                sparse_vectors_config=sparse_vectors(),
                **sizing.arguments(),
            )
        check_collection(collection, info, dimension=dimension, distance=distance, indexes=indexes)
        for field in missing_indexes(info, indexes):
            await self._create_index(collection, field, indexes[field])

    async def exists(self, collection: str) -> bool:
        return await self._call(lambda _: self._client.collection_exists(collection))

    async def info(self, collection: str) -> CollectionInfo | None:
        found = await self._find_collection(collection)
        if found is None:
            return None
        dense = dense_of(found)
        distance = None if dense is None else distance_of(dense)
        if dense is None or distance is None:
            raise DependencyInvalidResponse(DEPENDENCY, f"collection {collection} was not made by kbmesh")
        return CollectionInfo(
            dimension=dense.size,
            distance=distance,
            points=found.points_count or 0,
            keywords=has_keywords(found),
        )

    async def upsert(self, collection: str, points: Sequence[Point]) -> None:
        for start in range(0, len(points), UPSERT_BATCH_POINTS):
            await self._upsert_batch(collection, points[start : start + UPSERT_BATCH_POINTS])

    async def read_generation(
        self, collection: str, scope: Scope, document_id: UUID, generation: int
    ) -> AsyncIterator[Sequence[Point]]:
        filter_ = build_filter(scope, document_id=document_id, generations=[generation])
        offset: Any = None
        while True:
            records, offset = await self._scroll(collection, filter_, limit=UPSERT_BATCH_POINTS, offset=offset)
            if records:
                yield [to_point(record) for record in records]
            if offset is None:
                return

    async def read_chunks(
        self,
        collection: str,
        scope: Scope,
        ranges: Sequence[ChunkRange],
        *,
        principals: Collection[str] | None = None,
    ) -> Sequence[StoredChunk]:
        if not ranges:
            return []
        filter_ = build_filter(scope, principals=principals, ranges=ranges)
        most = sum(one.last - one.first + 1 for one in ranges)
        records, _ = await self._scroll(collection, filter_, limit=most, with_vectors=False)
        return [to_chunk(record) for record in records]

    async def search(self, query: SearchQuery) -> SearchResult:
        vectors: dict[str, list[float] | models.SparseVector] = {}
        if query.dense is not None:
            vectors[DENSE] = query.dense.tolist()
        if query.sparse is not None and query.sparse.indices:
            vectors[BM25] = models.SparseVector(indices=list(query.sparse.indices), values=list(query.sparse.values))
        filter_ = build_filter(query.scope, query.filter, principals=query.principals)
        requests = [
            models.QueryRequest(
                query=vector,
                using=name,
                filter=filter_,
                limit=query.limit,
                score_threshold=threshold(query) if name == DENSE else None,
                with_payload=_PAYLOAD,
                params=_RESCORED if name == DENSE else None,
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
        scales = {DENSE: nearness if query.distance is Distance.EUCLIDEAN else as_it_is, BM25: as_it_is}
        hits = {name: to_hits(answer.points, scales[name]) for name, answer in zip(vectors, answers, strict=True)}
        return SearchResult(
            dense=hits.get(DENSE, ()), keyword=tuple(hit for hit in hits.get(BM25, ()) if hit.score > 0)
        )

    async def update_payload(
        self,
        collection: str,
        scope: Scope,
        document_id: UUID,
        generation: int,
        values: Mapping[str, Any],
        *,
        indexes: Collection[int] | None = None,
    ) -> None:
        check_update(values)
        changed = {key: value for key, value in values.items() if value is not None}
        gone = [key for key, value in values.items() if value is None]
        if "metadata" in values:
            # Written whole: numbers of the former metadata must not outlive it.
            changed[METADATA_NUMBERS] = metadata_numbers(values["metadata"] or {})
        points = build_filter(scope, document_id=document_id, generations=[generation], indexes=indexes)
        if changed:
            await self._write(
                lambda timeout: self._client.set_payload(
                    collection, payload=changed, points=points, wait=True, timeout=timeout
                ),
                missing_is_empty=True,
            )
        if gone:
            await self._write(
                lambda timeout: self._client.delete_payload(
                    collection, keys=gone, points=points, wait=True, timeout=timeout
                ),
                missing_is_empty=True,
            )

    async def delete_generations(
        self, collection: str, scope: Scope, document_id: UUID, generations: Collection[int]
    ) -> None:
        # An empty list of generations would be no condition at all, and delete the whole document.
        if generations:
            await self._delete(collection, build_filter(scope, document_id=document_id, generations=generations))

    async def delete_document(self, collection: str, scope: Scope, document_id: UUID) -> None:
        await self._delete(collection, build_filter(scope, document_id=document_id))

    async def delete_matching(self, collection: str, scope: Scope, wanted: PointFilter) -> None:
        check_selective(wanted)
        await self._delete(collection, build_filter(scope, wanted))

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
        for task in self._retired:
            task.cancel()
        await asyncio.gather(*self._retired, return_exceptions=True)
        await self._client.close()

    async def _scroll(
        self, collection: str, filter_: models.Filter, *, limit: int, offset: Any = None, with_vectors: bool = True
    ) -> tuple[Sequence[models.Record], Any]:
        answer = await self._call_on_existing(
            lambda timeout: self._client.scroll(
                collection,
                scroll_filter=filter_,
                limit=limit,
                offset=offset,
                with_payload=_PAYLOAD,
                with_vectors=with_vectors,
                timeout=timeout,
            )
        )
        return answer or ([], None)

    async def _find_collection(self, collection: str) -> models.CollectionInfo | None:
        return await self._call_on_existing(lambda _: self._client.get_collection(collection))

    async def _create_collection(self, collection: str, **shape: Any) -> models.CollectionInfo:
        refused: KbmeshError | None = None
        try:
            await self._call(lambda timeout: self._client.create_collection(collection, timeout=timeout, **shape))
        except DependencyInvalidResponse as error:
            # Perhaps somebody else made it meanwhile; Qdrant's versions say so in different ways.
            refused = error
        info = await self._find_collection(collection)
        if info is None:
            raise refused or DependencyInvalidResponse(
                DEPENDENCY, f"collection {collection} is gone after its creation"
            )
        return info

    async def _create_index(self, collection: str, field: str, index: Index) -> None:
        await self._call(lambda _: self._client.create_payload_index(collection, field, index, wait=True))

    async def _upsert_batch(self, collection: str, points: Sequence[Point]) -> None:
        batch = [to_struct(point) for point in points]
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
