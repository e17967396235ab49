"""Taking the vectors out of Cohere's answers before its SDK sees them.

The SDK builds its model of an answer number by number on the event loop, half a second for 96 texts of 1,536 numbers.
"""

import asyncio
import json
from typing import Any

import httpx

from kbmesh_embedder.backends.answers import LONG_BODY

VECTORS = "kbmesh_vectors"
"""Where an answer has them: in its extensions."""


class VectorsApartClient(httpx.AsyncClient):
    """Of what succeeds, the list of vectors as JSON had it is among the answer's extensions, and nowhere else."""

    async def send(self, request: httpx.Request, **options: Any) -> httpx.Response:
        """As httpx has it."""
        response = await super().send(request, **options)
        if response.status_code != 200:
            return response
        body = response.content
        taken = _take(body) if len(body) < LONG_BODY else await asyncio.to_thread(_take, body)
        # Of what is no answer of Cohere's nothing is left that the SDK could stumble over.
        vectors, rest = taken if taken is not None else (None, {})
        return httpx.Response(200, json=rest, extensions={VECTORS: vectors}, request=request)


def _take(body: bytes) -> tuple[object, dict[str, object]] | None:
    """The vectors of an answer, and what it has besides; None where it is no JSON object."""
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(answer, dict):
        return None
    embeddings = answer.pop("embeddings", None)
    meta = answer.get("meta")
    return (
        embeddings.get("float") if isinstance(embeddings, dict) else None,
        {"id": "", "embeddings": {}, "meta": meta if isinstance(meta, dict) else {}},
    )
