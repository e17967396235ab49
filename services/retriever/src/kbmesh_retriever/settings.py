"""What the retriever can be told."""

from pathlib import Path
from typing import Literal, Self
from urllib.parse import parse_qs, urlsplit

from kbmesh_rpc.settings import MEBIBYTE, ServerSettings
from kbmesh_rpc.targets import is_local_url, is_loopback
from pydantic import Field, SecretStr, field_validator, model_validator


class RetrieverSettings(ServerSettings):
    """Settings of the retriever: knowledge bases, ingestion and retrieval."""

    port: int = Field(default=7400, ge=0, le=65535)
    """Port of the gRPC server. 0 takes a free one."""
    metrics_port: int = Field(default=7500, ge=0, le=65535)
    """Port of the Prometheus metrics, on the same host. 0 is off."""

    home: Path = Path("~/.kbmesh")
    """Folder of this machine's kbmesh. Used for the catalog where catalog_url is unset."""
    catalog_url: SecretStr = SecretStr("")
    """Database of the catalog: sqlite:///PATH or postgresql://USER:PASSWORD@HOST/NAME. By TLS with
    ?sslmode=verify-full&sslrootcert=PATH, and sslcert and sslkey where a certificate is to be shown. Unset: SQLite in
    HOME/data/catalog.db."""
    vector_store: str = "qdrant"
    """Where vectors are kept: qdrant, pinecone, or the name of a registered store."""
    qdrant_url: str = "http://127.0.0.1:7404"
    """Qdrant's gRPC port, or kbmesh-edge: http://HOST:PORT or https://HOST:PORT."""
    qdrant_api_key: SecretStr = SecretStr("")
    """Qdrant's API key. Unset sends none."""
    qdrant_ca: Path | None = None
    """PEM file of the authorities that Qdrant's certificate may come from, with https. Unset: the public ones."""
    qdrant_cert: Path | None = None
    """PEM file of the certificate that is shown to Qdrant: for kbmesh-edge that of `tls_cert`. Unset: none. All three
    files are read anew when they change."""
    qdrant_key: Path | None = None
    """PEM file of its private key."""
    qdrant_timeout_seconds: float = Field(default=30.0, gt=0)
    """How long one call to Qdrant may take."""
    qdrant_expected_points: int = Field(default=0, ge=0)
    """Chunks that one collection will come to hold, which decides how new collections are set up: exact search below
    100,000, graphs from there, int8 quantisation from 1,000,000, shards and disk from 100,000,000."""
    qdrant_filterable_metadata: str = ""
    """Names of metadata that get a payload index in new collections, separated by commas."""
    pinecone_api_key: SecretStr = SecretStr("")
    """Pinecone's API key."""
    pinecone_host: str = ""
    """Pinecone's control plane. Unset: the public one."""
    pinecone_index_prefix: str = "kbmesh"
    """Indexes are named PREFIX-DIMENSION-METRIC."""
    pinecone_cloud: str = "aws"
    """Cloud of the serverless indexes that are made."""
    pinecone_region: str = "us-east-1"
    """And its region."""
    pinecone_timeout_seconds: float = Field(default=30.0, gt=0)
    """How long one call to Pinecone may take, repetitions included."""
    pinecone_visible_seconds: float = Field(default=120.0, gt=0)
    """How long a write to Pinecone is waited for until searches see it."""

    chunker_address: str = "127.0.0.1:7401"
    """Address of the chunker, in gRPC's name syntax: HOST:PORT, or dns:///HOST:PORT for every replica behind a name."""
    embedder_address: str = "127.0.0.1:7402"
    """Address of the embedder."""
    reranker_address: str = "127.0.0.1:7403"
    """Address of the reranker. Empty: there is none."""
    chunk_timeout_seconds: float = Field(default=120.0, gt=0)
    """How long cutting one document may take."""
    embed_timeout_seconds: float = Field(default=120.0, gt=0)
    """How long one call to the embedder may take."""
    rerank_timeout_seconds: float = Field(default=30.0, gt=0)
    """How long one call to the reranker may take."""

    max_document_bytes: int = Field(default=16 * MEBIBYTE, ge=1)
    """Largest document that is taken in, in bytes."""
    ingest_concurrency: int = Field(default=64, ge=1, le=256)
    """Documents of one stream worked on at once, where the caller names no number. Together at most 64 MiB, or one."""
    shrink_share: float = Field(default=0.2, ge=0, lt=1)
    """A document that is read again with less than this share of its characters is taken for a failed read, unless its
    caller says otherwise. 0 refuses only one without any."""
    job_max_results: int = Field(default=100_000, ge=0)
    """Results kept of one ingestion job."""
    job_retention_seconds: float = Field(default=7 * 86_400.0, gt=0)
    """How long a job is kept after its last result."""

    superseded_grace_seconds: float = Field(default=60.0, ge=0)
    """How long the chunks of a replaced or deleted version stay, for searches that began before. Not below the longest
    deadline of a search."""
    reservation_timeout_seconds: float = Field(default=3600.0, gt=0)
    """After which a version that was begun and never published is given up. Not below the longest time that writing
    one document takes."""
    sweep_interval_seconds: float = Field(default=10.0, gt=0)
    """Pause between two rounds of deleting what is due."""

    llm_url: str = ""
    """OpenAI-compatible URL of the language model that rephrases queries, such as https://HOST/v1. Unset: ADVANCED is
    answered without rephrasings, and says so."""
    llm_api_key: SecretStr = SecretStr("")
    """Its API key. Unset sends none."""
    llm_model: str = ""
    """Its name."""

    context_tokenizers: str = ""
    """Tokenizers that may count a context block, as NAME=PATH of a tokenizer.json, separated by commas. Needs the extra
    kbmesh-retriever[tokenizers]."""

    s3_buckets: str = ""
    """What is linked by presigned URLs: BUCKET or BUCKET/PREFIX, separated by commas, where {tenant} in a prefix stands
    for the tenant who asks. Whoever may take documents in can name any object in there and gets a link to it. Needs the
    extra kbmesh-retriever[s3] and a key; unset: links to S3 stay s3://BUCKET/KEY."""
    s3_access_key_id: str = ""
    """The key that presigned URLs are signed with."""
    s3_secret_access_key: SecretStr = SecretStr("")
    """Its secret."""
    s3_session_token: SecretStr = SecretStr("")
    """Its session token, where it is temporary: links end with it."""
    s3_region: str = "us-east-1"
    """Region of the buckets."""
    s3_endpoint_url: str = ""
    """Where an S3 that is not Amazon's can be reached by those who follow links. Unset: Amazon's."""
    s3_link_seconds: int = Field(default=3600, ge=1, le=604_800)
    """How long a presigned URL works."""

    cache: Literal["memory", "redis", "off"] = "memory"
    """Where answers and vectors of queries are kept, to be given again: memory of this process, redis for all replicas,
    or off. Equal questions at the same time are computed once in any case."""
    cache_ttl_seconds: float = Field(default=3600.0, gt=0, le=30 * 86_400)
    """How long they are kept."""
    cache_entries: int = Field(default=1000, ge=1)
    """Answers, and as many vectors, that are kept in memory. Where there are more, the oldest tenth leaves."""
    cache_memory_bytes: int = Field(default=128 * MEBIBYTE, ge=1024)
    """Bytes of answers, and as many of vectors, that are kept in memory at most."""
    cache_max_answer_bytes: int = Field(default=MEBIBYTE, ge=1)
    """A larger answer is not kept."""
    redis_url: SecretStr = SecretStr("")
    """Redis, for cache redis: redis://USER:PASSWORD@HOST:PORT/NUMBER, or unix://PATH. rediss:// is by TLS, with
    ?ssl_ca_certs=PATH, and ssl_certfile and ssl_keyfile where a certificate is to be shown. Needs the extra
    kbmesh-retriever[redis]."""
    redis_timeout_seconds: float = Field(default=0.02, gt=0, le=5)
    """How long an answer waits for Redis. One that takes longer is a miss, and so is every later one until Redis has
    answered a probe."""

    @field_validator("cache", mode="before")
    @classmethod
    def _off_is_no_boolean(cls, value: object) -> object:
        # An unquoted off is false in YAML.
        return "off" if value is False else value

    @model_validator(mode="after")
    def _has_redis(self) -> Self:
        if self.cache == "redis" and not self.redis_url.get_secret_value():
            raise ValueError("KBMESH_REDIS_URL is needed where KBMESH_CACHE is redis")
        return self

    @model_validator(mode="after")
    def _has_both_files(self) -> Self:
        if (self.qdrant_cert is None) != (self.qdrant_key is None):
            raise ValueError("KBMESH_QDRANT_CERT and KBMESH_QDRANT_KEY belong together: one of them is unset")
        return self

    def plaintext_calls(self) -> tuple[str, ...]:
        """See ServerSettings.plaintext_edges. Never a URL that may hold a password."""
        edges = [
            *self.plaintext_targets("chunker_address", "embedder_address", "reranker_address"),
            *self.plaintext_urls("llm_url"),
        ]
        if self.vector_store == "qdrant":
            edges += self.plaintext_urls("qdrant_url")
        catalog = urlsplit(self.catalog_database)
        asked = parse_qs(catalog.query)
        verified = {*asked.get("sslmode", ()), *asked.get("ssl", ())} & {"require", "verify-ca", "verify-full"}
        # libpq's host may be a parameter: the folder of a Unix socket.
        hosts = [host for host in (*asked.get("host", ()), catalog.hostname) if host and not host.startswith("/")]
        if not catalog.scheme.startswith("sqlite") and not verified and not all(map(is_loopback, hosts)):
            edges.append("KBMESH_CATALOG_URL without sslmode=verify-full")
        redis_url = self.redis_url.get_secret_value()
        if self.cache == "redis" and urlsplit(redis_url).scheme == "redis" and not is_local_url(redis_url):
            edges.append("KBMESH_REDIS_URL without rediss://")
        return tuple(edges)

    @property
    def catalog_database(self) -> str:
        """`catalog_url`, or the default's."""
        return self.catalog_url.get_secret_value() or f"sqlite:///{self.home.expanduser() / 'data' / 'catalog.db'}"
