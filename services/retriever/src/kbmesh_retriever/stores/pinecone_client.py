"""Calls to Pinecone by its official SDK, with this port's deadlines and errors.

The SDK repeats a call three times on 408, 429 (after the Retry-After it is told) and 5xx. Every call here can be
repeated: documents are written by id, deleted and patched by what they are, and an index that is there is not made.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Self, TypeVar

from kbmesh_rpc.call import optional_call
from kbmesh_rpc.errors import (
    Conflict,
    DeadlineExceeded,
    DependencyInvalidResponse,
    DependencyUnavailable,
    FeatureUnsupported,
    KbmeshError,
)

from kbmesh_retriever.stores.pinecone_records import BM25, DENSE
from kbmesh_retriever.stores.port import Distance

if TYPE_CHECKING:
    from pinecone import AsyncIndex, AsyncPinecone
    from pinecone.models.indexes.index import IndexModel

T = TypeVar("T")

DEPENDENCY = "pinecone"

_METRICS: Mapping[Distance, str] = {
    Distance.COSINE: "cosine",
    Distance.EUCLIDEAN: "euclidean",
    Distance.DOT: "dotproduct",
}
_FIRST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True)
class PineconeIndex:
    """An index of kbmesh: one dimension, one distance, many namespaces."""

    name: str
    dimension: int
    distance: Distance
    keywords: bool
    """Whether it has a field for sparse vectors; one cannot be added later."""
    api: "AsyncIndex"


class PineconeMissing(Exception):
    """There is no such index or namespace."""


class PineconeCalls:
    """The SDK's client with one index for each dimension and distance."""

    def __init__(
        self, sdk: Any, client: "AsyncPinecone", *, prefix: str, deployment: Mapping[str, str], timeout_seconds: float
    ) -> None:
        self._sdk = sdk
        self._client = client
        self._prefix = prefix
        self._deployment = dict(deployment)
        self._timeout_seconds = timeout_seconds
        self._open: dict[str, PineconeIndex] = {}

    @classmethod
    def connect(cls, api_key: str, *, host: str, prefix: str, cloud: str, region: str, timeout_seconds: float) -> Self:
        """No connection is made yet. Raises FeatureUnsupported where the SDK is not installed, and ValueError for a key
        or a prefix that is none."""
        try:
            sdk = import_module("pinecone")
        except ImportError as error:
            raise FeatureUnsupported("the vector store pinecone: install kbmesh-retriever[pinecone]") from error
        if not prefix or len(prefix) > 20 or not prefix.replace("-", "").isalnum() or prefix != prefix.lower():
            raise ValueError(f"{prefix!r} is not 1 to 20 small letters, digits and hyphens")
        client = sdk.AsyncPinecone(api_key, host=host or None, timeout=timeout_seconds)
        deployment = {"deployment_type": "managed", "cloud": cloud, "region": region}
        return cls(sdk, client, prefix=prefix, deployment=deployment, timeout_seconds=timeout_seconds)

    async def close(self) -> None:
        for index in self._open.values():
            await index.api.close()
        await self._client.close()

    async def ensure_index(self, dimension: int, distance: Distance) -> PineconeIndex:
        """The index, made and awaited where there is none. Raises Conflict for one of another shape."""
        name = f"{self._prefix}-{dimension}-{_METRICS[distance]}"
        if (known := self._open.get(name)) is not None:
            return _checked(known, name, dimension, distance)
        fields = {
            DENSE: {"type": "dense_vector", "dimension": dimension, "metric": _METRICS[distance]},
            BM25: {"type": "sparse_vector"},
        }
        try:
            model = await self.call(lambda: self._client.indexes.describe(name))
        except PineconeMissing:
            try:
                model = await self.call(
                    lambda: self._client.indexes.create(
                        name=name, schema={"fields": fields}, deployment=self._deployment, timeout=-1
                    )
                )
            except _AlreadyThereError:
                model = await self.call(lambda: self._client.indexes.describe(name))
        model = await self._ready(model)
        return _checked(await self._opened(model), name, dimension, distance)

    async def indexes(self) -> Sequence[PineconeIndex]:
        """Every index of kbmesh that serves."""
        models = await self.call(lambda: self._client.indexes.list().to_list())
        opened = [await self._opened(model) for model in models if self._is_ours(model)]
        return [index for index in opened if index is not None]

    async def check(self) -> None:
        """Raises where Pinecone cannot be reached, or refuses the key."""
        await self.call(lambda: self._client.indexes.list().to_list())

    async def wait(self, done: Callable[[], Awaitable[bool]], *, at_most_seconds: float) -> None:
        """Asks until the answer is yes. Raises DeadlineExceeded."""
        pause = _FIRST_PAUSE_SECONDS
        try:
            async with asyncio.timeout(min(at_most_seconds, _left_of_call())):
                while not await done():
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
        except TimeoutError as error:
            raise DeadlineExceeded(DEPENDENCY) from error

    async def call(self, call: Callable[[], Awaitable[T]]) -> T:
        """What `call` gives, cut off at the store's timeout or at what is left to the call being served. Raises
        PineconeMissing for a 404, and the port's errors for the rest."""
        seconds = min(self._timeout_seconds, _left_of_call())
        if seconds <= 0:
            raise DeadlineExceeded(DEPENDENCY)
        try:
            async with asyncio.timeout(seconds):
                return await call()
        except TimeoutError as error:
            # The SDK's own time-out is one too.
            raise DeadlineExceeded(DEPENDENCY) from error
        except self._sdk.NotFoundError as error:
            raise PineconeMissing from error
        except self._sdk.ConflictError as error:
            raise _AlreadyThereError from error
        except self._sdk.PineconeError as error:
            raise self._typed(error) from error
        except RuntimeError as error:
            # The client was closed under the call.
            raise DependencyUnavailable(DEPENDENCY, f"{DEPENDENCY} cannot be called: {error}") from error

    def _typed(self, error: Exception) -> KbmeshError:
        if isinstance(error, self._sdk.PineconeConnectionError):
            return DependencyUnavailable(DEPENDENCY, f"{DEPENDENCY} cannot be reached: {error}")
        if isinstance(error, self._sdk.RateLimitError):
            return DependencyUnavailable(DEPENDENCY, f"{DEPENDENCY} is overloaded: {error}")
        if isinstance(error, self._sdk.ServiceError):
            return DependencyUnavailable(DEPENDENCY, f"{DEPENDENCY} failed: {error}")
        return DependencyInvalidResponse(DEPENDENCY, f"{DEPENDENCY} answered: {error}")

    async def _ready(self, model: "IndexModel") -> "IndexModel":
        latest = [model]

        async def is_ready() -> bool:
            if not latest[0].status.ready:
                latest[0] = await self.call(lambda: self._client.indexes.describe(model.name))
            return bool(latest[0].status.ready)

        await self.wait(is_ready, at_most_seconds=max(self._timeout_seconds, 120.0))
        return latest[0]

    def _is_ours(self, model: "IndexModel") -> bool:
        return model.name.startswith(f"{self._prefix}-") and bool(model.status.ready)

    async def _opened(self, model: "IndexModel") -> PineconeIndex | None:
        """None for an index without kbmesh's dense field."""
        if (known := self._open.get(model.name)) is not None:
            return known
        fields = model.schema.fields
        dense = fields.get(DENSE)
        metric = getattr(dense, "metric", None)
        distance = next((ours for ours, theirs in _METRICS.items() if theirs == metric), None)
        dimension = getattr(dense, "dimension", None)
        if distance is None or not isinstance(dimension, int) or model.host is None:
            return None
        keywords = type(fields.get(BM25)).__name__ == "SparseVectorField"
        host = model.host
        api = await self.call(lambda: self._client.index(host=host))
        return self._open.setdefault(
            model.name,
            PineconeIndex(name=model.name, dimension=dimension, distance=distance, keywords=keywords, api=api),
        )


class _AlreadyThereError(DependencyInvalidResponse):
    """A 409: what was to be made is there."""

    def __init__(self) -> None:
        super().__init__(DEPENDENCY, f"{DEPENDENCY} says that it is there already")


def _checked(index: PineconeIndex | None, name: str, dimension: int, distance: Distance) -> PineconeIndex:
    if index is None or index.dimension != dimension or index.distance is not distance:
        raise Conflict(
            f"index {name}",
            f"index {name} cannot be used: it has no dense_vector field named {DENSE} of {dimension} dimensions and "
            f"the metric {_METRICS[distance]}",
        )
    return index


def _left_of_call() -> float:
    served = optional_call()
    return math.inf if served is None or served.deadline is None else served.deadline.remaining()
