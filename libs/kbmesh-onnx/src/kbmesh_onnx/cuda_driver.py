"""What NVIDIA's driver says of the devices that this process may see, and memory that a device can read without a copy.

Asked through the driver's C interface (CUDA Driver API), which is there wherever a device is; no package is needed.
"""

import ctypes
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

LIBRARY = "libcuda.so.1"
NAME_BYTES = 256
PORTABLE = 1
"""CU_MEMHOSTALLOC_PORTABLE: pinned for every context of the process."""


class DriverAbsent(Exception):
    """There is no driver, or it has no device for this process; the message says which."""


@dataclass(frozen=True, kw_only=True)
class CudaDevice:
    """A device that this process may use."""

    index: int
    """Its number among the visible ones."""
    name: str
    """As the driver has it; of a MIG instance with its profile, as "NVIDIA H200 MIG 1g.18gb"."""
    memory_bytes: int


class CudaDriver:
    """The driver, loaded. `load` opens a library by name, as ctypes.CDLL does. Raises DriverAbsent."""

    def __init__(self, load: Callable[[str], Any] = ctypes.CDLL) -> None:
        try:
            self._library = load(LIBRARY)
        except OSError as error:
            raise DriverAbsent(f"NVIDIA's driver is not installed, or not given to this container: {error}") from error
        self._check("cuInit", self._library.cuInit(0))
        # A pointer is cut to 32 bits where it is passed without its type.
        for name in ("cuCtxPushCurrent_v2", "cuMemFreeHost"):
            getattr(self._library, name).argtypes = [ctypes.c_void_p]

    def devices(self) -> tuple[CudaDevice, ...]:
        """Every visible device. Raises DriverAbsent where there is none."""
        count = ctypes.c_int(0)
        self._check("cuDeviceGetCount", self._library.cuDeviceGetCount(ctypes.byref(count)))
        if count.value == 0:
            raise DriverAbsent("no device is visible; CUDA_VISIBLE_DEVICES may hide it")
        return tuple(self._device(index) for index in range(count.value))

    def pinned(self, shape: tuple[int, ...], dtype: DTypeLike, *, device: int) -> NDArray[Any]:
        """An array in page-locked memory, which copies to the device read directly; ordinary memory where it has none.

        What it holds at first is undefined.
        """
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        address = self._allocate(size, device)
        if address is None:
            return np.empty(shape, dtype=dtype)
        memory = (ctypes.c_byte * size).from_address(address)
        # Not at the interpreter's end: the driver is gone by then, and so is the memory.
        weakref.finalize(memory, self._library.cuMemFreeHost, address).atexit = False
        array: NDArray[Any] = np.frombuffer(memoryview(memory), dtype=np.dtype(dtype)).reshape(shape)
        return array

    def _allocate(self, size: int, device: int) -> int | None:
        handle, context, address = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
        if self._library.cuDeviceGet(ctypes.byref(handle), device) != 0:
            return None
        # The primary context is the one that ONNX Runtime uses.
        if self._library.cuDevicePrimaryCtxRetain(ctypes.byref(context), handle) != 0:
            return None
        if self._library.cuCtxPushCurrent_v2(context) != 0:
            return None
        failed = self._library.cuMemHostAlloc(ctypes.byref(address), ctypes.c_size_t(size), PORTABLE)
        self._library.cuCtxPopCurrent_v2(ctypes.byref(context))
        return None if failed else address.value

    def _device(self, index: int) -> CudaDevice:
        handle, name, memory = ctypes.c_int(), ctypes.create_string_buffer(NAME_BYTES), ctypes.c_size_t(0)
        self._check("cuDeviceGet", self._library.cuDeviceGet(ctypes.byref(handle), index))
        self._check("cuDeviceGetName", self._library.cuDeviceGetName(name, NAME_BYTES, handle))
        self._check("cuDeviceTotalMem", self._library.cuDeviceTotalMem_v2(ctypes.byref(memory), handle))
        return CudaDevice(index=index, name=name.value.decode(errors="replace"), memory_bytes=memory.value)

    def _check(self, call: str, code: int) -> None:
        if code != 0:
            raise DriverAbsent(f"NVIDIA's driver answers {call} with CUDA error {code}")
