"""Second implementations of the ports to chunker and embedder: small, exact, and countable. And faults to put on."""

import asyncio
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from kbmesh_retriever.mesh.port import Chunk, Chunked, Embedded, ModelInfo, SourceDocument
from kbmesh_rpc.errors import DocumentEmpty, EmptyText, KbmeshError, ModelMismatch, ModelNotFound

DIMENSION = 16


def vector_of(text: str) -> np.ndarray[Any, np.dtype[np.float32]]:
    """The mean of a fixed direction for each word, unit length: texts with the same words are near."""
    total = np.zeros(DIMENSION)
    for word in re.findall(r"\w+", text.lower()) or [""]:
        seed = int.from_bytes(hashlib.sha256(word.encode()).digest()[:8], "big")
        total += np.random.default_rng(seed).normal(size=DIMENSION)
    return (total / np.linalg.norm(total)).astype(np.float32)


class WordEmbedder:
    """An `EmbedderPort` whose vectors come from words; it reads ASCII alone. `texts` are all that it embedded."""

    def __init__(self, model: str = "words", fingerprint: str = "f" * 64) -> None:
        self.info = ModelInfo(name=model, fingerprint=fingerprint, dimension=DIMENSION, max_tokens=256)
        self.texts: list[str] = []

    async def find_model(self, name: str) -> ModelInfo:
        if name not in ("", self.info.name):
            raise ModelNotFound(name, [self.info.name])
        return self.info

    async def embed(
        self,
        texts: Sequence[str],
        *,
        model: str,
        expected_fingerprint: str,
        input_type: Literal["query", "document"],
        priority: Literal["interactive", "bulk"],
    ) -> Embedded:
        if expected_fingerprint not in ("", self.info.fingerprint):
            raise ModelMismatch(model, expected=expected_fingerprint, actual=self.info.fingerprint)
        self.texts.extend(texts)
        tokens = [len(text.split()) for text in texts]
        read = [any(sign.isascii() and sign.isprintable() for sign in text) for text in texts]
        return Embedded(
            vectors=np.array(
                [vector_of(text) if reads else np.zeros(DIMENSION) for text, reads in zip(texts, read, strict=True)],
                dtype=np.float32,
            ),
            errors=tuple(None if reads else EmptyText("inputs.text") for reads in read),
            tokens=tuple(min(count, self.info.max_tokens) for count in tokens),
            tokens_cut=tuple(max(0, count - self.info.max_tokens) for count in tokens),
            model=self.info.name,
            fingerprint=self.info.fingerprint,
        )

    async def count_tokens(self, texts: Sequence[str], *, model: str) -> Sequence[int]:
        return [len(text.split()) for text in texts]


class ParagraphChunker:
    """A `ChunkerPort` that cuts at blank lines. `cut` counts the documents that it cut."""

    def __init__(self, version: str = "1") -> None:
        self.version = version
        self.cut = 0

    async def chunk(self, document: SourceDocument, *, chunking: Mapping[str, Any], embedding_model: str) -> Chunked:
        self.cut += 1
        text = document.content if isinstance(document.content, str) else document.content.decode()
        chunks = []
        for found in re.finditer(r"\S(?:.|\n(?!\n))*", text):
            start_byte = len(text[: found.start()].encode())
            chunks.append(
                Chunk(
                    index=len(chunks),
                    type="paragraph",
                    text=found[0],
                    context="",
                    embedded_text=found[0],
                    start=found.start(),
                    end=found.end(),
                    start_byte=start_byte,
                    end_byte=start_byte + len(found[0].encode()),
                    heading_path=(),
                    pages=(),
                    token_count=len(found[0].split()),
                    metadata=dict(document.metadata),
                )
            )
        if not chunks:
            raise DocumentEmpty
        return Chunked(
            chunks=tuple(chunks),
            strategy="semantic",
            media_type=document.media_type or "text/plain",
            source_type=document.source_type or "file",
            title=chunks[0].text.splitlines()[0],
            metadata={},
            chunking_fingerprint=self.version,
            warnings=(),
        )

    async def fingerprint(self) -> str:
        return self.version

    async def strategies(self) -> frozenset[str]:
        return frozenset({"STRATEGY_AUTO", "STRATEGY_FIXED", "STRATEGY_SEMANTIC"})


class Faulty:
    """Wraps a port. Before a call of `method` reaches it, `fault(call number from 0)` may raise or wait.

    `after` does the same once the call is done and its answer not yet given.
    """

    def __init__(self, port: Any) -> None:
        self._port = port
        self._before: dict[str, Callable[[int], Any]] = {}
        self._after: dict[str, Callable[[int], Any]] = {}
        self.calls: dict[str, int] = {}

    def become(self, port: Any) -> None:
        """From now on calls go to another port."""
        self._port = port

    def before(self, method: str, fault: Callable[[int], Any]) -> None:
        self._before[method] = fault

    def after(self, method: str, fault: Callable[[int], Any]) -> None:
        self._after[method] = fault

    def heal(self) -> None:
        self._before.clear()
        self._after.clear()

    def __getattr__(self, method: str) -> Any:
        original = getattr(self._port, method)
        if not asyncio.iscoroutinefunction(original):
            return original

        async def call(*arguments: Any, **named: Any) -> Any:
            number = self.calls.get(method, 0)
            self.calls[method] = number + 1
            await _fault(self._before.get(method), number)
            answer = await original(*arguments, **named)
            await _fault(self._after.get(method), number)
            return answer

        return call


async def _fault(fault: Callable[[int], Any] | None, number: int) -> None:
    result = None if fault is None else fault(number)
    if asyncio.iscoroutine(result):
        result = await result
    if isinstance(result, BaseException):
        raise result


def always(error: KbmeshError) -> Callable[[int], KbmeshError]:
    """A fault that never ends."""
    return lambda _: error
