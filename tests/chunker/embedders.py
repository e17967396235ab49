"""Embedders for tests: sentences that are as alike as was planned, and a server that answers as it is told."""

import math
import re
from array import array
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import grpc
from kbmesh.embedder.v1 import embedder_pb2 as pb
from kbmesh.embedder.v1 import embedder_pb2_grpc
from kbmesh_chunker.sentence_embedder import SentenceVectors
from kbmesh_rpc.server import Registration, running
from kbmesh_rpc.settings import ServerSettings

_NUMBER = re.compile(r"\d+")


def planned_text(sentences: int) -> str:
    """A text of sentences with numbers from 0."""
    return " ".join(f"Sentence {number} has been planned." for number in range(sentences))


def planned_vectors(cosines: Sequence[float]) -> Callable[[str], Sequence[float]]:
    """Vectors by a sentence's number: those of neighbours have these cosines, one after the other."""
    angles = [0.0]
    for cosine in cosines:
        angles.append(angles[-1] + math.acos(cosine))

    def vector(text: str) -> Sequence[float]:
        found = _NUMBER.search(text)
        assert found is not None
        angle = angles[int(found.group())]
        return math.cos(angle), math.sin(angle)

    return vector


@dataclass
class CountingEmbedder:
    """Gives each text the vector of a function, and remembers what it was asked."""

    vector: Callable[[str], Sequence[float]]
    fingerprint: str = "planned-1"
    calls: list[list[str]] = field(default_factory=list)
    models: list[str] = field(default_factory=list)
    in_flight: int = 0
    most_in_flight: int = 0

    async def embed(self, texts: Sequence[str], *, model: str) -> SentenceVectors:
        self.calls.append(list(texts))
        self.models.append(model)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            await self.pause()
        finally:
            self.in_flight -= 1
        return SentenceVectors(vectors=[self.vector(text) for text in texts], model_fingerprint=self.fingerprint)

    async def pause(self) -> None:
        """What passes before the answer."""

    @property
    def texts(self) -> list[str]:
        """All texts that were embedded, in order."""
        return [text for call in self.calls for text in call]


class ToldEmbedder(embedder_pb2_grpc.EmbedderServiceServicer):
    """A server that answers with vectors of a function over the texts."""

    def __init__(self, answer: Callable[[Sequence[str]], Sequence[Sequence[float]]]) -> None:
        self.answer = answer
        self.requests: list[pb.EmbedRequest] = []

    async def Embed(  # noqa: N802 - the contract's name
        self, request: pb.EmbedRequest, context: grpc.ServicerContext
    ) -> pb.EmbedResponse:
        self.requests.append(request)
        vectors = self.answer(request.texts)
        data = b"".join(array("f", vector).tobytes() for vector in vectors)
        batch = pb.VectorBatch(data=data, count=len(vectors), dimension=len(vectors[0]) if vectors else 0)
        return pb.EmbedResponse(
            vectors=batch, receipts=[pb.Receipt() for _ in vectors], model="told", model_fingerprint="told-1"
        )

    @property
    def registrations(self) -> Sequence[Registration]:
        return (Registration(name="kbmesh.embedder.v1.EmbedderService", add=self._add),)

    def _add(self, server: grpc.aio.Server) -> None:
        embedder_pb2_grpc.add_EmbedderServiceServicer_to_server(self, server)

    async def warm_up(self) -> None:
        """Nothing to do."""

    async def close(self) -> None:
        """Nothing to do."""

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        """Its address."""
        async with running(self, ServerSettings(port=0)) as address:
            yield address
