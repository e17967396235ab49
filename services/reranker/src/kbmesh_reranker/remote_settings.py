"""What the reranker is told of a model that runs at a vendor's."""

from typing import Literal

from kbmesh_rpc.provider.remote_model import RemoteModel
from pydantic import Field


class RemoteRerankModel(RemoteModel):
    """A model that reranks at a vendor's."""

    provider: Literal["cohere"]
    """Whose API it is."""
    max_tokens: int = Field(default=4096, ge=16, le=10_000_000)
    """Tokens it reads of one document at most. A longer one is scored in windows."""
