"""What a collection of kbmesh looks like in Qdrant, and whether one looks like it."""

from collections.abc import Mapping

from kbmesh_rpc.errors import Conflict
from qdrant_client import models

DENSE = "dense"
"""Name of the dense vector."""
BM25 = "bm25"
"""Name of the sparse vector."""

PAYLOAD_INDEXES: Mapping[str, models.KeywordIndexParams | models.IntegerIndexParams] = {
    "tenant": models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, is_tenant=True),
    "knowledge_base_id": models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD),
    "document_id": models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD),
    "generation": models.IntegerIndexParams(type=models.IntegerIndexType.INTEGER),
}
"""Every field that a read or delete of kbmesh itself filters by: without an index such a filter scans the payloads."""


def dense_vectors(dimension: int) -> dict[str, models.VectorParams]:
    return {DENSE: models.VectorParams(size=dimension, distance=models.Distance.COSINE)}


def sparse_vectors() -> dict[str, models.SparseVectorParams]:
    """Without the IDF modifier common words would outweigh rare ones, and nothing would fail."""
    return {BM25: models.SparseVectorParams(modifier=models.Modifier.IDF)}


def check_collection(name: str, info: models.CollectionInfo, *, dimension: int) -> None:
    """Raises Conflict, with everything that is wrong, for a collection that kbmesh cannot use."""
    problems = [
        *_vector_problems(info, dimension),
        *(
            f"payload index {field} is {index.data_type.value}, not {PAYLOAD_INDEXES[field].type.value}"
            for field, index in info.payload_schema.items()
            if field in PAYLOAD_INDEXES and index.data_type.value != PAYLOAD_INDEXES[field].type.value
        ),
    ]
    if problems:
        raise Conflict(f"collection {name}", f"collection {name} cannot be used: {'; '.join(problems)}")


def missing_indexes(info: models.CollectionInfo) -> list[str]:
    return [field for field in PAYLOAD_INDEXES if field not in info.payload_schema]


def _vector_problems(info: models.CollectionInfo, dimension: int) -> list[str]:
    problems: list[str] = []
    vectors = info.config.params.vectors
    dense = vectors.get(DENSE) if isinstance(vectors, dict) else None
    if dense is None:
        problems.append(f"it has no vector named {DENSE}")
    else:
        if dense.size != dimension:
            problems.append(f"vector {DENSE} has {dense.size} dimensions, not {dimension}")
        if dense.distance != models.Distance.COSINE:
            problems.append(f"vector {DENSE} is compared by {dense.distance.value}, not Cosine")
    sparse = (info.config.params.sparse_vectors or {}).get(BM25)
    if sparse is None:
        problems.append(f"it has no sparse vector named {BM25}")
    elif sparse.modifier != models.Modifier.IDF:
        problems.append(f"sparse vector {BM25} has no IDF modifier")
    return problems
