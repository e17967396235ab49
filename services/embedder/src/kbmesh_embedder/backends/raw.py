"""What a backend with a tokenizer and a graph of its own can show beside vectors of queries and documents."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from kbmesh_onnx.token_reader import TokenReader
from kbmesh_onnx.tokenizer import TokenizedText
from numpy.typing import NDArray

from kbmesh_embedder.backends.port import TextReceipt, Timings, Truncation

Floats = NDArray[np.float32]


class TokenVectors:
    """The vectors of one text's tokens. Empty until the model has run over the text."""

    def __init__(self) -> None:
        self.rows: Floats = np.zeros((0, 0), dtype=np.float32)
        """(tokens, dimension): last hidden states, special tokens included, not of unit length."""


@dataclass(frozen=True, kw_only=True)
class ModelInput:
    """One text for the model."""

    text: TokenizedText
    token_vectors: TokenVectors | None = None
    """Where to put the vectors of the tokens, for those who want them."""


@dataclass(frozen=True, kw_only=True)
class RawEmbedding:
    """What the model made of one text."""

    vector: Floats
    """(dimension,) pooled, and of unit length where the model's card says so."""
    token_vectors: Floats
    """(tokens, dimension), where they were asked for; else (0, 0)."""
    receipt: TextReceipt
    timings: Timings


@runtime_checkable
class RawBackend(Protocol):
    """A backend that takes any prompt and shows tokens."""

    @property
    def token_reader(self) -> TokenReader: ...

    async def embed_raw(
        self, text: str, *, prompt: str, truncation: Truncation, token_vectors: bool, deadline: float | None
    ) -> RawEmbedding:
        """Embeds one text, be it blank, with `prompt` before it. Raises what `embed` raises, and the text's own error.

        It waits in the interactive lane. The prompt is never cut off.
        """
        ...
