"""`tei.v1.Tokenize`: texts as tokens, and tokens as text."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from functools import partial
from typing import Protocol

import grpc
from tei.v1 import tei_pb2 as pb2
from tei.v1 import tei_pb2_grpc

from kbmesh_rpc.answer_stream import answer_in_order
from kbmesh_rpc.tei.answer import patiently

PIECE = 2000
"""Tokens that are put into messages at once."""


class Token(Protocol):
    """One token of a text."""

    @property
    def id(self) -> int: ...
    @property
    def text(self) -> str: ...
    @property
    def special(self) -> bool: ...
    @property
    def start(self) -> int | None:
        """Where it begins in the text's UTF-8 bytes, the prompt before it included."""
        ...

    @property
    def end(self) -> int | None: ...


class TokenSource(Protocol):
    """Who knows the model's tokens."""

    async def tokens(self, text: str, *, prompt_name: str | None, special_tokens: bool) -> Sequence[Token]:
        """The tokens of a text. Raises InvalidField, EmptyText, RequestTooLarge, FeatureUnsupported, ModelNotReady."""
        ...

    async def text(self, ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        """The text of tokens. Raises likewise."""
        ...


class TokenizeServicer(tei_pb2_grpc.TokenizeServicer):
    """Shows a model's tokens. What it raises, the server turns into a status."""

    def __init__(self, source: TokenSource, *, stream_concurrency: int) -> None:
        self._source = source
        self._stream_concurrency = stream_concurrency

    async def Tokenize(self, request: pb2.EncodeRequest, context: grpc.ServicerContext) -> pb2.EncodeResponse:
        """The tokens of a text."""
        return await self._tokenize(request)

    async def TokenizeStream(
        self, request_iterator: AsyncIterator[pb2.EncodeRequest], context: grpc.ServicerContext
    ) -> AsyncIterator[pb2.EncodeResponse]:
        """The tokens of many texts, in their order."""

        async def one(request: pb2.EncodeRequest) -> pb2.EncodeResponse:
            return await patiently(partial(self._tokenize, request))

        answers = answer_in_order(request_iterator, one, concurrency=self._stream_concurrency)
        async with aclosing(answers):
            async for answer in answers:
                yield answer

    async def Decode(self, request: pb2.DecodeRequest, context: grpc.ServicerContext) -> pb2.DecodeResponse:
        """The text of tokens."""
        return await self._decode(request)

    async def DecodeStream(
        self, request_iterator: AsyncIterator[pb2.DecodeRequest], context: grpc.ServicerContext
    ) -> AsyncIterator[pb2.DecodeResponse]:
        """The texts of many lists of tokens, in their order."""

        async def one(request: pb2.DecodeRequest) -> pb2.DecodeResponse:
            return await patiently(partial(self._decode, request))

        answers = answer_in_order(request_iterator, one, concurrency=self._stream_concurrency)
        async with aclosing(answers):
            async for answer in answers:
                yield answer

    async def _tokenize(self, request: pb2.EncodeRequest) -> pb2.EncodeResponse:
        tokens = await self._source.tokens(
            request.inputs,
            prompt_name=request.prompt_name if request.HasField("prompt_name") else None,
            special_tokens=request.add_special_tokens,
        )
        response = pb2.EncodeResponse()
        # In pieces: a long text has a million tokens, and every other call waits while they are put into messages.
        for start in range(0, len(tokens), PIECE):
            response.tokens.extend(
                pb2.SimpleToken(id=token.id, text=token.text, special=token.special, start=token.start, stop=token.end)
                for token in tokens[start : start + PIECE]
            )
            await asyncio.sleep(0)
        return response

    async def _decode(self, request: pb2.DecodeRequest) -> pb2.DecodeResponse:
        text = await self._source.text(list(request.ids), skip_special_tokens=request.skip_special_tokens)
        return pb2.DecodeResponse(text=text)
