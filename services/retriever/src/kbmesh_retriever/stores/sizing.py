"""How a Qdrant collection is set up for the number of points it will hold. docs/stores.md has the table."""

from dataclasses import dataclass
from typing import Any

from qdrant_client import models

GRAPH_FROM_POINTS = 100_000
QUANTISED_FROM_POINTS = 1_000_000
SHARDED_FROM_POINTS = 100_000_000
POINTS_PER_SHARD = 20_000_000

_BYTES_PER_NUMBER = 4
_GRAPH_DEGREE = 16
_TENANT_GRAPH_DEGREE = 16


@dataclass(frozen=True, kw_only=True)
class Sizing:
    """Settings of a collection. None leaves Qdrant's own."""

    hnsw: models.HnswConfigDiff | None = None
    optimizers: models.OptimizersConfigDiff | None = None
    quantization: models.ScalarQuantization | None = None
    shard_number: int | None = None
    vectors_on_disk: bool | None = None

    def arguments(self) -> dict[str, Any]:
        """What `create_collection` takes of it; `vectors_on_disk` belongs to the vector."""
        found = {
            "hnsw_config": self.hnsw,
            "optimizers_config": self.optimizers,
            "quantization_config": self.quantization,
            "shard_number": self.shard_number,
            "on_disk_payload": self.vectors_on_disk,
        }
        return {name: value for name, value in found.items() if value is not None}


def size_for(expected_points: int, *, dimension: int, shared: bool) -> Sizing:
    """The settings for so many points of one collection."""
    if expected_points < GRAPH_FROM_POINTS:
        # A segment below this size is searched exactly; one that outgrows it gets its graph from Qdrant itself.
        kilobytes = GRAPH_FROM_POINTS * dimension * _BYTES_PER_NUMBER // 1024
        return Sizing(
            hnsw=_graph(ef_construct=128, shared=shared),
            optimizers=models.OptimizersConfigDiff(indexing_threshold=kilobytes, default_segment_number=1),
        )
    if expected_points < QUANTISED_FROM_POINTS:
        return Sizing(hnsw=_graph(ef_construct=128, shared=shared))
    int8 = models.ScalarQuantization(
        scalar=models.ScalarQuantizationConfig(type=models.ScalarType.INT8, quantile=0.99, always_ram=True)
    )
    if expected_points < SHARDED_FROM_POINTS:
        return Sizing(hnsw=_graph(ef_construct=200, shared=shared), quantization=int8)
    return Sizing(
        hnsw=_graph(ef_construct=200, shared=shared),
        quantization=int8,
        shard_number=-(-expected_points // POINTS_PER_SHARD),
        vectors_on_disk=True,
    )


def _graph(*, ef_construct: int, shared: bool) -> models.HnswConfigDiff:
    """In a shared collection every search is within one tenant, so each has a graph of its own and there is none over
    all: a filtered walk through a graph of everybody's points finds few that may be seen."""
    if shared:
        return models.HnswConfigDiff(m=0, payload_m=_TENANT_GRAPH_DEGREE, ef_construct=ef_construct)
    return models.HnswConfigDiff(m=_GRAPH_DEGREE, ef_construct=ef_construct)
