"""Settings of the chunker."""

from kbmesh_rpc.settings import MEBIBYTE, ServerSettings
from pydantic import Field


class ChunkerSettings(ServerSettings):
    """Settings of the chunker: documents in, chunks with exact spans out."""

    port: int = 7401
    metrics_port: int = 7501
    max_document_bytes: int = Field(default=16 * MEBIBYTE, ge=1)
    """Largest document that is read, in bytes."""
    embedder_address: str = ""
    """host:port of the embedder, which counts tokens for sizes in tokens and for the model's limit. Unset: requests
    that need it are refused."""
    worker_threads: int = Field(default=2, ge=1, le=64)
    """Documents that are cut at the same time; others wait."""
