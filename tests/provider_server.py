"""A server that speaks the documented HTTP of vendors who serve models: `async with provider_server() as server: ...`.

OpenAI's and LiteLLM's `POST /v1/embeddings`, Cohere's `POST /v2/embed` and `POST /v2/rerank`, and
text-embeddings-inference behind a Hugging Face endpoint at `POST /endpoint`. It is strict where they are: keys, sizes,
fields, limits. Its model counts words as tokens and reads 16. `faults` makes it fail.
"""

import asyncio
import base64
import hashlib
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

KEY = "sk-provider-7Qm2xT9vKeyOfTheTest"
MODEL = "words-8"
DIMENSION = 8
MAX_TOKENS = 16
POISON = "poison"
"""A text with this word is refused."""

REASONS = {200: "OK", 302: "Found", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 413: "Too Large"}


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One request."""

    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]

    @property
    def texts(self) -> list[str]:
        """The texts that it brings."""
        for name in ("input", "texts", "inputs", "documents"):
            if name in self.body:
                return list(self.body[name])
        return []


@dataclass(kw_only=True)
class Fault:
    """What happens to the next request, or to the next one that `when` chooses, in place of an answer."""

    status: int = 0
    """0 answers as always, after the delay."""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b'{"error": {"message": "as the test wants"}, "message": "as the test wants"}'
    delay_seconds: float = 0.0
    half: bool = False
    """Breaks the connection in the middle of the answer."""
    change: Callable[[Any], Any] | None = None
    """Makes another answer of the right one."""
    when: Callable[[Asked], bool] = lambda asked: True
    times: int = 1


class Refusal(Exception):
    """What is answered in place of vectors."""

    def __init__(self, status: int, body: Any) -> None:
        super().__init__(status)
        self.status = status
        self.body = body


def vector_of(text: str, *, dimension: int = DIMENSION, role: str = "") -> np.ndarray:
    """(dimension,) float32 of unit length, always the same for a text in a role."""
    total = np.zeros(64)
    for word in text.split():
        seed = hashlib.blake2b(f"{role} {word}".encode(), digest_size=8).digest()
        total += np.random.default_rng(int.from_bytes(seed, "little")).standard_normal(64)
    total = total[:dimension]
    return (total / np.linalg.norm(total)).astype(np.float32)


def relevance(query: str, document: str) -> float:
    """Above 0 and below 1: the more of the query's words, the higher."""
    wanted, words = set(query.split()), set(document.split())
    return 0.05 + 0.9 * len(wanted & words) / len(wanted)


