"""What is asked of ONNX Runtime's execution providers, and what a session says of the one that it got.

Names and values are those of onnxruntime.ai/docs/execution-providers, pages CUDA and TensorRT; the provider's parser
refuses what it does not know.
"""

import contextlib
import io
import warnings
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import onnxruntime

from kbmesh_onnx.device_settings import MEBIBYTE, ArenaExtend, CudnnSearch, DeviceSettings

CPU = "CPUExecutionProvider"
CUDA = "CUDAExecutionProvider"
TENSORRT = "TensorrtExecutionProvider"

Options = dict[str, str]
Provider = str | tuple[str, Options]

ARENA_EXTEND: Mapping[ArenaExtend, str] = MappingProxyType(
    {"same_as_requested": "kSameAsRequested", "next_power_of_two": "kNextPowerOfTwo"}
)
CUDNN_SEARCH: Mapping[CudnnSearch, str] = MappingProxyType(
    {"heuristic": "HEURISTIC", "exhaustive": "EXHAUSTIVE", "default": "DEFAULT"}
)


def cuda_options(settings: DeviceSettings) -> Options:
    """Options of the CUDA provider."""
    options = {
        "device_id": str(settings.device_id),
        "arena_extend_strategy": ARENA_EXTEND[settings.arena_extend],
        "cudnn_conv_algo_search": CUDNN_SEARCH[settings.cudnn_search],
        "use_tf32": str(int(settings.tf32)),
    }
    if settings.device_memory_mebibytes:
        options["gpu_mem_limit"] = str(settings.device_memory_mebibytes * MEBIBYTE)
    if settings.cuda_graphs:
        options["enable_cuda_graph"] = "1"
    return options


def tensorrt_options(settings: DeviceSettings, *, inputs: tuple[str, ...], max_tokens: int) -> Options:
    """Options of the TensorRT provider.

    One profile covers every batch, so that no engine is built while callers wait. It is tuned for a quarter of the
    texts at a quarter of the length.
    """
    rows = settings.tensorrt_rows

    def shapes(texts: int, tokens: int) -> str:
        return ",".join(f"{name}:{texts}x{tokens}" for name in inputs)

    options = {
        "device_id": str(settings.device_id),
        "trt_profile_min_shapes": shapes(1, 1),
        "trt_profile_opt_shapes": shapes(max(1, rows // 4), max(1, max_tokens // 4)),
        "trt_profile_max_shapes": shapes(rows, max_tokens),
    }
    if settings.precision == "fp16":
        # Variances in fp16 overflow; TensorRT warns of it on its own.
        options.update(trt_fp16_enable="1", trt_layer_norm_fp32_fallback="1")
    if settings.tensorrt_cache is not None:
        folder = str(settings.tensorrt_cache)
        options.update(
            trt_engine_cache_enable="1",
            trt_engine_cache_path=folder,
            trt_timing_cache_enable="1",
            trt_timing_cache_path=folder,
        )
    return options


def cuda_providers(settings: DeviceSettings, *, inputs: tuple[str, ...], max_tokens: int) -> list[Provider]:
    """What to ask for, best first. The CPU provider stands last for the few nodes that compute shapes."""
    providers: list[Provider] = [(CUDA, cuda_options(settings)), CPU]
    if settings.tensorrt:
        providers.insert(0, (TENSORRT, tensorrt_options(settings, inputs=inputs, max_tokens=max_tokens)))
    return providers


def live_provider(session: Any) -> str:
    """The provider that a session really has: the first that it names itself."""
    return str(session.get_providers()[0])


def live_device(session: Any) -> str:
    """The device that a session really runs on: "cpu" or "cuda:0", by the provider's own device id."""
    provider = live_provider(session)
    if provider not in (CUDA, TENSORRT):
        return "cpu"
    return f"cuda:{session.get_provider_options()[provider].get('device_id', '0')}"


def load_cuda_libraries() -> str:
    """Load CUDA and cuDNN from NVIDIA's wheels, where they are installed, else from the system.

    Gives what ONNX Runtime says of those that it did not find, which it writes to stdout.
    """
    preload = getattr(onnxruntime, "preload_dlls", None)
    if preload is None:
        return ""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        preload()
    return "; ".join(line.strip() for line in said.getvalue().splitlines() if line.strip())
