"""Texts as tokens and tokens as text, for those who want to look at them. The model does not run."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np
from tokenizers import Tokenizer

from kbmesh_onnx.batcher import QueueFullError
from kbmesh_onnx.tokenizer import ModelTokenizer

ResultT = TypeVar("ResultT")

WAITING_CHARACTERS = 32 * 1024 * 1024
CHARACTERS_PER_TOKEN = 3
RETRY_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True)
class Token:
    """One token of a text."""

    id: int
    """Its number in the vocabulary."""
    text: str
    """What of the text it stands for; the name of a special token."""
    special: bool
    start: int | None
    """Where it begins in the text's UTF-8 bytes. None for a special token."""
    end: int | None
    """One past its last byte."""


class UnknownTokenError(ValueError):
    """The vocabulary has no such token. `position` is its place among those that were given."""

    def __init__(self, position: int, vocabulary: int) -> None:
        super().__init__(f"token {position} is not below {vocabulary}, the size of the vocabulary")
        self.position = position
        self.vocabulary = vocabulary


class TokenReader:
    """Reads in a thread of its own, so that nobody who wants a vector waits for it.

    The characters that wait are limited: they lie in memory. Beyond that, QueueFullError is raised.
    """

    def __init__(self, tokenizer: ModelTokenizer, *, limit_characters: int = WAITING_CHARACTERS) -> None:
        self._tokenizer: Tokenizer = tokenizer.library_tokenizer
        self._vocabulary = self._tokenizer.get_vocab_size(with_added_tokens=True)
        self._limit = limit_characters
        self._waiting = 0
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="token-reader")

    async def tokens(self, text: str, *, special_tokens: bool) -> tuple[Token, ...]:
        """The tokens of the whole text, nothing cut. Raises QueueFullError."""
        return await self._run(partial(self._read, text, special_tokens), len(text))

    async def text(self, ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        """The text of some tokens. Raises UnknownTokenError and QueueFullError."""
        for position, number in enumerate(ids):
            if not 0 <= number < self._vocabulary:
                raise UnknownTokenError(position, self._vocabulary)
        decode = partial(self._decode, list(ids), skip_special_tokens)
        return await self._run(decode, len(ids) * CHARACTERS_PER_TOKEN)

    def close(self) -> None:
        """Ends the thread once it has done what it was given."""
        self._thread.shutdown(wait=False)

    async def _run(self, work: Callable[[], ResultT], characters: int) -> ResultT:
        with self._admitted(characters):
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    @contextmanager
    def _admitted(self, characters: int) -> Iterator[None]:
        # One that is larger than the limit is taken where nothing else waits, for otherwise it never could be.
        if self._waiting > 0 and self._waiting + characters > self._limit:
            raise QueueFullError(
                queued_tokens=self._waiting // CHARACTERS_PER_TOKEN,
                limit=self._limit // CHARACTERS_PER_TOKEN,
                retry_after_seconds=RETRY_SECONDS,
            )
        self._waiting += characters
        try:
            yield
        finally:
            self._waiting -= characters

    def _decode(self, ids: list[int], skip_special_tokens: bool) -> str:
        # A batch of one, as in `_read`.
        return str(self._tokenizer.decode_batch([ids], skip_special_tokens=skip_special_tokens)[0])

    def _read(self, text: str, special_tokens: bool) -> tuple[Token, ...]:
        # A batch of one: `encode` keeps Python's lock, and with it the whole process, until the text is read.
        (encoding,) = self._tokenizer.encode_batch([text], add_special_tokens=special_tokens)
        places = _byte_places(text)
        tokens = []
        for number, name, special, (start, end) in zip(
            encoding.ids, encoding.tokens, encoding.special_tokens_mask, encoding.offsets, strict=True
        ):
            if special:
                tokens.append(Token(id=number, text=name, special=True, start=None, end=None))
            else:
                first, last = int(places[start]), int(places[end])
                tokens.append(Token(id=number, text=text[start:end], special=False, start=first, end=last))
        return tuple(tokens)


def _byte_places(text: str) -> np.typing.NDArray[np.int64]:
    """(characters + 1,): where each character begins in UTF-8, and where the text ends."""
    points = np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)
    widths = 1 + (points >= 0x80).astype(np.int64) + (points >= 0x800) + (points >= 0x10000)
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(widths)])
