"""Settings of the chunker."""

from kbmesh_rpc.settings import MEBIBYTE, ServerSettings
from pydantic import Field, SecretStr


class ChunkerSettings(ServerSettings):
    """Settings of the chunker: documents in, chunks with exact spans out."""

    port: int = 7401
    metrics_port: int = 7501
    max_document_bytes: int = Field(default=16 * MEBIBYTE, ge=1)
    """Largest document that is read, in bytes."""
    max_text_bytes: int = Field(default=32 * MEBIBYTE, ge=1)
    """Most text that is taken out of one document, and most that an archive may unpack to, in bytes."""
    max_pages: int = Field(default=10_000, ge=1)
    """Pages of one document that are read; those after them are named in a warning."""
    max_reading_seconds: float = Field(default=60.0, gt=0)
    """How long reading one document may take, with all that is in it."""
    reading_processes: int = Field(default=2, ge=0, le=64)
    """Processes in which documents are read that need a parser, such as PDF, HTML and mail, one at a time; others wait.
    0 reads them in the chunker's own process: a document that crashes its parser then ends the chunker."""
    max_reading_memory_bytes: int = Field(default=2048 * MEBIBYTE, ge=512 * MEBIBYTE)
    """Address space of each of these processes. A document that needs more is refused. Linux only."""
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
    max_waiting_bytes: int = Field(default=256 * MEBIBYTE, ge=1)
    """Documents that wait or are cut at the same time have so many bytes together; more are refused as QUEUE_FULL. One
    that is larger than this is taken where nothing else waits."""

    def plaintext_calls(self) -> tuple[str, ...]:
        """See ServerSettings.plaintext_edges."""
        return (*self.plaintext_targets("embedder_address"), *self.plaintext_urls("llm_url"))
