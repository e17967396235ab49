"""kbmesh's ways from texts to vectors: a session in this process, and a service in another one."""

import asyncio
import shutil
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from kbmesh.embedder.v1 import embedder_pb2 as pb2
from kbmesh.embedder.v1 import embedder_pb2_grpc
from kbmesh_onnx.device_settings import DeviceSettings
from kbmesh_onnx.errors import ExportError, ModelFolderError
from kbmesh_onnx.folder import load_card
from kbmesh_onnx.int8 import write_int8
from kbmesh_onnx.padding import pad
from kbmesh_onnx.session import ModelSession
from kbmesh_onnx.tokenizer import ModelTokenizer
from numpy.typing import NDArray

from benchmarks.encoder_peers import Taken
from benchmarks.matmul import MatrixProducts, flops
from benchmarks.served import Service

Floats = NDArray[np.float32]
Inputs = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]


@dataclass(frozen=True, kw_only=True)
class Work:
    """The texts, and the batches in which a session in process runs them: all sorted by length."""

    texts: Sequence[str]
    tokens: Sequence[int]
    batches: Sequence[tuple[Sequence[int], Inputs]]
    """Places of the texts, and ids, mask and segments."""

    @classmethod
    def of(cls, tokenizer: ModelTokenizer, texts: Sequence[str], *, max_tokens: int, batch_tokens: int) -> "Work":
        """Tokenises and sorts. Batches have `batch_tokens` at most, padding included."""
        rows = tokenizer.encode(texts, max_tokens=max_tokens)
        batches: list[list[int]] = []
        for place in sorted(range(len(rows)), key=lambda place: rows[place].tokens):
            if batches and (len(batches[-1]) + 1) * rows[place].tokens <= batch_tokens:
                batches[-1].append(place)
            else:
                batches.append([place])
        return cls(
            texts=texts,
            tokens=[row.tokens for row in rows],
            batches=[(places, pad([rows[place] for place in places])) for places in batches],
        )

    @property
    def mean_tokens(self) -> float:
        """Special ones included."""
        return float(np.mean(self.tokens))

    def flops(self) -> float:
        """Floating-point operations of the model's products over all batches, padding included."""
        return sum(flops(*inputs[0].shape) for _, inputs in self.batches)

    def describe(self) -> dict[str, Any]:
        """How many, and how long they are."""
        padded = sum(inputs[0].size for _, inputs in self.batches)
        return {
            "count": len(self.texts),
            "mean_tokens": round(self.mean_tokens, 1),
            "percentiles": {str(p): int(np.percentile(self.tokens, p)) for p in (0, 5, 25, 50, 75, 95, 100)},
            "batches": len(self.batches),
            "padding_share": round(1 - sum(self.tokens) / padded, 4),
        }


class InProcess:
    """A bare session over sorted batches: no queue, no tokenising, no gRPC."""

    def __init__(self, session: ModelSession, work: Work) -> None:
        self._session = session
        self._work = work
        self._vectors: Floats | None = None

    @classmethod
    def open(cls, folder: Path, work: Work, *, threads: int) -> "InProcess":
        """The form of the model that the embedder would take. Raises ModelFolderError."""
        return cls(ModelSession.open(folder, load_card(folder), device="cpu", intra_op_threads=threads), work)

    def measure(self) -> Taken:
        """Runs all batches once."""
        return timed(lambda: [self._session.run(*inputs, outputs=("embeddings",)) for _, inputs in self._work.batches])

    def measuring(self, products: MatrixProducts) -> Callable[[], Taken]:
        """What measures the bare matrix products of the same batches."""
        shapes = [inputs[0].shape for _, inputs in self._work.batches]
        for shape in shapes:
            products.prepare(*shape)

        def run() -> None:
            for shape in shapes:
                products.run(*shape)

        return lambda: timed(run)

    def vectors(self) -> Floats:
        """(n, dimension), in the texts' order."""
        if self._vectors is None:
            batches = self._work.batches
            parts = [(places, self._session.run(*inputs, outputs=("embeddings",))[0]) for places, inputs in batches]
            self._vectors = np.zeros((len(self._work.texts), parts[0][1].shape[1]), dtype=np.float32)
            for places, vectors in parts:
                self._vectors[list(places)] = vectors
        return self._vectors


class Served:
    """Through gRPC: one EmbedStream, 64 texts a request, as an ingestion sends them."""

    REQUEST_TEXTS: ClassVar[int] = 64

    def __init__(self, running: Service, work: Work) -> None:
        self._service = running
        self._work = work
        self.vectors: Floats = np.zeros((0, 0), dtype=np.float32)
        """Of the last round."""

    def measure(self) -> Taken:
        """Sends all texts once, and waits for all vectors. The processor's time is that of both processes."""
        before = self._service.cpu_seconds()
        taken = timed(lambda: asyncio.run(self._embed()))
        return Taken(
            wall_seconds=taken.wall_seconds,
            cpu_seconds=taken.cpu_seconds + self._service.cpu_seconds() - before,
        )

    async def _embed(self) -> None:
        parts: dict[int, Floats] = {}
        async with self._service.channel() as channel:
            stub: embedder_pb2_grpc.EmbedderServiceAsyncStub = embedder_pb2_grpc.EmbedderServiceStub(channel)
            call = stub.EmbedStream(requests(self._work.texts, self.REQUEST_TEXTS), timeout=600)
            async for answer in call:
                parts[answer.sequence] = vectors_of(answer)
        self.vectors = np.concatenate([parts[place] for place in sorted(parts)])


async def requests(
    texts: Sequence[str], request_texts: int, *, priority: "pb2.Priority.ValueType" = pb2.PRIORITY_BULK
) -> AsyncIterator[pb2.EmbedStreamRequest]:
    """The requests of a stream."""
    for start in range(0, len(texts), request_texts):
        yield pb2.EmbedStreamRequest(sequence=start, request=order(texts[start : start + request_texts], priority))


def order(texts: Sequence[str], priority: "pb2.Priority.ValueType") -> pb2.EmbedRequest:
    """What is asked of the embedder."""
    return pb2.EmbedRequest(texts=texts, input_type=pb2.INPUT_TYPE_DOCUMENT, priority=priority)


def vectors_of(answer: pb2.EmbedStreamResponse) -> Floats:
    """The vectors of an answer, (n, dimension). Raises ValueError where it has none or not all."""
    batch = answer.response.vectors
    if answer.HasField("error") or any(receipt.HasField("error") for receipt in answer.response.receipts):
        raise ValueError(f"the embedder failed: {answer.error}")
    return np.frombuffer(batch.data, dtype="<f4").reshape(batch.count, batch.dimension)


def int8_session(folder: Path, *, copies: Path, threads: int) -> ModelSession:
    """The model in int8: its own file, or one that is made in a copy of the folder under `copies` and kept there for
    the next time. Raises ValueError where the model has no int8 form that is good enough."""
    settings = DeviceSettings(precision="int8")
    try:
        card = load_card(folder)
        if card.int8 is None:
            source, folder = folder, copies / f"{card.name}-{card.fingerprint[:16]}"
            if not folder.exists():
                shutil.copytree(source, folder)
            copied = load_card(folder)
            card = copied if copied.int8 is not None else write_int8(folder)
        return ModelSession.open(folder, card, device="cpu", intra_op_threads=threads, settings=settings)
    except (ModelFolderError, ExportError) as error:
        raise ValueError(str(error)) from error


def timed(work: Callable[[], object]) -> Taken:
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return Taken(wall_seconds=time.perf_counter() - wall, cpu_seconds=time.process_time() - cpu)
