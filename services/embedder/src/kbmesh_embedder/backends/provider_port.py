"""The port behind which a vendor's embedding API stands."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import SecretStr

from kbmesh_embedder.backends.port import InputType, Truncation

Row = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class ProviderAnswer:
    """What came back for one call's texts, in their order."""

    rows: tuple[Row, ...]
    """(numbers,) each, as many as texts; of any size, and not checked for what numbers they are."""
    tokens: int | None = None
    """Tokens of all texts together, where the vendor tells."""


@dataclass(frozen=True, kw_only=True)
class ProviderTraits:
    """What sets a vendor's API apart."""

    name: str
    """As ListModels and metrics have it."""
    batch_items: int
    """Texts of one call."""
    batch_tokens: int
    """Tokens of all texts of one call."""
    cuts_as_told: bool
    """Whether `truncation` is obeyed there: cut at the end or the start, or refused."""
    refuses_long_texts: bool
    """Where it is not: whether a text that is too long is refused, so that none is ever cut in silence."""


class EmbeddingProvider(Protocol):
    """One model at a vendor's. Its SDK is imported, and has neither retries nor logs of its own."""

    @property
    def traits(self) -> ProviderTraits: ...

    def use_key(self, key: SecretStr) -> None:
        """Sends this key from now on."""
        ...

    async def embed(
        self, texts: Sequence[str], *, input_type: InputType, truncation: Truncation, timeout_seconds: float
    ) -> ProviderAnswer:
        """One HTTP call, which ends where it is cancelled. Raises ProviderFailure and nothing else.

        What it raises has no cause and no context: those of an SDK hold texts and keys.
        """
        ...

    async def close(self) -> None:
        """Closes connections. A call in flight fails."""
        ...
