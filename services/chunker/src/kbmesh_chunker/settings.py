"""Settings of the chunker."""

from kbmesh_rpc.settings import MEBIBYTE, ServerSettings
from pydantic import Field, SecretStr


class ChunkerSettings(ServerSettings):
    """Settings of the chunker: documents in, chunks with exact spans out."""

    port: int = 7401
    metrics_port: int = 7501
    max_document_bytes: int = Field(default=16 * MEBIBYTE, ge=1)
    """Largest document that is read, in bytes."""
    embedder_address: str = ""
    """host:port of the embedder, which counts tokens for sizes in tokens and for the model's limit, and embeds
    sentences for SIMILARITY. Unset: requests that need it are refused."""
    llm_url: str = ""
    """OpenAI-compatible URL of the language model that writes the statements of PROPOSITION, such as https://HOST/v1.
    Unset: PROPOSITION is not served."""
    llm_api_key: SecretStr = SecretStr("")
    """Its API key. Unset sends none."""
    llm_model: str = ""
    """Its name, where the request says none."""
    llm_timeout_seconds: float = Field(default=60.0, gt=0)
    """How long one answer of it may take."""
    llm_concurrency: int = Field(default=4, ge=1, le=64)
    """Questions to it that are in flight at the same time."""
    worker_threads: int = Field(default=2, ge=1, le=64)
    """Documents that are cut at the same time; others wait."""
