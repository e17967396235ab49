"""What a collection of kbmesh looks like in Qdrant, and whether one looks like it."""

from collections.abc import Mapping

from kbmesh_rpc.errors import Conflict
from qdrant_client import models

from kbmesh_retriever.stores.port import Distance

DENSE = "dense"
"""Name of the dense vector."""
BM25 = "bm25"
"""Name of the sparse vector."""

Index = models.KeywordIndexParams | models.IntegerIndexParams | models.FloatIndexParams


def keyword_index(*, is_tenant: bool | None = None) -> models.KeywordIndexParams:
    """The index of texts that are looked for whole."""
    return models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, is_tenant=is_tenant)


PAYLOAD_INDEXES: Mapping[str, Index] = {
    "tenant": keyword_index(is_tenant=True),
    "knowledge_base_id": keyword_index(),
    "document_id": keyword_index(),
    "generation": models.IntegerIndexParams(type=models.IntegerIndexType.INTEGER),
}
"""Every field that a read or delete of kbmesh itself filters by: without an index such a filter scans the payloads."""
FILTER_INDEXES: Mapping[str, Index] = {
    "external_id": keyword_index(),
    "source_type": keyword_index(),
    "media_type": keyword_index(),
    "author": keyword_index(),
    "tags": keyword_index(),
    "principals": keyword_index(),
    "time": models.FloatIndexParams(type=models.FloatIndexType.FLOAT),
}
"""Fields that callers filter by. A small collection does without: each costs memory, most of all in kbmesh-edge."""

_DISTANCES: Mapping[Distance, models.Distance] = {
    Distance.COSINE: models.Distance.COSINE,
    Distance.EUCLIDEAN: models.Distance.EUCLID,
    Distance.DOT: models.Distance.DOT,
}


def dense_vectors(
    dimension: int, distance: Distance = Distance.COSINE, *, on_disk: bool | None = None
) -> dict[str, models.VectorParams]:
    return {DENSE: models.VectorParams(size=dimension, distance=_DISTANCES[distance], on_disk=on_disk)}


def sparse_vectors() -> dict[str, models.SparseVectorParams]:
    """Without the IDF modifier common words would outweigh rare ones, and nothing would fail."""
    return {BM25: models.SparseVectorParams(modifier=models.Modifier.IDF)}


def check_collection(
    name: str, info: models.CollectionInfo, *, dimension: int, distance: Distance, indexes: Mapping[str, Index]
) -> None:
    """Raises Conflict, with everything that is wrong, for a collection that kbmesh cannot use."""
    problems = [
        *_vector_problems(info, dimension, distance),
        *(
            f"payload index {field} is {index.data_type.value}, not {indexes[field].type.value}"
            for field, index in info.payload_schema.items()
            if field in indexes and index.data_type.value != indexes[field].type.value
        ),
    ]
    if problems:
        raise Conflict(f"collection {name}", f"collection {name} cannot be used: {'; '.join(problems)}")


def missing_indexes(info: models.CollectionInfo, indexes: Mapping[str, Index]) -> list[str]:
    return [field for field in indexes if field not in info.payload_schema]


def dense_of(info: models.CollectionInfo) -> models.VectorParams | None:
    """The dense vector of the collection, if it has one of kbmesh's name."""
    vectors = info.config.params.vectors
    return vectors.get(DENSE) if isinstance(vectors, dict) else None


def distance_of(params: models.VectorParams) -> Distance | None:
    """None for one that kbmesh does not know."""
    return next((ours for ours, theirs in _DISTANCES.items() if theirs == params.distance), None)


def has_keywords(info: models.CollectionInfo) -> bool:
    return BM25 in (info.config.params.sparse_vectors or {})


def _vector_problems(info: models.CollectionInfo, dimension: int, distance: Distance) -> list[str]:
    problems: list[str] = []
    dense = dense_of(info)
    if dense is None:
        problems.append(f"it has no vector named {DENSE}")
    else:
        if dense.size != dimension:
            problems.append(f"vector {DENSE} has {dense.size} dimensions, not {dimension}")
        if dense.distance != _DISTANCES[distance]:
            problems.append(f"vector {DENSE} is compared by {dense.distance.value}, not {_DISTANCES[distance].value}")
    sparse = (info.config.params.sparse_vectors or {}).get(BM25)
    if sparse is None:
        problems.append(f"it has no sparse vector named {BM25}")
    elif sparse.modifier != models.Modifier.IDF:
        problems.append(f"sparse vector {BM25} has no IDF modifier")
    return problems
