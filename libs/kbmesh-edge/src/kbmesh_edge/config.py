"""What a collection is made of, as it is kept beside its shard."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

import qdrant_edge as engine

DistanceName = Literal["Cosine", "Euclid", "Dot", "Manhattan"]

_FORMAT = 1
_DISTANCES: Mapping[str, engine.Distance] = {
    "Cosine": engine.Distance.Cosine,
    "Euclid": engine.Distance.Euclid,
    "Dot": engine.Distance.Dot,
    "Manhattan": engine.Distance.Manhattan,
}


@dataclass(frozen=True, kw_only=True)
class DenseVector:
    """A named dense vector of a collection."""

    size: int
    distance: DistanceName


@dataclass(frozen=True, kw_only=True)
class SparseVector:
    """A named sparse vector of a collection."""

    idf: bool
    """Whether the engine multiplies a query's weights by the inverse document frequency of each index."""


@dataclass(frozen=True, kw_only=True)
class CollectionConfig:
    """The vectors of a collection, by name."""

    dense: Mapping[str, DenseVector]
    sparse: Mapping[str, SparseVector]

    def to_json(self) -> str:
        return json.dumps(
            {
                "format": _FORMAT,
                "dense": {name: {"size": v.size, "distance": v.distance} for name, v in self.dense.items()},
                "sparse": {name: {"idf": v.idf} for name, v in self.sparse.items()},
            },
            indent=2,
        )

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Raises ValueError, KeyError or TypeError for what `to_json` did not write."""
        fields: dict[str, Any] = json.loads(text)
        if fields["format"] != _FORMAT:
            raise ValueError(f"format {fields['format']} is not {_FORMAT}")
        return cls(
            dense={name: DenseVector(**vector) for name, vector in fields["dense"].items()},
            sparse={name: SparseVector(**vector) for name, vector in fields["sparse"].items()},
        )

    def for_engine(self) -> engine.EdgeConfig:
        """No graph index is ever built, so search is exact; one search thread a shard, because one call runs at a
        time anyway and a process may hold hundreds of shards."""
        return engine.EdgeConfig(
            vectors={
                name: engine.EdgeVectorParams(size=vector.size, distance=_DISTANCES[vector.distance])
                for name, vector in self.dense.items()
            },
            sparse_vectors={
                name: engine.EdgeSparseVectorParams(modifier=engine.Modifier.Idf if vector.idf else None)
                for name, vector in self.sparse.items()
            },
            optimizers=engine.EdgeOptimizersConfig(indexing_threshold=0),
            max_search_threads=1,
            wal_enabled=True,
        )
