"""OpenAI's embeddings API by its official SDK, and every server that speaks it, such as a LiteLLM proxy.

https://platform.openai.com/docs/api-reference/embeddings: at most 2,048 texts and 300,000 tokens a call; a text over
the model's limit is refused with 400.
"""

import asyncio
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from kbmesh_rpc.errors import FeatureUnsupported
from kbmesh_rpc.provider.failure import Cause, ProviderFailure, failure_of
from kbmesh_rpc.provider.quiet import silence
from pydantic import SecretStr

from kbmesh_embedder.backends.answers import LONG_BODY, bad_answer, read_openai_answer
from kbmesh_embedder.backends.port import InputType, Truncation
from kbmesh_embedder.backends.provider_port import ProviderAnswer, ProviderTraits
from kbmesh_embedder.remote_settings import RemoteEmbeddingModel

if TYPE_CHECKING:
    from openai import AsyncOpenAI

OPENAI_URL = "https://api.openai.com/v1"
SPARE_SECONDS = 5.0
NO_KEY = "none"
"""Sent where there is no key: the SDK wants one, and a server that wants none takes any."""


class OpenAIProvider:
    """One model by OpenAI's API."""

    def __init__(self, name: str, settings: RemoteEmbeddingModel) -> None:
        """No connection is made yet. Raises FeatureUnsupported where the SDK is not installed."""
        try:
            sdk = import_module("openai")
        except ImportError as error:
            raise FeatureUnsupported(
                f"the provider {settings.provider}: install kbmesh-embedder[{settings.provider}]"
            ) from error
        self._sdk = sdk
        self._client: AsyncOpenAI = sdk.AsyncOpenAI(
            api_key=NO_KEY,
            base_url=settings.address(OPENAI_URL),
            max_retries=0,
            timeout=settings.timeout_seconds,
            # No redirects: they would carry texts to another host.
            http_client=sdk.DefaultAsyncHttpxClient(follow_redirects=False),
        )
        if settings.base_url:
            # They come from the environment, and are OpenAI's business alone.
            self._client.organization = self._client.project = None
        self._model = settings.model or name
        self._encoding = settings.encoding
        self._dimensions = settings.dimension if settings.dimensions == "ask" else sdk.omit
        self._input_types = {
            InputType.QUERY: settings.query_input_type,
            InputType.DOCUMENT: settings.document_input_type,
        }
        overlong = settings.overlong or ("cut" if settings.base_url else "refused")
        own = settings.provider == "openai" and not settings.base_url
        self._traits = ProviderTraits(
            name=settings.provider,
            # Servers that only speak the API are smaller than OpenAI's.
            batch_items=2048 if own else 128,
            batch_tokens=250_000 if own else 100_000,
            cuts_as_told=False,
            refuses_long_texts=overlong == "refused",
        )
        # At the end: what was imported on the way may have set levels of its own.
        silence("openai")

    @property
    def traits(self) -> ProviderTraits:
        return self._traits

    def use_key(self, key: SecretStr) -> None:
        self._client.api_key = key.get_secret_value() or NO_KEY

    async def embed(
        self, texts: Sequence[str], *, input_type: InputType, truncation: Truncation, timeout_seconds: float
    ) -> ProviderAnswer:
        body = await self._post(texts, self._input_types[input_type], timeout_seconds)
        if isinstance(body, ProviderFailure):
            raise body
        if len(body) < LONG_BODY:
            return read_openai_answer(body, texts=len(texts))
        return await asyncio.to_thread(read_openai_answer, body, texts=len(texts))

    async def close(self) -> None:
        await self._client.close()

    async def _post(
        self, texts: Sequence[str], input_type: str | None, timeout_seconds: float
    ) -> bytes | ProviderFailure:
        try:
            raw = await self._client.embeddings.with_raw_response.create(
                model=self._model,
                input=list(texts),
                encoding_format=self._encoding,
                dimensions=self._dimensions,
                extra_body={"input_type": input_type} if input_type else None,
                # Who awaits this cuts it off; the SDK must not be the one who is first.
                timeout=timeout_seconds + SPARE_SECONDS,
            )
            if raw.status_code != 200:
                return failure_of(raw.status_code, {}, "")
            return bytes(raw.content)
        except self._sdk.APIStatusError as error:
            response = error.response
            headers = {name.lower(): value for name, value in response.headers.items()}
            return failure_of(response.status_code, headers, response.text)
        except self._sdk.APITimeoutError:
            return ProviderFailure(Cause.TIMEOUT)
        except self._sdk.APIConnectionError:
            return ProviderFailure(Cause.UNREACHABLE)
        except TimeoutError:
            raise
        except Exception as error:  # whatever else the SDK meets: its words may hold texts
            return bad_answer(f"something on which its SDK fails: {type(error).__name__}")
