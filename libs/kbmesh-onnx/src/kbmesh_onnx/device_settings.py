"""How a model is run on a device: what an operator may choose, and nothing that ONNX Runtime has to be known for."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

ArenaExtend = Literal["same_as_requested", "next_power_of_two"]
CudnnSearch = Literal["heuristic", "exhaustive", "default"]
Precision = Literal["auto", "fp32", "fp16", "int8"]
IoBinding = Literal["auto", "on", "off"]

MEBIBYTE = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class DeviceSettings:
    """Settings of one model's session. All but `io_binding` and `shrink_tokens` concern CUDA alone.

    Raises ValueError for numbers that are out of range and for settings that exclude each other.
    """

    device_id: int = 0
    """Which of the visible devices, from 0. CUDA_VISIBLE_DEVICES decides what is visible and in which order; a MIG
    instance that is named there is a device like any other."""
    device_memory_mebibytes: int = 0
    """What this model's arena may hold on the device. 0 is no limit. CUDA's context and its libraries' workspaces come
    on top."""
    arena_extend: ArenaExtend = "same_as_requested"
    """How the arena grows: by what a batch needs, or by doubling, which takes more memory and asks for it less
    often."""
    cudnn_search: CudnnSearch = "heuristic"
    """How cuDNN chooses a convolution. exhaustive tries all of them at each new shape. Models without convolutions, as
    BERT is, do not notice."""
    tf32: bool = False
    """Whether fp32 products may be computed in TensorFloat-32: faster from Ampere on, with 10 bits of mantissa."""
    precision: Precision = "auto"
    """auto takes the model folder's fp16 file on CUDA where there is one, and fp32 everywhere else. int8 runs on the
    CPU alone; its vectors have a fingerprint of their own."""
    tensorrt: bool = False
    """Whether TensorRT runs what it can of the model, in its plain form. Its libraries are installed apart."""
    tensorrt_cache: Path | None = None
    """Folder for built engines. Without it each start builds them anew, for minutes."""
    tensorrt_rows: int = 32
    """Texts of the largest batch that engines are built for, each of the model's full length. A batch with more texts
    fails and is halved, so the batch of the queue should not hold more."""
    cuda_graphs: int = 0
    """How many CUDA graphs are captured at most, one for each bucket of texts and tokens. 0 is none. A graph is run
    with one call instead of one for each operator. Only the thread that captured them replays them."""
    cuda_graph_tokens: int = 4096
    """Tokens of the largest bucket, padding included. Beyond it the operators work long enough to hide their calls."""
    shrink_tokens: int = 0
    """After a run over at least so many tokens, padding included, what the arena does not use goes back to the device.
    0 is never. It costs the next large run its allocations."""
    io_binding: IoBinding = "auto"
    """Whether inputs and outputs are bound to memory of our own, pinned on CUDA. auto is on CUDA alone: on the CPU
    there is no copy to save."""

    def __post_init__(self) -> None:
        for name in ("device_id", "device_memory_mebibytes", "cuda_graphs", "shrink_tokens"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it cannot be negative")
        for name in ("tensorrt_rows", "cuda_graph_tokens"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; at least 1 is needed")
        if self.cuda_graphs and self.shrink_tokens:
            raise ValueError(
                "cuda_graphs and shrink_tokens exclude each other: a graph uses the addresses of the arena"
            )
        if self.cuda_graphs and self.tensorrt:
            raise ValueError("cuda_graphs and tensorrt exclude each other: TensorRT has graphs of its own")
        if self.cuda_graphs and self.io_binding == "off":
            raise ValueError("cuda_graphs need io_binding")
        if self.tensorrt_cache is not None and not self.tensorrt:
            raise ValueError("tensorrt_cache is set and tensorrt is not")


DEFAULT_SETTINGS = DeviceSettings()
