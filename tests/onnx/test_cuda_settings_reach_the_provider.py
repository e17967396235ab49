"""What an operator sets is what ONNX Runtime is asked for, in its own names; and why CUDA is not there is said."""

import ctypes
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnxruntime
import pytest
from kbmesh_onnx import session as session_module
from kbmesh_onnx.binding import BoundRunner
from kbmesh_onnx.cuda_driver import CudaDriver, DriverAbsent
from kbmesh_onnx.device_loss import telling_device_loss
from kbmesh_onnx.device_settings import DeviceSettings
from kbmesh_onnx.errors import DeviceLost, DeviceUnavailable, InferenceError
from kbmesh_onnx.provider import CPU, CUDA, TENSORRT, cuda_options, cuda_providers, live_device, load_cuda_libraries
from kbmesh_onnx.session import ModelSession
from opened_model import OpenedModel

INPUTS = ("input_ids", "attention_mask", "token_type_ids")

CUDA_NAMES = {
    *("device_id", "gpu_mem_limit", "arena_extend_strategy", "cudnn_conv_algo_search", "do_copy_in_default_stream"),
    *("cudnn_conv_use_max_workspace", "cudnn_conv1d_pad_to_nc1d", "enable_cuda_graph", "use_tf32", "prefer_nhwc"),
    *("enable_skip_layer_norm_strict_mode", "use_ep_level_unified_stream", "tunable_op_enable", "fuse_conv_bias"),
}
"""Option names of the CUDA provider, from its page and from the strings of its library in ONNX Runtime 1.31."""
TENSORRT_NAMES = {
    *("device_id", "trt_fp16_enable", "trt_layer_norm_fp32_fallback", "trt_engine_cache_enable"),
    *("trt_engine_cache_path", "trt_timing_cache_enable", "trt_timing_cache_path", "trt_profile_min_shapes"),
    *("trt_profile_opt_shapes", "trt_profile_max_shapes", "trt_max_workspace_size", "trt_cuda_graph_enable"),
}

ALL = DeviceSettings(
    device_id=1,
    device_memory_mebibytes=2048,
    arena_extend="next_power_of_two",
    cudnn_search="exhaustive",
    tf32=True,
    cuda_graphs=4,
)


def test_every_option_is_one_that_the_provider_knows() -> None:
    assert cuda_options(ALL) == {
        "device_id": "1",
        "gpu_mem_limit": str(2 << 30),
        "arena_extend_strategy": "kNextPowerOfTwo",
        "cudnn_conv_algo_search": "EXHAUSTIVE",
        "use_tf32": "1",
        "enable_cuda_graph": "1",
    }
    assert set(cuda_options(ALL)) <= CUDA_NAMES
    assert "gpu_mem_limit" not in cuda_options(DeviceSettings())
    assert "enable_cuda_graph" not in cuda_options(DeviceSettings())


def test_tensorrt_stands_before_cuda_and_keeps_its_engines(tmp_path: Path) -> None:
    settings = DeviceSettings(tensorrt=True, tensorrt_cache=tmp_path, tensorrt_rows=16, precision="fp16")
    (first, options), (second, _), third = cuda_providers(settings, inputs=INPUTS, max_tokens=512)
    assert (first, second, third) == (TENSORRT, CUDA, CPU)
    assert set(options) <= TENSORRT_NAMES
    assert options["trt_fp16_enable"] == "1"
    assert options["trt_engine_cache_path"] == str(tmp_path)
    assert options["trt_profile_max_shapes"] == "input_ids:16x512,attention_mask:16x512,token_type_ids:16x512"
    assert options["trt_profile_min_shapes"] == "input_ids:1x1,attention_mask:1x1,token_type_ids:1x1"


@pytest.mark.parametrize(
    "wrong",
    [
        {"device_id": -1},
        {"device_memory_mebibytes": -1},
        {"cuda_graphs": -1},
        {"cuda_graph_tokens": 0},
        {"tensorrt_rows": 0},
        {"cuda_graphs": 1, "shrink_tokens": 1},
        {"cuda_graphs": 1, "tensorrt": True},
        {"cuda_graphs": 1, "io_binding": "off"},
        {"tensorrt_cache": Path("engines")},
    ],
)
def test_settings_that_cannot_be_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        DeviceSettings(**wrong)


