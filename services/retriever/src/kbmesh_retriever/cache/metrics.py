"""What the caches tell Prometheus. Labels are the caches and a few words, all known at start."""

from typing import Literal

from prometheus_client import Counter, Gauge

CacheName = Literal["answers", "query_vectors"]
Outcome = Literal["hit", "miss", "shared", "bypassed"]
Fault = Literal["unavailable", "timeout", "refused", "broken"]

REQUESTS = Counter(
    "kbmesh_retriever_cache_requests_total",
    "What was asked for, by how it was answered: hit (kept before), miss (computed), shared (computed for an equal "
    "call at the same time) or bypassed (not asked).",
    ["cache", "outcome"],
)
EVICTIONS = Counter(
    "kbmesh_retriever_cache_evictions_total", "Values that left before their time, to make room.", ["cache"]
)
ERRORS = Counter(
    "kbmesh_retriever_cache_errors_total",
    "Faults of a cache, each a miss: unavailable (no connection), timeout, refused (it will not do this), "
    "broken (a value that is not as it was put).",
    ["cache", "fault"],
)
REFUSED = Counter(
    "kbmesh_retriever_cache_refused_total", "Values that were not kept, for they are larger than may be.", ["cache"]
)
ENTRIES = Gauge("kbmesh_retriever_cache_entries", "Values in this process's memory.", ["cache"])
BYTES = Gauge("kbmesh_retriever_cache_bytes", "Bytes of the values in this process's memory.", ["cache"])


class CacheMetrics:
    """The series of one cache. All of them exist from here on, at zero."""

    def __init__(self, cache: CacheName) -> None:
        outcomes: tuple[Outcome, ...] = ("hit", "miss", "shared", "bypassed")
        faults: tuple[Fault, ...] = ("unavailable", "timeout", "refused", "broken")
        self._requests = {outcome: REQUESTS.labels(cache, outcome) for outcome in outcomes}
        self._errors = {fault: ERRORS.labels(cache, fault) for fault in faults}
        self._evictions = EVICTIONS.labels(cache)
        self._refused = REFUSED.labels(cache)
        self._entries = ENTRIES.labels(cache)
        self._bytes = BYTES.labels(cache)

    def count(self, outcome: Outcome, times: int = 1) -> None:
        """Something was asked for."""
        self._requests[outcome].inc(times)

    def evicted(self, values: int) -> None:
        """Values had to leave."""
        self._evictions.inc(values)

    def failed(self, fault: Fault) -> None:
        """The cache had a fault."""
        self._errors[fault].inc()

    def refused(self) -> None:
        """A value was too large."""
        self._refused.inc()

    def holds(self, *, entries: int, size_bytes: int) -> None:
        """What is in memory now."""
        self._entries.set(entries)
        self._bytes.set(size_bytes)
