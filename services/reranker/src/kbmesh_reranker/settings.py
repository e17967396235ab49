"""Settings of the reranker."""

from pathlib import Path
from typing import Literal, Self

from kbmesh_onnx.device_settings import DeviceSettings
from kbmesh_rpc.scaler.trigger import parse_peers_list
from kbmesh_rpc.settings import ServerSettings
from kbmesh_rpc.targets import is_loopback
from pydantic import Field, field_validator, model_validator

from kbmesh_reranker.remote_settings import RemoteRerankModel


class RerankerSettings(ServerSettings):
    """Settings of the reranker: a query and passages in, relevance with receipts out."""

    port: int = 7403
    metrics_port: int = 7503

    backend: Literal["auto", "onnx", "late_interaction", "fake"] = "auto"
    """How documents are scored. onnx runs a cross-encoder; late_interaction compares the token vectors of an embedding
    model; auto is the one or the other, as the model's card says. fake counts common words without any weights, for
    tests and load runs; ListModels says so."""
    home: Path = Path("~/.kbmesh")
    """Folder of this machine's kbmesh. Used for the models where `models` is unset."""
    models: Path | None = None
    """Folder that holds the model folders, one for each name in `model`. Unset: HOME/models."""
    model: str = "all-MiniLM-L6-v2"
    """Names of the models to serve, comma separated. The first answers requests that name none."""
    remote_models: dict[str, RemoteRerankModel] = Field(default_factory=dict)
    """Models that run at a vendor's (cohere), by name, as JSON: {"NAME": {"provider": "cohere"}}. Those that `model`
    names are served, beside those of this process; needs the extra kbmesh-reranker[cohere]. docs/providers.md has all
    fields."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device to run on. auto takes CUDA where it works, else the CPU."""
    require_device: Literal["", "cpu", "cuda"] = ""
    """Refuses to start on any other device."""
    device_id: int = Field(default=0, ge=0)
    """Which of the visible devices, from 0. CUDA_VISIBLE_DEVICES decides what is visible; a MIG instance named there
    counts like a device."""
    device_memory_mebibytes: int = Field(default=0, ge=0)
    """What each model may hold on the device. 0 is no limit. CUDA itself and its libraries need some hundred more."""
    arena_extend: Literal["same_as_requested", "next_power_of_two"] = "same_as_requested"
    """How a model's memory on the device grows: by what a batch needs, or by doubling."""
    cudnn_search: Literal["heuristic", "exhaustive", "default"] = "heuristic"
    """How cuDNN chooses a convolution. BERT has none."""
    tf32: bool = False
    """Whether fp32 products may be computed in TensorFloat-32 on CUDA: faster, with 10 bits of mantissa."""
    precision: Literal["auto", "fp32", "fp16", "int8"] = "auto"
    """auto takes a model's fp16 file on CUDA where its folder has one, and fp32 everywhere else. int8 takes the int8
    file, on the CPU alone: faster, not quite the same vectors, and so a fingerprint of its own."""
    tensorrt: bool = False
    """Whether TensorRT runs the models on CUDA. Its libraries are installed apart."""
    tensorrt_cache: Path | None = None
    """Folder for the engines that TensorRT builds; each model has one of its own in it. Unset: they are built anew at
    each start, for minutes."""
    tensorrt_rows: int = Field(default=32, ge=1)
    """Texts of the largest batch that TensorRT's engines are built for."""
    cuda_graphs: int = Field(default=0, ge=0)
    """How many CUDA graphs a model captures at most before it serves, one for each bucket of texts and tokens, into
    which batches are padded. 0 is none."""
    cuda_graph_tokens: int = Field(default=4096, ge=1)
    """Tokens of the largest bucket, padding included."""
    shrink_tokens: int = Field(default=0, ge=0)
    """After a batch of at least so many tokens, padding included, unused memory goes back to the device. 0 is never.
    Not together with CUDA graphs. On the CPU it needs `io_binding` on."""
    io_binding: Literal["auto", "on", "off"] = "auto"
    """Whether inputs and outputs are bound to memory of our own, page-locked on CUDA. auto is on CUDA alone."""
    load_retry_seconds: float = Field(default=10.0, ge=0)
    """How long after a model could not be loaded it is tried again; meanwhile the server is NOT_SERVING, and ListModels
    says why. Longer after each failure, up to six times this. 0 ends the process instead."""
    threads: int = Field(default=0, ge=0)
    """Threads that one model run uses on the CPU. 0 is one for each core."""
    max_query_characters: int = Field(default=10_000, ge=1)
    """Characters that a query may have."""
    max_documents: int = Field(default=1000, ge=1)
    """Documents that one request may hold."""
    max_document_characters: int = Field(default=1_000_000, ge=1)
    """Characters that one document may have. A longer one fails alone."""
    max_windows: int = Field(default=32, ge=1)
    """Windows in which one long document is scored. What stands beyond them is cut off, and the receipt says so."""
    max_call_windows: int = Field(default=2048, ge=1)
    """Windows of all documents of one request. A document that would need more of them fails alone."""
    queue_tokens: int = Field(default=524_288, ge=1)
    """Tokens that may wait for a model. Beyond that, requests are refused and told when to come back; bulk requests
    are refused at three quarters of it, and so is a tenant who holds more than an equal share. What is not tokenised
    yet counts with an estimate."""
    draw_tokens: int = Field(default=4096, ge=1)
    """Tokens that are drawn from the queue at once, to be sorted by length."""
    batch_tokens: int = Field(default=1024, ge=1)
    """Tokens of one run of the model, padding included. 1,024 is best on a CPU; a GPU likes more."""
    bulk_share: float = Field(default=0.25, gt=0, lt=1)
    """Part of a model's time that bulk requests get while interactive ones wait as well."""

    scaler_peers: str = ""
    """Name and port behind which all replicas stand, for KEDA's scaler, which sums their queues: that of the headless
    service, such as reranker-headless:7403. Several are comma separated; a trigger may name one of them in `peers`, and
    means the first where it names none. Unset: on loopback a trigger may name any, elsewhere it is refused."""
    scaler_timeout_seconds: float = Field(default=2.0, gt=0)
    """How long the scaler waits for all replicas together."""

    @field_validator("scaler_peers")
    @classmethod
    def _names_peers(cls, peers: str) -> str:
        return ",".join(map(str, parse_peers_list(peers)))

    @field_validator("model")
    @classmethod
    def _names_models(cls, model: str) -> str:
        names = split_names(model)
        if not names:
            raise ValueError("at least one model name is needed")
        if len(set(names)) < len(names):
            raise ValueError("a model is named twice")
        return ",".join(names)

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if unused := [name for name in self.remote_models if name not in self.model_names]:
            raise ValueError(f"remote_models has {', '.join(unused)}, which model does not name")
        self.device_settings("")
        return self

    def plaintext_calls(self) -> tuple[str, ...]:
        """See ServerSettings.plaintext_edges. Replicas ask each other for their load."""
        if self.tls_ca is not None or all(is_loopback(peers.host) for peers in parse_peers_list(self.scaler_peers)):
            return ()
        return (f"KBMESH_SCALER_PEERS={self.scaler_peers} without KBMESH_TLS_CA",)

    @property
    def model_names(self) -> tuple[str, ...]:
        """`model`, taken apart."""
        return split_names(self.model)

    @property
    def models_folder(self) -> Path:
        """`models`, or the default's."""
        return (self.models or self.home / "models").expanduser()

    def device_settings(self, model: str) -> DeviceSettings:
        """How the model of that name is run on its device."""
        cache = self.tensorrt_cache
        return DeviceSettings(
            device_id=self.device_id,
            device_memory_mebibytes=self.device_memory_mebibytes,
            arena_extend=self.arena_extend,
            cudnn_search=self.cudnn_search,
            tf32=self.tf32,
            precision=self.precision,
            tensorrt=self.tensorrt,
            tensorrt_cache=cache.expanduser() / model if cache is not None else None,
            tensorrt_rows=self.tensorrt_rows,
            cuda_graphs=self.cuda_graphs,
            cuda_graph_tokens=self.cuda_graph_tokens,
            shrink_tokens=self.shrink_tokens,
            io_binding=self.io_binding,
        )


def split_names(names: str) -> tuple[str, ...]:
    """The names of a comma-separated list."""
    return tuple(name for part in names.split(",") if (name := part.strip()))
