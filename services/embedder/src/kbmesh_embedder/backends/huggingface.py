"""A Hugging Face inference endpoint for feature extraction, by huggingface_hub's AsyncInferenceClient.

https://huggingface.github.io/text-embeddings-inference: at most 32 texts a call unless the endpoint was told otherwise;
`truncate` says whether a text over the limit is cut or refused. It tells no tokens.
"""

import os
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
from kbmesh_rpc.errors import FeatureUnsupported
from kbmesh_rpc.provider.failure import Cause, ProviderFailure, failure_of
from kbmesh_rpc.provider.quiet import silence
from pydantic import SecretStr

from kbmesh_embedder.backends.answers import bad_answer, check_count
from kbmesh_embedder.backends.port import InputType, Truncation
from kbmesh_embedder.backends.provider_port import ProviderAnswer, ProviderTraits, Row
from kbmesh_embedder.remote_settings import RemoteEmbeddingModel

if TYPE_CHECKING:
    from huggingface_hub import AsyncInferenceClient

NO_KEY = "none"
"""Sent where there is no key. With none at all the SDK would send a token that it finds on this machine."""


class HuggingFaceProvider:
    """One endpoint."""

    def __init__(self, name: str, settings: RemoteEmbeddingModel) -> None:
        """Raises FeatureUnsupported where the SDK is not installed."""
        # Read when the SDK is imported.
        os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
        try:
            sdk, http = import_module("huggingface_hub"), import_module("httpx2")
        except ImportError as error:
            raise FeatureUnsupported("the provider huggingface: install kbmesh-embedder[huggingface]") from error
        self._sdk, self._http = sdk, http
        self._url = settings.address("")
        # The SDK's own follows redirects, which would carry texts to another host.
        sdk.set_async_client_factory(lambda: http.AsyncClient(follow_redirects=False, timeout=None))
        self._client = self._connect(NO_KEY)
        self._traits = ProviderTraits(
            name=settings.provider,
            batch_items=32,
            batch_tokens=16_384,
            cuts_as_told=True,
            refuses_long_texts=True,
        )
        # At the end: what was imported on the way may have set levels of its own.
        silence("huggingface_hub")

    @property
    def traits(self) -> ProviderTraits:
        return self._traits

    def use_key(self, key: SecretStr) -> None:
        self._client.token = key.get_secret_value() or NO_KEY

    async def embed(
        self, texts: Sequence[str], *, input_type: InputType, truncation: Truncation, timeout_seconds: float
    ) -> ProviderAnswer:
        vectors = await self._post(texts, truncation)
        if isinstance(vectors, ProviderFailure):
            raise vectors
        if vectors.ndim == 3:
            raise bad_answer("vectors of tokens, which an endpoint with text-embeddings-inference does not give")
        if vectors.ndim != 2:
            raise bad_answer("no list of vectors")
        check_count(len(vectors), len(texts))
        rows: tuple[Row, ...] = tuple(np.asarray(vector, dtype=np.float32) for vector in vectors)
        return ProviderAnswer(rows=rows)

    async def close(self) -> None:
        close: Any = self._client.close  # it has no annotations
        await close()

    def _connect(self, key: str) -> "AsyncInferenceClient":
        client: AsyncInferenceClient = self._sdk.AsyncInferenceClient(
            model=self._url, provider="hf-inference", token=key
        )
        return client

    async def _post(self, texts: Sequence[str], truncation: Truncation) -> Any:
        try:
            return await self._client.feature_extraction(
                list(texts),
                truncate=truncation is not Truncation.NONE,
                truncation_direction="left" if truncation is Truncation.START else "right",
            )
        except self._sdk.errors.HfHubHTTPError as error:
            response = error.response
            headers = {name.lower(): value for name, value in response.headers.items()}
            return failure_of(response.status_code, headers, response.text)
        except (self._sdk.InferenceTimeoutError, self._http.TimeoutException):
            return ProviderFailure(Cause.TIMEOUT)
        except self._http.RequestError:
            return ProviderFailure(Cause.UNREACHABLE)
        except TimeoutError:
            raise
        except Exception as error:  # whatever else the SDK meets: its words may hold texts
            return bad_answer(f"something on which its SDK fails: {type(error).__name__}")
