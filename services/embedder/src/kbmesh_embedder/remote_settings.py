"""What the embedder is told of a model that runs at a vendor's."""

from typing import Literal, Self

from kbmesh_rpc.provider.remote_model import RemoteModel
from pydantic import Field, model_validator


class RemoteEmbeddingModel(RemoteModel):
    """A model that embeds at a vendor's."""

    provider: Literal["openai", "cohere", "huggingface", "litellm"]
    """Whose API it is. openai is any server that speaks OpenAI's; huggingface an inference endpoint, by its URL;
    litellm a LiteLLM proxy, by its URL."""
    dimension: int = Field(ge=1, le=65_536)
    """Numbers a vector. An answer with another number of them is refused."""
    max_tokens: int = Field(ge=8, le=10_000_000)
    """Tokens it reads at most, prefix included."""
    dimensions: Literal["native", "ask", "cut"] = "native"
    """native: the model's vectors have `dimension` numbers. ask: it can be told to give so many, and is. cut: its
    vectors are longer and made to be shortened (Matryoshka), and the first numbers are kept and renormalised here."""
    matryoshka_dimensions: tuple[int, ...] = ()
    """Sizes to which a request may shorten vectors. Only for a model that was made for it."""
    normalize: bool = True
    """Whether vectors are brought to unit length here."""
    query_prefix: str = ""
    """Put before a query, such as "query: " for E5."""
    document_prefix: str = ""
    """Put before a passage."""
    query_input_type: str | None = None
    """Sent as `input_type` with queries. Unset: what the vendor wants, search_query for cohere, nothing for others."""
    document_input_type: str | None = None
    """Sent as `input_type` with passages. Unset: search_document for cohere, nothing for others."""
    overlong: Literal["refused", "cut"] | None = None
    """What the server does with a text over the limit. Only for openai and litellm: the others can be told. Unset:
    refused at OpenAI itself, cut elsewhere, which is the safe guess: what may be cut in silence is not sent where
    nothing may be."""
    encoding: Literal["base64", "float"] = "base64"
    """How vectors are asked for, of openai and litellm. base64 is a third of the size; some servers know float
    alone."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.provider in {"huggingface", "litellm"} and not self.base_url:
            raise ValueError(f"base_url is needed for {self.provider}")
        if self.provider == "huggingface" and self.dimensions == "ask":
            raise ValueError("dimensions ask is not for huggingface: its endpoints have no such parameter")
        if self.provider == "huggingface" and (self.query_input_type or self.document_input_type):
            raise ValueError("input types are not for huggingface; use prefixes")
        if self.overlong is not None and self.provider in {"cohere", "huggingface"}:
            raise ValueError("overlong is for openai and litellm")
        if any(not 0 < size < self.dimension for size in self.matryoshka_dimensions):
            raise ValueError("matryoshka_dimensions are smaller than dimension")
        return self