class ProviderServer:
    """What was asked, and what goes wrong."""

    def __init__(self) -> None:
        self.url = ""
        self.key = KEY
        self.faults: list[Fault] = []
        self.requests: list[Asked] = []
        self.cuts_silently = False
        """As small servers of OpenAI's API do, in place of refusing a text that is too long."""
        self.in_flight = 0
        self.most_in_flight = 0
        self.left = asyncio.Semaphore(0)
        """Counts the clients that left before they had their answer."""
        self.arrived = asyncio.Semaphore(0)
        """Counts requests as they come in."""
        self.hold: asyncio.Event | None = None
        """Where set, nothing is answered before it is."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        asked = Asked(path=first.split()[1], headers=headers, body=json.loads(body or b"{}"))
        self.requests.append(asked)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        self.arrived.release()
        try:
            fault = self._fault(asked)
            if await self._gone(reader, fault):
                self.left.release()
                return False
            status, content, extra = self._answer(asked, fault)
        finally:
            self.in_flight -= 1
        wire = f"HTTP/1.1 {status} {REASONS.get(status, 'Else')}\r\ncontent-length: {len(content)}\r\n"
        kind = {"content-type": "application/json", **extra}
        wire += "".join(f"{name}: {value}\r\n" for name, value in kind.items()) + "\r\n"
        half = fault is not None and fault.half
        writer.write(wire.encode() + (content[: len(content) // 2] if half else content))
        await writer.drain()
        return not half

    def _fault(self, asked: Asked) -> Fault | None:
        for fault in self.faults:
            if fault.when(asked):
                fault.times -= 1
                if fault.times == 0:
                    self.faults.remove(fault)
                return fault
        return None

    async def _gone(self, reader: asyncio.StreamReader, fault: Fault | None) -> bool:
        """Waits as it is told, and tells whether the client left meanwhile."""
        waits = [asyncio.sleep(fault.delay_seconds if fault is not None else 0.0)]
        if self.hold is not None:
            waits.append(self.hold.wait())
        wait = asyncio.ensure_future(asyncio.gather(*waits))
        end = asyncio.ensure_future(reader.read(1))
        await asyncio.wait((wait, end), return_when=asyncio.FIRST_COMPLETED)
        gone = not wait.done()
        for each in (wait, end):
            each.cancel()
        await asyncio.gather(wait, end, return_exceptions=True)
        return gone

    def _answer(self, asked: Asked, fault: Fault | None) -> tuple[int, bytes, Mapping[str, str]]:
        if fault is not None and fault.status:
            return fault.status, fault.body, fault.headers
        routes = {
            "/v1/embeddings": self._openai,
            "/v2/embed": self._cohere_embed,
            "/v2/rerank": self._cohere_rerank,
            "/endpoint": self._endpoint,
        }
        try:
            if asked.headers.get("authorization") != f"Bearer {self.key}":
                given = asked.headers.get("authorization", "")
                raise Refusal(401, {"error": {"message": f"Incorrect key: {given}", "code": "invalid_api_key"}})
            if asked.path not in routes:
                raise Refusal(404, {"message": "no such route"})
            answer = routes[asked.path](asked.body)
        except Refusal as refusal:
            return refusal.status, json.dumps(refusal.body).encode(), {}
        if fault is not None and fault.change is not None:
            answer = fault.change(answer)
        return 200, answer if isinstance(answer, bytes) else json.dumps(answer).encode(), {}

    def _openai(self, body: Mapping[str, Any]) -> Any:
        def refuse(message: str, code: str | None = None, status: int = 400) -> Refusal:
            return Refusal(status, {"error": {"message": message, "type": "invalid_request_error", "code": code}})

        texts = body["input"]
        if body["model"] != MODEL:
            raise refuse("The model does not exist", "model_not_found", 404)
        if not isinstance(texts, list) or not 1 <= len(texts) <= 2048 or "" in texts:
            raise refuse("'$.input' is invalid")
        for text in texts:
            tokens = len(text.split())
            if tokens > MAX_TOKENS and not self.cuts_silently:
                raise refuse(
                    f"This model's maximum context length is {MAX_TOKENS} tokens, however you requested {tokens} tokens"
                )
            if POISON in text.split():
                raise refuse(f"Invalid input: {text}")
        cut = [" ".join(text.split()[:MAX_TOKENS]) for text in texts]
        dimension = body.get("dimensions", DIMENSION)
        vectors = [vector_of(text, dimension=dimension, role=body.get("input_type", "")) for text in cut]
        base = body.get("encoding_format") == "base64"
        used = sum(len(text.split()) for text in cut)
        return {
            "object": "list",
            "model": MODEL,
            "data": [
                {
                    "object": "embedding",
                    "index": index,
                    "embedding": base64.b64encode(vector.tobytes()).decode() if base else vector.tolist(),
                }
                for index, vector in enumerate(vectors)
            ],
            "usage": {"prompt_tokens": used, "total_tokens": used},
        }

    def _cohere_embed(self, body: Mapping[str, Any]) -> Any:
        texts, cutting = body["texts"], body["truncate"]
        if body["model"] != MODEL:
            raise Refusal(404, {"id": "1", "message": "model not found"})
        if body["input_type"] not in {"search_query", "search_document"} or body["embedding_types"] != ["float"]:
            raise Refusal(400, {"id": "1", "message": "invalid request"})
        if not 1 <= len(texts) <= 96:
            raise Refusal(400, {"id": "1", "message": "invalid request: the number of texts must be at most 96"})
        read = []
        for text in texts:
            words = text.split()
            if POISON in words:
                raise Refusal(400, {"id": "1", "message": f"invalid text: {text}"})
            if len(words) > MAX_TOKENS and cutting == "NONE":
                raise Refusal(400, {"id": "1", "message": f"too many tokens: text has {len(words)} tokens"})
            read.append(" ".join(words[-MAX_TOKENS:] if cutting == "START" else words[:MAX_TOKENS]))
        dimension = body.get("output_dimension", DIMENSION)
        vectors = [vector_of(text, dimension=dimension, role=body["input_type"]).tolist() for text in read]
        used = sum(len(text.split()) for text in read)
        return {
            "id": "1",
            "embeddings": {"float": vectors},
            "texts": texts,
            "meta": {"api_version": {"version": "2"}, "billed_units": {"input_tokens": used}},
            "response_type": "embeddings_by_type",
        }

    def _cohere_rerank(self, body: Mapping[str, Any]) -> Any:
        query, documents = body["query"], body["documents"]
        if body["model"] != MODEL:
            raise Refusal(404, {"id": "1", "message": "model not found"})
        if not query or not 1 <= len(documents) <= 10_000:
            raise Refusal(400, {"id": "1", "message": "invalid request"})
        if any(POISON in document.split() for document in documents):
            raise Refusal(400, {"id": "1", "message": "invalid document: poison"})
        scores = [relevance(query, document) for document in documents]
        order = sorted(range(len(scores)), key=lambda index: -scores[index])
        return {
            "id": "1",
            "results": [{"index": index, "relevance_score": scores[index]} for index in order],
            "meta": {"api_version": {"version": "2"}, "billed_units": {"search_units": 1}},
        }

    def _endpoint(self, body: Mapping[str, Any]) -> Any:
        texts = body["inputs"]
        if not 1 <= len(texts) <= 32:
            raise Refusal(422, {"error": "batch size > maximum allowed batch size 32", "error_type": "Validation"})
        read = []
        for text in texts:
            words = text.split()
            if POISON in words:
                raise Refusal(422, {"error": f"Tokenization error: {text}", "error_type": "Tokenizer"})
            if len(words) > MAX_TOKENS and not body.get("truncate"):
                said = f"`inputs` must have less than {MAX_TOKENS} tokens. Given: {len(words)}"
                raise Refusal(413, {"error": f"Input validation error: {said}", "error_type": "Validation"})
            left = body.get("truncation_direction", "right") == "left"
            read.append(" ".join(words[-MAX_TOKENS:] if left else words[:MAX_TOKENS]))
        return [vector_of(text).tolist() for text in read]


@asynccontextmanager
async def provider_server() -> AsyncIterator[ProviderServer]:
    """A server on loopback."""
    provider = ProviderServer()
    connections: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        connections.add(task)
        try:
            await provider.serve(reader, writer)
        except asyncio.CancelledError:
            pass  # the test is over
        finally:
            connections.discard(task)

    server = await asyncio.start_server(connected, "127.0.0.1", 0, limit=2**26)
    provider.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield provider
    finally:
        server.close()
        for task in list(connections):
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
