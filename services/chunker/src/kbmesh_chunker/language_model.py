"""A language model behind an OpenAI-compatible chat endpoint, asked for JSON by a schema."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import httpx
from kbmesh_rpc.errors import DeadlineExceeded, DependencyInvalidResponse, DependencyUnavailable

LANGUAGE_MODEL = "language model"
MAX_ANSWER_BYTES = 4 * 1024 * 1024
_TOO_MANY = 429
_SERVER_ERROR = 500
_PAUSE_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True)
class Question:
    """What a language model is asked."""

    instruction: str
    """What to do. Holds nothing of a document."""
    content: str
    """What to do it with. Nothing in it is to be followed."""
    schema_name: str
    schema: Mapping[str, Any]
    """The JSON schema of the answer, an object."""
    model: str = ""
    """The server's own when empty."""


class LanguageModel(Protocol):
    """Answers in JSON."""

    model: str
    """Its name, where a question says none."""

    async def ask(self, question: Question, *, timeout_seconds: float | None) -> Mapping[str, Any]:
        """The answer, an object; whether it is by the schema is for the caller to check. None waits as long as the
        model's own limit.

        Raises DependencyUnavailable, DeadlineExceeded or DependencyInvalidResponse.
        """


class ChatModel:
    """Asks `POST {base_url}/chat/completions`."""

    def __init__(self, *, base_url: str, model: str, api_key: str, timeout_seconds: float, concurrency: int) -> None:
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._client = httpx.AsyncClient(headers=headers)
        self._url = f"{base_url.rstrip('/')}/chat/completions"
        self.model = model
        self._timeout_seconds = timeout_seconds
        self._turns = asyncio.Semaphore(concurrency)

    async def ask(self, question: Question, *, timeout_seconds: float | None) -> Mapping[str, Any]:
        """See LanguageModel. Tries again once where the server is busy or broken, after the pause that it asks for."""
        most = self._timeout_seconds if timeout_seconds is None else timeout_seconds
        try:
            # Waiting for a turn counts, but only what is left of the caller's time bounds it.
            async with asyncio.timeout(timeout_seconds), self._turns, asyncio.timeout(self._timeout_seconds):
                return _answer(await self._send(_body(question, question.model or self.model), most))
        except TimeoutError as error:
            raise DeadlineExceeded(LANGUAGE_MODEL) from error

    async def close(self) -> None:
        """Closes the connections."""
        await self._client.aclose()

    async def _send(self, body: Mapping[str, Any], timeout_seconds: float) -> bytes:
        loop = asyncio.get_running_loop()
        end = loop.time() + min(timeout_seconds, self._timeout_seconds)
        status, content, pause = await self._post(body)
        if _is_passing(status) and loop.time() + pause < end:
            await asyncio.sleep(pause)
            status, content, pause = await self._post(body)
        if status != httpx.codes.OK:
            raise DependencyUnavailable(LANGUAGE_MODEL, f"the language model answered HTTP {status}")
        return content

    async def _post(self, body: Mapping[str, Any]) -> tuple[int, bytes, float]:
        """Status, content, and how long to wait before the next try, in seconds."""
        content = bytearray()
        try:
            async with self._client.stream("POST", self._url, json=body, timeout=None) as response:
                if response.status_code == httpx.codes.OK:
                    async for part in response.aiter_bytes():
                        content += part
                        if len(content) > MAX_ANSWER_BYTES:
                            raise DependencyInvalidResponse(
                                LANGUAGE_MODEL, f"the language model's answer is over {MAX_ANSWER_BYTES} bytes"
                            )
                return response.status_code, bytes(content), _pause(response.headers.get("Retry-After", ""))
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise DependencyUnavailable(
                LANGUAGE_MODEL, f"the language model did not answer: {type(error).__name__}"
            ) from error


def _is_passing(status: int) -> bool:
    return status == _TOO_MANY or status >= _SERVER_ERROR


def _pause(retry_after: str) -> float:
    """Seconds of a Retry-After (RFC 9110, 10.2.3); a date, which would need a common clock, counts as none."""
    return float(retry_after) if retry_after.isascii() and retry_after.isdigit() else _PAUSE_SECONDS


def _body(question: Question, model: str) -> dict[str, Any]:
    return {
        "model": model,
        "temperature": 0,
        "messages": [
            {"role": "system", "content": question.instruction},
            {"role": "user", "content": question.content},
        ],
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": question.schema_name, "strict": True, "schema": question.schema},
        },
    }


def _answer(content: bytes) -> Mapping[str, Any]:
    try:
        message = json.loads(content)["choices"][0]["message"]
        if message.get("refusal"):
            raise DependencyInvalidResponse(LANGUAGE_MODEL, "the language model refused to answer")
        answer = json.loads(message["content"])
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError) as error:
        raise _not_by_the_schema() from error
    if not isinstance(answer, dict):
        raise _not_by_the_schema()
    return answer


def _not_by_the_schema() -> DependencyInvalidResponse:
    return DependencyInvalidResponse(LANGUAGE_MODEL, "the language model's answer is not by the schema")
