"""The vector store in Pinecone's serverless indexes, by the Documents API of the official SDK.

An index holds every collection of one dimension and distance; a knowledge base in a collection is a namespace of its
own. A collection is there if its marker, an empty namespace of its name, is. Pinecone is eventually consistent: a write
returns once a search has seen it, by the log sequence numbers that come with both.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from hashlib import sha256
from typing import Any, Self, TypeVar
from urllib.parse import quote
from uuid import UUID

from kbmesh_rpc.errors import Conflict, DependencyInvalidResponse

from kbmesh_retriever.stores.conditions import check_selective, check_update
from kbmesh_retriever.stores.pinecone_client import DEPENDENCY, PineconeCalls, PineconeIndex, PineconeMissing
from kbmesh_retriever.stores.pinecone_filters import Expression, build_filter
from kbmesh_retriever.stores.pinecone_records import (
    BM25,
    DENSE,
    PAYLOAD,
    Record,
    batches,
    placeholder,
    read_payload,
    to_patch,
    to_point,
    to_record,
)
from kbmesh_retriever.stores.pinecone_terms import LONGEST_LIST, TermStatistics
from kbmesh_retriever.stores.port import (
    ChunkRange,
    CollectionInfo,
    Distance,
    Hit,
    Point,
    PointFilter,
    Scope,
    SearchQuery,
    SearchResult,
    SparseVector,
    StoredChunk,
)

R = TypeVar("R")

_LONGEST_TENANT = 200
"""Characters of a tenant's name in a namespace's, which has 512."""

_PAGE = 100
"""Payloads of one answer: 4 MB at most, which is Pinecone's limit."""
_COUNTED_SECONDS = 60.0
_AT_ONCE = 8