class Driver:
    """NVIDIA's driver with two devices, one of them a MIG instance, as its C interface answers."""

    NAMES = (b"NVIDIA A100-SXM4-40GB MIG 1g.5gb", b"NVIDIA A100-SXM4-40GB")

    def __init__(self, *, initialised: int = 0, devices: int = 2, pinned: int = 0) -> None:
        self.memory: dict[int, Any] = {}
        self.freed: list[int] = []
        self.library = SimpleNamespace(
            cuInit=lambda flags: initialised,
            cuDeviceGetCount=lambda count: self._give(count, devices),
            cuDeviceGet=lambda handle, index: self._give(handle, index),
            cuDeviceGetName=self._name,
            cuDeviceTotalMem_v2=lambda memory, handle: self._give(memory, 5 << 30),
            cuDevicePrimaryCtxRetain=lambda context, handle: self._give(context, 7),
            cuCtxPushCurrent_v2=SimpleNamespaceCall(lambda context: 0),
            cuCtxPopCurrent_v2=lambda context: 0,
            cuMemHostAlloc=lambda address, size, flags: pinned or self._allocate(address, size),
            cuMemFreeHost=SimpleNamespaceCall(lambda address: self.freed.append(address) or 0),
        )

    def load(self, name: str) -> Any:
        assert name == "libcuda.so.1"
        return self.library

    def _give(self, where: Any, value: int) -> int:
        where._obj.value = value
        return 0

    def _name(self, buffer: Any, length: int, handle: Any) -> int:
        buffer.value = self.NAMES[handle.value]
        return 0

    def _allocate(self, address: Any, size: Any) -> int:
        memory = ctypes.create_string_buffer(size.value)
        self.memory[ctypes.addressof(memory)] = memory
        return self._give(address, ctypes.addressof(memory))


class SimpleNamespaceCall(SimpleNamespace):
    """A function of a C library, whose argument types can be set."""

    def __init__(self, call: Any) -> None:
        super().__init__(call=call)

    def __call__(self, *arguments: Any) -> Any:
        return self.call(*arguments)


def test_the_driver_names_a_mig_instance() -> None:
    devices = CudaDriver(Driver().load).devices()
    assert [device.name for device in devices] == ["NVIDIA A100-SXM4-40GB MIG 1g.5gb", "NVIDIA A100-SXM4-40GB"]
    assert devices[0].memory_bytes == 5 << 30


@pytest.mark.parametrize("driver", [Driver(initialised=100), Driver(devices=0)])
def test_a_driver_without_a_device_says_so(driver: Driver) -> None:
    with pytest.raises(DriverAbsent):
        CudaDriver(driver.load).devices()


def test_pinned_memory_is_written_read_and_given_back() -> None:
    driver = Driver()
    array = CudaDriver(driver.load).pinned((3, 4), np.int64, device=0)
    array[:] = 5
    assert array.ctypes.data in driver.memory
    assert array.sum() == 60
    part = array[1]
    del array
    assert not driver.freed
    del part
    assert driver.freed == list(driver.memory)


def test_without_pinned_memory_ordinary_memory_does() -> None:
    array = CudaDriver(Driver(pinned=2).load).pinned((3, 4), np.int64, device=0)
    array[:] = 1
    assert array.sum() == 12


@pytest.fixture
def gpu_build(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """ONNX Runtime built for CUDA, and a driver. Sessions land where "lands" says; what they were asked is noted."""
    world: dict[str, Any] = {"lands": CUDA, "driver": Driver(), "providers": None, "said": ""}
    real = onnxruntime.InferenceSession

    class Session:
        """A session on the CPU that says of itself what one on CUDA would."""

        def __init__(self, path: str, options: Any, *, providers: Any, enable_fallback: int) -> None:
            world["providers"] = providers
            if isinstance(world["lands"], Exception):
                raise world["lands"]
            self._session = real(path, options, providers=[CPU])

        def __getattr__(self, name: str) -> Any:
            return getattr(self._session, name)

        def get_providers(self) -> list[str]:
            return [world["lands"], CPU]

        def get_provider_options(self) -> dict[str, dict[str, str]]:
            asked = {each[0]: each[1] for each in world["providers"] if isinstance(each, tuple)}
            return {CPU: {}, **asked}

    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: [TENSORRT, CUDA, CPU])
    monkeypatch.setattr(onnxruntime, "InferenceSession", Session)
    monkeypatch.setattr(session_module, "CudaDriver", lambda: CudaDriver(world["driver"].load))
    monkeypatch.setattr(session_module, "load_cuda_libraries", lambda: world["said"])
    return world


def test_a_session_on_cuda_is_asked_for_and_tells_its_device(tiny: OpenedModel, gpu_build: dict[str, Any]) -> None:
    session = ModelSession.open(tiny.folder, tiny.card, device="cuda", settings=replace(ALL, device_id=0))
    assert gpu_build["providers"] == [(CUDA, cuda_options(replace(ALL, device_id=0))), CPU]
    assert session.device == "cuda:0"
    assert session.device_text == "cuda:0 (NVIDIA A100-SXM4-40GB MIG 1g.5gb)"
    assert session.provider == CUDA


