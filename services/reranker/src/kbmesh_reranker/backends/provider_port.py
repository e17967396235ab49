"""The port behind which a vendor's reranking API stands."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from pydantic import SecretStr


@dataclass(frozen=True, kw_only=True)
class ProviderTraits:
    """What sets a vendor's API apart."""

    name: str
    """As ListModels and metrics have it."""
    batch_items: int
    """Documents of one call."""
    batch_tokens: int
    """Tokens of all documents of one call, the query with each."""


class RerankProvider(Protocol):
    """One model at a vendor's. Its SDK is imported, and has neither retries nor logs of its own."""

    @property
    def traits(self) -> ProviderTraits: ...

    def use_key(self, key: SecretStr) -> None:
        """Sends this key from now on."""
        ...

    async def rerank(self, query: str, documents: Sequence[str], *, timeout_seconds: float) -> Sequence[float]:
        """The relevance of each document, in their order; one HTTP call, which ends where it is cancelled. NaN where
        the vendor gave no number from 0 to 1. Raises ProviderFailure and nothing else.

        What it raises has no cause and no context: those of an SDK hold texts and keys.
        """
        ...

    async def close(self) -> None:
        """Closes connections. A call in flight fails."""
        ...
