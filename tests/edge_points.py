"""Small collections and points for the tests of kbmesh-edge."""

from uuid import UUID

from qdrant_client import models

DENSE = {"dense": models.VectorParams(size=4, distance=models.Distance.COSINE)}
SPARSE = {"bm25": models.SparseVectorParams(modifier=models.Modifier.IDF)}
AXES = [[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]]


def numbered(number: int) -> str:
    """The id of the point of that number."""
    return str(UUID(int=number))


def point(
    number: int, dense: list[float], words: list[int] | None = None, payload: dict[str, object] | None = None
) -> models.PointStruct:
    """A point that holds each of `words` once."""
    vector: dict[str, list[float] | models.SparseVector] = {"dense": dense}
    if words is not None:
        vector["bm25"] = models.SparseVector(indices=words, values=[1.0] * len(words))
    return models.PointStruct(id=numbered(number), vector=vector, payload=payload or {})


def field(key: str, **test: object) -> models.FieldCondition:
    """A condition on a payload field."""
    return models.FieldCondition(key=key, **test)
