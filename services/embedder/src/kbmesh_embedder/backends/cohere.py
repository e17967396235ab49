"""Cohere's embed API (v2) by its official SDK.

https://docs.cohere.com/reference/embed: at most 96 texts a call, `input_type` is required, and `truncate` says what to
do with a text over the limit.
"""

import asyncio
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from kbmesh_rpc.errors import FeatureUnsupported
from kbmesh_rpc.provider.failure import Cause, ProviderFailure, failure_of
from kbmesh_rpc.provider.quiet import silence
from pydantic import SecretStr

from kbmesh_embedder.backends.answers import bad_answer, read_count, read_rows
from kbmesh_embedder.backends.port import InputType, Truncation
from kbmesh_embedder.backends.provider_port import ProviderAnswer, ProviderTraits
from kbmesh_embedder.remote_settings import RemoteEmbeddingModel

if TYPE_CHECKING:
    from cohere import AsyncClientV2
    from cohere.types import EmbedByTypeResponse

COHERE_URL = "https://api.cohere.com"
NO_KEY = "none"
SPARE_SECONDS = 5.0
FEW_NUMBERS = 16_384
"""Of vectors that are read at once; more are read in a thread."""
TRUNCATE = {Truncation.END: "END", Truncation.START: "START", Truncation.NONE: "NONE"}


class CohereProvider:
    """One embedding model of Cohere's."""

    def __init__(self, name: str, settings: RemoteEmbeddingModel) -> None:
        """Raises FeatureUnsupported where the SDK is not installed."""
        try:
            sdk, http = import_module("cohere"), import_module("httpx")
        except ImportError as error:
            raise FeatureUnsupported("the provider cohere: install kbmesh-embedder[cohere]") from error
        from kbmesh_embedder.backends.cohere_client import VECTORS, VectorsApartClient

        self._vectors = VECTORS
        self._api_error = import_module("cohere.core.api_error").ApiError
        self._timeout_error, self._request_error = http.TimeoutException, http.RequestError
        self._key = NO_KEY
        # No redirects: they would carry texts to another host.
        self._http = VectorsApartClient(follow_redirects=False)
        self._client: AsyncClientV2 = sdk.AsyncClientV2(
            api_key=lambda: self._key,
            base_url=settings.address(COHERE_URL),
            timeout=settings.timeout_seconds,
            max_retries=0,
            httpx_client=self._http,
            log_warning_experimental_features=False,
        )
        self._model = settings.model or name
        self._input_types = {
            InputType.QUERY: _or(settings.query_input_type, "search_query"),
            InputType.DOCUMENT: _or(settings.document_input_type, "search_document"),
        }
        self._options: dict[str, Any] = {"output_dimension": settings.dimension} if settings.dimensions == "ask" else {}
        self._traits = ProviderTraits(
            name=settings.provider,
            batch_items=96,
            batch_tokens=100_000,
            cuts_as_told=True,
            refuses_long_texts=True,
        )
        # At the end: what was imported on the way may have set levels of its own.
        silence("cohere")

    @property
    def traits(self) -> ProviderTraits:
        return self._traits

    def use_key(self, key: SecretStr) -> None:
        self._key = key.get_secret_value() or NO_KEY

    async def embed(
        self, texts: Sequence[str], *, input_type: InputType, truncation: Truncation, timeout_seconds: float
    ) -> ProviderAnswer:
        answer = await self._post(texts, self._input_types[input_type], TRUNCATE[truncation], timeout_seconds)
        if isinstance(answer, ProviderFailure):
            raise answer
        vectors, tokens = answer
        numbers = sum(len(vector) for vector in vectors if isinstance(vector, list)) if isinstance(vectors, list) else 0
        if numbers < FEW_NUMBERS:
            rows = read_rows(vectors, texts=len(texts))
        else:
            rows = await asyncio.to_thread(read_rows, vectors, texts=len(texts))
        return ProviderAnswer(rows=rows, tokens=read_count(tokens))

    async def close(self) -> None:
        await self._http.aclose()

    async def _post(
        self, texts: Sequence[str], input_type: str, truncate: str, timeout_seconds: float
    ) -> tuple[object, object] | ProviderFailure:
        """The vectors as JSON had them, and the tokens of all texts."""
        try:
            raw = await self._client.with_raw_response.embed(
                model=self._model,
                texts=list(texts),
                input_type=input_type,
                truncate=truncate,
                embedding_types=["float"],
                # Who awaits this cuts it off; the SDK must not be the one who is first.
                request_options={"timeout": timeout_seconds + SPARE_SECONDS, "max_retries": 0},
                **self._options,
            )
            return raw.response.extensions.get(self._vectors), _tokens(raw.data)
        except self._api_error as error:
            headers = {name.lower(): value for name, value in (error.headers or {}).items()}
            return failure_of(error.status_code or 0, headers, str(error.body))
        except self._timeout_error:
            return ProviderFailure(Cause.TIMEOUT)
        except self._request_error:
            return ProviderFailure(Cause.UNREACHABLE)
        except TimeoutError:
            raise
        except Exception as error:  # whatever else the SDK meets: its words may hold texts
            return bad_answer(f"something on which its SDK fails: {type(error).__name__}")


def _tokens(answer: "EmbedByTypeResponse") -> object:
    units = getattr(getattr(answer, "meta", None), "billed_units", None)
    return getattr(units, "input_tokens", None)


def _or(told: str | None, usual: str) -> str:
    return usual if told is None else told