def test_the_device_is_the_number_that_the_provider_has(tiny: OpenedModel, gpu_build: dict[str, Any]) -> None:
    session = ModelSession.open(tiny.folder, tiny.card, device="auto", settings=DeviceSettings(device_id=1))
    assert (session.device, session.device_name) == ("cuda:1", "NVIDIA A100-SXM4-40GB")


def test_tensorrt_reads_the_plain_form(tiny: OpenedModel, gpu_build: dict[str, Any]) -> None:
    gpu_build["lands"] = TENSORRT
    session = ModelSession.open(tiny.folder, tiny.card, device="cuda", settings=DeviceSettings(tensorrt=True))
    assert (session.form, session.device, session.provider) == ("plain", "cuda:0", TENSORRT)


def test_tensorrt_that_lands_on_cuda_is_not_what_was_asked_for(tiny: OpenedModel, gpu_build: dict[str, Any]) -> None:
    with pytest.raises(DeviceUnavailable):
        ModelSession.open(tiny.folder, tiny.card, device="cuda", settings=DeviceSettings(tensorrt=True))


def test_a_session_that_lands_on_the_cpu_says_which_library_is_missing(
    tiny: OpenedModel, gpu_build: dict[str, Any]
) -> None:
    gpu_build.update(lands=CPU, said="Failed to load libcudnn.so.9")
    with pytest.raises(DeviceUnavailable, match=r"libcudnn\.so\.9"):
        ModelSession.open(tiny.folder, tiny.card, device="cuda")
    assert ModelSession.open(tiny.folder, tiny.card, device="auto").device == "cpu"


@pytest.mark.parametrize(
    ("driver", "reason"),
    [(Driver(initialised=100), "100"), (Driver(devices=0), "CUDA_VISIBLE_DEVICES"), (Driver(devices=1), "MIG 1g.5gb")],
)
def test_a_device_that_is_not_visible_is_named_before_anything_is_loaded(
    tiny: OpenedModel, gpu_build: dict[str, Any], driver: Driver, reason: str
) -> None:
    gpu_build["driver"] = driver
    with pytest.raises(DeviceUnavailable, match=reason):
        ModelSession.open(tiny.folder, tiny.card, device="cuda", settings=DeviceSettings(device_id=1))
    assert gpu_build["providers"] is None


def test_an_error_while_it_activates_is_the_reason(tiny: OpenedModel, gpu_build: dict[str, Any]) -> None:
    gpu_build["lands"] = RuntimeError("CUDA failure 35: CUDA driver version is insufficient")
    with pytest.raises(DeviceUnavailable, match="35"):
        ModelSession.open(tiny.folder, tiny.card, device="cuda")


def test_what_onnx_runtime_prints_is_kept_from_stdout(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        onnxruntime, "preload_dlls", lambda: sys.stdout.write("Failed to load libcublas.so.13\n"), raising=False
    )
    assert load_cuda_libraries() == "Failed to load libcublas.so.13"
    assert capfd.readouterr().out == ""


def test_a_session_on_the_cpu_is_on_the_cpu(tiny: OpenedModel) -> None:
    session = ModelSession.open(tiny.folder, tiny.card)
    assert (session.device, session.device_text, session.device_name) == ("cpu", "cpu", "")
    assert live_device(SimpleNamespace(get_providers=lambda: [CPU])) == "cpu"


LOST = (
    "Error when bind input: CUDA failure 700: an illegal memory access was encountered ; GPU=0 ; hostname=h ; "
    "file=gpu_data_transfer.cc ; line=91 ; expr=cudaMemcpyAsync(dst_data, src_data, bytes, cudaMemcpyHostToDevice)"
)
LIMIT = (
    "Error in execution: Non-zero status code returned while running Gather node. Name:'Gather_5' Status Message: "
    "bfc_arena.cc:360 AllocateRawInternal Available memory of 24295680 is smaller than requested bytes of 25165824"
)


@pytest.mark.parametrize(("said", "lost", "out_of_memory"), [(LOST, True, False), (LIMIT, False, True)])
def test_what_the_cuda_provider_says_of_a_failed_run(
    tiny: OpenedModel, monkeypatch: pytest.MonkeyPatch, said: str, lost: bool, out_of_memory: bool
) -> None:
    """Both as the provider of ONNX Runtime 1.31 says them, for bound runs: one ends the model, the other halves it."""
    session = ModelSession.open(tiny.folder, tiny.card, settings=DeviceSettings(io_binding="on"))

    def fail(*arguments: Any) -> None:
        raise RuntimeError(said)

    monkeypatch.setattr(BoundRunner, "run", fail)
    ones = np.ones((1, 4), dtype=np.int64)
    with pytest.raises(InferenceError) as caught, telling_device_loss():
        session.run(ones, ones, ones, outputs=("embeddings",))
    assert isinstance(caught.value, DeviceLost) is lost
    assert caught.value.out_of_memory is out_of_memory
