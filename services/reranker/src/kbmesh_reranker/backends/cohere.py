"""Cohere's rerank API (v2) by its official SDK.

https://docs.cohere.com/reference/rerank: a relevance from 0 to 1 for each document, best first, with its index. What is
longer than `max_tokens_per_doc` is cut in silence, and so never sent: see `remote`. More than 1,000 documents a call
are advised against.
"""

import math
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from kbmesh_rpc.errors import FeatureUnsupported
from kbmesh_rpc.provider.failure import Cause, ProviderFailure, failure_of
from kbmesh_rpc.provider.quiet import silence
from pydantic import SecretStr

from kbmesh_reranker.backends.provider_port import ProviderTraits
from kbmesh_reranker.remote_settings import RemoteRerankModel

if TYPE_CHECKING:
    from cohere import AsyncClientV2

COHERE_URL = "https://api.cohere.com"
NO_KEY = "none"
SPARE_SECONDS = 5.0


class CohereProvider:
    """One reranking model of Cohere's."""

    def __init__(self, name: str, settings: RemoteRerankModel) -> None:
        """No connection is made yet. Raises FeatureUnsupported where the SDK is not installed."""
        try:
            sdk, http = import_module("cohere"), import_module("httpx")
        except ImportError as error:
            raise FeatureUnsupported("the provider cohere: install kbmesh-reranker[cohere]") from error
        self._api_error = import_module("cohere.core.api_error").ApiError
        self._timeout_error, self._request_error = http.TimeoutException, http.RequestError
        self._key = NO_KEY
        # No redirects: they would carry texts to another host.
        self._http = http.AsyncClient(follow_redirects=False)
        self._client: AsyncClientV2 = sdk.AsyncClientV2(
            api_key=lambda: self._key,
            base_url=settings.address(COHERE_URL),
            timeout=settings.timeout_seconds,
            max_retries=0,
            httpx_client=self._http,
            log_warning_experimental_features=False,
        )
        self._model = settings.model or name
        self._max_tokens = settings.max_tokens
        self._traits = ProviderTraits(name=settings.provider, batch_items=1000, batch_tokens=500_000)
        # At the end: what was imported on the way may have set levels of its own.
        silence("cohere")

    @property
    def traits(self) -> ProviderTraits:
        return self._traits

    def use_key(self, key: SecretStr) -> None:
        self._key = key.get_secret_value() or NO_KEY

    async def rerank(self, query: str, documents: Sequence[str], *, timeout_seconds: float) -> Sequence[float]:
        results = await self._post(query, documents, timeout_seconds)
        if isinstance(results, ProviderFailure):
            raise results
        return read_scores(results, documents=len(documents))

    async def close(self) -> None:
        await self._http.aclose()

    async def _post(self, query: str, documents: Sequence[str], timeout_seconds: float) -> object:
        try:
            answer = await self._client.rerank(
                model=self._model,
                query=query,
                documents=list(documents),
                max_tokens_per_doc=self._max_tokens,
                # Who awaits this cuts it off; the SDK must not be the one who is first.
                request_options={"timeout": timeout_seconds + SPARE_SECONDS, "max_retries": 0},
            )
            return getattr(answer, "results", None)
        except self._api_error as error:
            headers = {name.lower(): value for name, value in (error.headers or {}).items()}
            status = error.status_code or 0
            # The SDK's word for a success that is no JSON.
            return bad_answer("no JSON") if status == 200 else failure_of(status, headers, str(error.body))
        except self._timeout_error:
            return ProviderFailure(Cause.TIMEOUT)
        except self._request_error:
            return ProviderFailure(Cause.UNREACHABLE)
        except TimeoutError:
            raise
        except Exception as error:  # whatever else the SDK meets: its words may hold texts
            return bad_answer(f"something on which its SDK fails: {type(error).__name__}")


def bad_answer(detail: str) -> ProviderFailure:
    """What to raise for an answer that cannot be used. `detail` quotes nothing of it."""
    return ProviderFailure(Cause.BAD_ANSWER, status=200, detail=detail)


def read_scores(results: object, *, documents: int) -> list[float]:
    """The relevance of each document by its index. Raises ProviderFailure for any other number of results than
    documents, and for results that say not of which document they are."""
    if not isinstance(results, list):
        raise bad_answer("no list of results")
    if len(results) != documents:
        raise bad_answer(f"{len(results)} results for {documents} documents")
    scores: list[float | None] = [None] * documents
    for result in results:
        index, score = getattr(result, "index", None), getattr(result, "relevance_score", None)
        if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < documents:
            raise bad_answer("a result that says not of which document it is")
        if scores[index] is not None:
            raise bad_answer("two results of one document")
        number = score if isinstance(score, int | float) and not isinstance(score, bool) else math.nan
        scores[index] = float(number) if 0 <= number <= 1 else math.nan
    return [score for score in scores if score is not None]
