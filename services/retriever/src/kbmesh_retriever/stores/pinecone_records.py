"""Points as Pinecone's documents, and back."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

import numpy as np
from kbmesh_rpc.errors import RequestTooLarge

from kbmesh_retriever.stores.conditions import NUMBER_FIELDS, PRINCIPALS, TEXT_FIELDS, metadata_numbers
from kbmesh_retriever.stores.pinecone_filters import HAS_DENSE, OPEN, metadata_fields
from kbmesh_retriever.stores.port import Point, SparseVector

DENSE = "dense"
"""Field of the dense vector."""
BM25 = "bm25"
"""Field of the sparse vector."""
PAYLOAD = "payload"
"""Field of the whole payload, as JSON: Pinecone's metadata is flat and knows no lists of numbers."""

MAX_METADATA_BYTES = 40_960
MAX_REQUEST_BYTES = 2_000_000
MAX_BATCH = 100
"""Documents of one request; Pinecone takes 1,000, and 2 MB."""
_ENVELOPE_BYTES = 64 * 1024
"""Left free in a request for what is around the documents, and for other spellings of the same numbers."""

Record = dict[str, Any]


def to_record(point: Point, *, dimension: int, keywords: bool) -> Record:
    """Raises RequestTooLarge for a point whose payload is over Pinecone's 40 KB."""
    record = payload_fields(point.payload)
    record[HAS_DENSE] = point.dense is not None
    if (size := len(_json(record))) > MAX_METADATA_BYTES:
        raise RequestTooLarge(field="chunk.metadata", limit=MAX_METADATA_BYTES, actual=size)
    record["_id"] = str(point.id)
    record[DENSE] = placeholder(dimension) if point.dense is None else point.dense.tolist()
    if keywords and point.sparse.indices:
        record[BM25] = {"indices": list(point.sparse.indices), "values": list(point.sparse.values)}
    return record


def payload_fields(payload: Mapping[str, Any]) -> Record:
    """The payload, and beside it what filters read."""
    metadata = payload.get("metadata") or {}
    principals = list(payload.get(PRINCIPALS) or ())
    fields: Record = {
        PAYLOAD: _json(payload).decode(),
        "generation": payload["generation"],
        "index": payload["index"],
        OPEN: not principals,
        **metadata_fields(metadata, metadata_numbers(metadata)),
    }
    if principals:
        fields[PRINCIPALS] = principals
    for key in TEXT_FIELDS | NUMBER_FIELDS:
        value = payload.get(key)
        if value is not None and value != []:
            fields[key] = value
    return fields


def to_patch(record_id: str, before: Mapping[str, Any], payload: Mapping[str, Any]) -> Record:
    """The update that makes a record of fields `before` one of `payload`. Raises RequestTooLarge as `to_record`."""
    fields = payload_fields(payload)
    if (size := len(_json(fields))) > MAX_METADATA_BYTES:
        raise RequestTooLarge(field="chunk.metadata", limit=MAX_METADATA_BYTES, actual=size)
    kept = {"_id", "_score", DENSE, BM25, HAS_DENSE}
    gone = sorted(key for key in before if key not in fields and key not in kept)
    return {**fields, "_id": record_id, **({"_remove_fields": gone} if gone else {})}


def to_point(record: Mapping[str, Any]) -> Point:
    """Raises ValueError, KeyError or TypeError for a record that kbmesh did not write."""
    sparse = record.get(BM25) or {"indices": [], "values": []}
    return Point(
        id=UUID(record["_id"]),
        dense=np.asarray(record[DENSE], dtype=np.float32) if record[HAS_DENSE] else None,
        sparse=SparseVector(indices=tuple(sparse["indices"]), values=tuple(sparse["values"])),
        payload=read_payload(record),
    )


def read_payload(record: Mapping[str, Any]) -> dict[str, Any]:
    """Raises ValueError, KeyError or TypeError for a record that kbmesh did not write."""
    payload = json.loads(record[PAYLOAD])
    if not isinstance(payload, dict):
        raise TypeError("the payload is no object")
    return payload


def placeholder(dimension: int) -> list[float]:
    """A vector for what has none. Pinecone refuses records without one, and zeros."""
    return [1.0] + [0.0] * (dimension - 1)


def batches(records: Sequence[Record]) -> Iterator[list[Record]]:
    """Records in their order, in requests that Pinecone takes."""
    batch: list[Record] = []
    size = _ENVELOPE_BYTES
    for record in records:
        own = len(_json(record)) + 1
        if batch and (len(batch) == MAX_BATCH or size + own > MAX_REQUEST_BYTES):
            yield batch
            batch, size = [], _ENVELOPE_BYTES
        batch.append(record)
        size += own
    if batch:
        yield batch


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