class PineconeStore:
    """`VectorStore` over Pinecone. An index without a field for sparse vectors is searched by vectors alone, and its
    answers say so."""

    def __init__(
        self,
        calls: PineconeCalls,
        *,
        visible_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`visible_seconds`: how long a write is waited for until searches see it."""
        self._calls = calls
        self._visible_seconds = visible_seconds
        self._clock = clock
        self._homes: dict[str, PineconeIndex] = {}
        self._terms = TermStatistics(clock=clock)
        self._counted: dict[str, tuple[float, int]] = {}

    @classmethod
    def connect(
        cls,
        api_key: str,
        *,
        host: str = "",
        index_prefix: str = "kbmesh",
        cloud: str = "aws",
        region: str = "us-east-1",
        timeout_seconds: float = 30.0,
        visible_seconds: float = 120.0,
    ) -> Self:
        """No connection is made yet. `host` is the control plane, Pinecone's own where it is empty; indexes are named
        PREFIX-DIMENSION-METRIC and made in `cloud` and `region`. Raises FeatureUnsupported where the SDK is not
        installed, and ValueError for an API key or a prefix that is none."""
        calls = PineconeCalls.connect(
            api_key, host=host, prefix=index_prefix, cloud=cloud, region=region, timeout_seconds=timeout_seconds
        )
        return cls(calls, visible_seconds=visible_seconds)

    async def ensure_collection(
        self,
        collection: str,
        *,
        dimension: int,
        distance: Distance = Distance.COSINE,
        shared: bool = False,
        expected_points: int | None = None,
    ) -> None:
        """Serverless indexes size themselves: `shared` and `expected_points` change nothing."""
        self._homes.pop(collection, None)
        home = await self._home(collection)
        if home is None:
            index = await self._calls.ensure_index(dimension, distance)
            try:
                await self._calls.call(lambda: index.api.create_namespace(name=_marker(collection)))
            except DependencyInvalidResponse:
                # Perhaps somebody else made it meanwhile.
                if await self._home(collection) is None:
                    raise
        elif home.dimension != dimension or home.distance is not distance:
            raise Conflict(
                f"collection {collection}",
                f"collection {collection} cannot be used: it has {home.dimension} dimensions compared by "
                f"{home.distance.value}, not {dimension} by {distance.value}",
            )

    async def exists(self, collection: str) -> bool:
        self._homes.pop(collection, None)
        return await self._home(collection) is not None

    async def info(self, collection: str) -> CollectionInfo | None:
        home = await self._home(collection)
        if home is None:
            return None
        points, token = 0, None
        while True:
            page = await self._calls.call(
                partial(home.api.list_namespaces_paginated, prefix=_marker(collection), pagination_token=token)
            )
            points += sum(namespace.record_count for namespace in page.namespaces)
            token = page.pagination.next if page.pagination else None
            if not token:
                break
        return CollectionInfo(dimension=home.dimension, distance=home.distance, points=points, keywords=home.keywords)

    async def upsert(self, collection: str, points: Sequence[Point]) -> None:
        if not points:
            return
        dimension = next((len(point.dense) for point in points if point.dense is not None), None)
        home = await self._home(collection)
        if home is not None and dimension not in (None, home.dimension):
            # It may have been made anew in another index, by another process.
            self._homes.pop(collection)
            home = await self._home(collection)
        if home is None:
            raise DependencyInvalidResponse(DEPENDENCY, f"there is no collection {collection}")
        # The SDK refuses an id that comes twice; the last one is meant.
        by_namespace: dict[str, dict[UUID, Record]] = {}
        for point in points:
            namespace = _namespace(collection, _scope_of(point))
            record = to_record(point, dimension=home.dimension, keywords=home.keywords)
            by_namespace.setdefault(namespace, {})[point.id] = record
        for namespace, records in by_namespace.items():
            await self._write_all(
                home,
                namespace,
                [
                    partial(home.api.documents.upsert, namespace=namespace, documents=batch)
                    for batch in batches(list(records.values()))
                ],
            )

    async def read_generation(
        self, collection: str, scope: Scope, document_id: UUID, generation: int
    ) -> AsyncIterator[Sequence[Point]]:
        wanted = build_filter(document_id=document_id, generations=[generation])
        async for page in self._fetch(collection, scope, wanted, fields=None):
            yield [_readable(to_point, record) for record in page]

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
        wanted = build_filter(principals=principals, ranges=ranges)
        found: list[StoredChunk] = []
        async for page in self._fetch(collection, scope, wanted, fields=[PAYLOAD]):
            found += [_readable(_to_chunk, record) for record in page]
        return found

    async def search(self, query: SearchQuery) -> SearchResult:
        home = await self._home(query.collection)
        if home is None:
            return SearchResult(dense=(), keyword=())
        sparse = query.sparse if query.sparse is not None and query.sparse.indices else None
        namespace = _namespace(query.collection, query.scope)
        dense, keyword = await asyncio.gather(
            self._search_dense(home, namespace, query), self._search_keywords(home, namespace, query, sparse)
        )
        return SearchResult(dense=dense, keyword=keyword, keyword_served=sparse is None or home.keywords)

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
        home = await self._home(collection)
        if home is None:
            return
        namespace = _namespace(collection, scope)
        wanted = build_filter(document_id=document_id, generations=[generation], indexes=indexes)
        patches: list[dict[str, Any]] = []
        async for page in self._fetch(collection, scope, wanted, fields=None):
            for record in page:
                payload = {**_readable(read_payload, record), **values}
                kept = {key: value for key, value in payload.items() if value is not None}
                patches.append(to_patch(record["_id"], record, kept))
        await self._write_all(
            home,
            namespace,
            [partial(home.api.documents.update, namespace=namespace, documents=batch) for batch in batches(patches)],
        )

    async def delete_generations(
        self, collection: str, scope: Scope, document_id: UUID, generations: Collection[int]
    ) -> None:
        # An empty list of generations would be no condition at all, and delete the whole document.
        if generations:
            await self._delete(collection, scope, build_filter(document_id=document_id, generations=generations))

    async def delete_document(self, collection: str, scope: Scope, document_id: UUID) -> None:
        await self._delete(collection, scope, build_filter(document_id=document_id))

    async def delete_matching(self, collection: str, scope: Scope, wanted: PointFilter) -> None:
        check_selective(wanted)
        await self._delete(collection, scope, build_filter(wanted))

    async def delete_knowledge_base(self, collection: str, scope: Scope, *, drop_collection: bool) -> None:
        home = await self._home(collection)
        if home is None:
            return
        await self._delete(collection, scope, None)
        gone = [_namespace(collection, scope), *([_marker(collection)] if drop_collection else [])]
        for name in gone:
            try:
                await self._calls.call(partial(home.api.delete_namespace, name=name))
            except PineconeMissing:
                continue
        self._terms.forget(gone[0])
        self._counted.pop(gone[0], None)
        if drop_collection:
            self._homes.pop(collection, None)

    async def count(self, collection: str, scope: Scope, *, document_id: UUID | None = None) -> int:
        """Of a knowledge base: by its namespace's count, which may lag behind."""
        home = await self._home(collection)
        if home is None:
            return 0
        if document_id is None:
            return await self._records(home, _namespace(collection, scope))
        wanted = build_filter(document_id=document_id)
        return sum([len(page) async for page in self._fetch(collection, scope, wanted, fields=["generation"])])

    async def health(self) -> None:
        await self._calls.check()

    async def close(self) -> None:
        await self._calls.close()

    async def _home(self, collection: str) -> PineconeIndex | None:
        """The index that the collection lies in."""
        if (known := self._homes.get(collection)) is not None:
            return known
        for index in await self._calls.indexes():
            try:
                await self._calls.call(partial(index.api.describe_namespace, name=_marker(collection)))
            except PineconeMissing:
                continue
            self._homes[collection] = index
            return index
        return None

    async def _search_dense(self, home: PineconeIndex, namespace: str, query: SearchQuery) -> tuple[Hit, ...]:
        if query.dense is None:
            return ()
        clause = {"type": "dense_vector", "field": DENSE, "values": query.dense.tolist()}
        wanted = build_filter(query.filter, principals=query.principals, with_dense=True)
        hits = await self._ranked(home, namespace, clause, wanted, query.limit)
        if home.distance is Distance.EUCLIDEAN:
            # Pinecone's score is the squared distance.
            hits = [Hit(id=hit.id, score=1.0 - hit.score / 2.0, payload=hit.payload) for hit in hits]
        least = query.min_dense_score
        return _best_first([hit for hit in hits if least is None or hit.score >= least])

    async def _search_keywords(
        self, home: PineconeIndex, namespace: str, query: SearchQuery, sparse: SparseVector | None
    ) -> tuple[Hit, ...]:
        if sparse is None or not home.keywords:
            return ()

        async def holding(term: int) -> int:
            clause = _sparse_clause(SparseVector(indices=(term,), values=(1.0,)))
            return len(await self._found(home, namespace, clause, None, LONGEST_LIST, fields=()))

        records = await self._records_lately(home, namespace)
        if records == 0:
            # Its count lags behind what can be found: ask all the same.
            self._counted.pop(namespace, None)
        weighted = await self._terms.weighted(namespace, sparse, records=records, count=holding)
        wanted = build_filter(query.filter, principals=query.principals)
        hits = await self._ranked(home, namespace, _sparse_clause(weighted), wanted, query.limit)
        return _best_first([hit for hit in hits if hit.score > 0])

    async def _ranked(
        self, home: PineconeIndex, namespace: str, clause: Mapping[str, Any], wanted: Expression | None, limit: int
    ) -> list[Hit]:
        """With payloads: a long list's are read page by page, because an answer may have 4 MB."""
        limit = min(limit, LONGEST_LIST)
        if limit <= _PAGE:
            found = await self._found(home, namespace, clause, wanted, limit, fields=(PAYLOAD,))
            payloads = {record["_id"]: record for record in found}
        else:
            found = await self._found(home, namespace, clause, wanted, limit, fields=())
            payloads = await self._by_id(home, namespace, [record["_id"] for record in found])
        return [
            Hit(
                id=_readable(lambda record: UUID(record["_id"]), record),
                score=float(record["_score"]),
                payload=_readable(read_payload, payloads[record["_id"]]),
            )
            for record in found
            if record["_id"] in payloads  # or deleted since
        ]

    async def _found(
        self,
        home: PineconeIndex,
        namespace: str,
        clause: Mapping[str, Any],
        wanted: Expression | None,
        limit: int,
        *,
        fields: Sequence[str],
    ) -> list[dict[str, Any]]:
        try:
            answer = await self._calls.call(
                lambda: home.api.documents.search(
                    namespace=namespace, score_by=[clause], top_k=limit, include_fields=fields, filter=wanted
                )
            )
        except PineconeMissing:
            return []
        return [match.to_dict() for match in answer.matches]

    async def _by_id(self, home: PineconeIndex, namespace: str, ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        slots = asyncio.Semaphore(_AT_ONCE)

        async def read(page: Sequence[str]) -> dict[str, dict[str, Any]]:
            async with slots:
                answer = await self._calls.call(
                    lambda: home.api.documents.fetch(namespace=namespace, ids=page, include_fields=[PAYLOAD])
                )
            return {name: document.to_dict() for name, document in answer.documents.items()}

        pages = [ids[start : start + _PAGE] for start in range(0, len(ids), _PAGE)]
        return {name: one for page in await asyncio.gather(*map(read, pages)) for name, one in page.items()}

    async def _fetch(
        self, collection: str, scope: Scope, wanted: Expression | None, *, fields: Sequence[str] | None
    ) -> AsyncIterator[list[dict[str, Any]]]:
        home = await self._home(collection)
        token = None
        while home is not None:
            try:
                answer = await self._calls.call(
                    partial(
                        home.api.documents.fetch,
                        namespace=_namespace(collection, scope),
                        filter=wanted,
                        include_fields=fields,
                        pagination_token=token,
                        limit=_PAGE,
                    )
                )
            except PineconeMissing:
                return
            if answer.documents:
                yield [document.to_dict() for document in answer.documents.values()]
            token = answer.pagination.next if answer.pagination else None
            if not token:
                return

    async def _delete(self, collection: str, scope: Scope, wanted: Expression | None) -> None:
        """What the filter keeps; everything of the scope where it is None."""
        home = await self._home(collection)
        if home is None:
            return
        namespace = _namespace(collection, scope)
        which: dict[str, Any] = {"delete_all": True} if wanted is None else {"filter": wanted}
        try:
            await self._write_all(home, namespace, [lambda: home.api.documents.delete(namespace=namespace, **which)])
        except PineconeMissing:
            return

    async def _write_all(
        self, home: PineconeIndex, namespace: str, writes: Sequence[Callable[[], Awaitable[Any]]]
    ) -> None:
        """One after the other, then waits until a search has seen the last."""
        last: int | None = None
        for write in writes:
            info = (await self._calls.call(write)).response_info
            number = None if info is None else info.lsn_committed
            if number is None:
                raise DependencyInvalidResponse(
                    DEPENDENCY, f"{DEPENDENCY} gave no log sequence number: when the write can be found is not known"
                )
            last = number if last is None else max(last, number)
        if last is None:
            return
        self._counted.pop(namespace, None)

        async def is_seen() -> bool:
            clause = {"type": "dense_vector", "field": DENSE, "values": placeholder(home.dimension)}
            try:
                answer = await self._calls.call(
                    lambda: home.api.documents.search(
                        namespace=namespace, score_by=[clause], top_k=1, include_fields=[]
                    )
                )
            except PineconeMissing:
                # The namespace comes into being with its first write.
                return False
            return answer.response_info is not None and answer.response_info.is_reconciled(last)

        await self._calls.wait(is_seen, at_most_seconds=self._visible_seconds)

    async def _records(self, home: PineconeIndex, namespace: str) -> int:
        try:
            found = await self._calls.call(lambda: home.api.describe_namespace(name=namespace))
        except PineconeMissing:
            return 0
        return found.record_count

    async def _records_lately(self, home: PineconeIndex, namespace: str) -> int:
        known = self._counted.get(namespace)
        if known is None or known[0] <= self._clock():
            known = (self._clock() + _COUNTED_SECONDS, await self._records(home, namespace))
            self._counted[namespace] = known
        return known[1]


def _marker(collection: str) -> str:
    return f"{quote(collection, safe='')}/"


def _namespace(collection: str, scope: Scope) -> str:
    """Whose records: the one place where tenant and knowledge base are put on."""
    tenant = quote(scope.tenant, safe="")
    if len(tenant) > _LONGEST_TENANT:
        tenant = f"{tenant[:32]}~{sha256(scope.tenant.encode()).hexdigest()}"
    return f"{_marker(collection)}{tenant}/{scope.knowledge_base_id}"


def _scope_of(point: Point) -> Scope:
    return Scope(tenant=point.payload["tenant"], knowledge_base_id=UUID(point.payload["knowledge_base_id"]))


def _to_chunk(record: Mapping[str, Any]) -> StoredChunk:
    return StoredChunk(id=UUID(record["_id"]), payload=read_payload(record))


def _sparse_clause(vector: SparseVector) -> dict[str, Any]:
    values = {"indices": list(vector.indices), "values": list(vector.values)}
    return {"type": "sparse_vector", "field": BM25, "sparse_values": values}


def _best_first(hits: Sequence[Hit]) -> tuple[Hit, ...]:
    """Equal scores in the order of their ids, which Pinecone does not promise."""
    return tuple(sorted(hits, key=lambda hit: (-hit.score, hit.id)))


def _readable(read: Callable[[Mapping[str, Any]], R], record: Mapping[str, Any]) -> R:
    try:
        return read(record)
    except (ValueError, KeyError, TypeError) as error:
        raise DependencyInvalidResponse(DEPENDENCY, f"a record was not written by kbmesh: {error}") from error
