"""One model, loaded on one device.

The device is read from the live session, never from what was asked for: ONNX Runtime lists CUDA as available on
machines that have none. What is asked of it is in `provider`, how memory is bound in `binding`.
"""

import threading
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from kbmesh_onnx.binding import INPUTS, BoundRunner
from kbmesh_onnx.bucket import Bucket, choose_buckets
from kbmesh_onnx.cuda_driver import CudaDevice, CudaDriver, DriverAbsent
from kbmesh_onnx.device_settings import DEFAULT_SETTINGS, DeviceSettings
from kbmesh_onnx.errors import DeviceUnavailable, InferenceError, ModelFolderError
from kbmesh_onnx.folder import FORM_FILES, INT8_FILE, Form, ModelCard
from kbmesh_onnx.provider import (
    CPU,
    CUDA,
    TENSORRT,
    Provider,
    cuda_providers,
    live_device,
    live_provider,
    load_cuda_libraries,
)

Device = Literal["cpu", "cuda", "auto"]
Output = Literal["embeddings", "token_embeddings", "logits"]

LOG_ERRORS_ONLY = 3

OUT_OF_MEMORY = ("failed to allocate memory", "out of memory", "is smaller than requested bytes")
"""What ONNX Runtime says, in small letters, where memory is missing; the last where the device's limit is reached."""

HALF_FILES: Mapping[Form, str] = MappingProxyType({"plain": "model.fp16.onnx", "fused": "model.fused.fp16.onnx"})
"""What a folder may hold besides FORM_FILES; its card lists the size of each."""


class ModelSession:
    """A model in ONNX Runtime. `run` may be called from several threads at once."""

    def __init__(
        self,
        session: Any,
        card: ModelCard,
        form: Form,
        *,
        precision: str = "fp32",
        device_name: str = "",
        bound: BoundRunner | None = None,
    ) -> None:
        self._session = session
        self._lock = threading.Lock()
        self._card = card
        self._form: Form = form
        self._precision = precision
        self._device = live_device(session)
        self._device_name = device_name
        self._provider = live_provider(session)
        self._bound = bound
        self._outputs = frozenset(output.name for output in session.get_outputs())

    @classmethod
    def open(
        cls,
        folder: Path,
        card: ModelCard,
        *,
        device: Device = "cpu",
        form: Form | Literal["auto"] = "auto",
        intra_op_threads: int = 0,
        settings: DeviceSettings = DEFAULT_SETTINGS,
    ) -> "ModelSession":
        """Load a model.

        `device` "cuda" raises DeviceUnavailable unless CUDA really activated; "auto" takes CUDA where it activates,
        else the CPU. `form` "auto" takes the form that the card says is faster on the device in use.
        `intra_op_threads` 0 leaves the number to ONNX Runtime: one a core. Raises ModelFolderError where the form or
        the precision is absent or cannot be loaded.
        """
        if device not in ("cpu", "cuda", "auto"):
            raise ValueError(f"device is {device!r}, not cpu, cuda or auto")
        if settings.precision == "int8":
            if device == "cuda":
                raise DeviceUnavailable(
                    device, available=("cpu",), message="int8 runs on the CPU alone; fp16 is the small one on CUDA"
                )
            # Its products have no kernels on CUDA: they would run on the CPU, with a copy there and back for each.
            device = "cpu"
        if device in ("cuda", "auto"):
            try:
                return cls._open_on_cuda(folder, card, form, intra_op_threads, settings)
            except DeviceUnavailable:
                if device == "cuda":
                    raise
        return cls._open_on_cpu(folder, card, form, intra_op_threads, settings)

    @classmethod
    def _open_on_cpu(
        cls,
        folder: Path,
        card: ModelCard,
        form: Form | Literal["auto"],
        intra_op_threads: int,
        settings: DeviceSettings,
    ) -> "ModelSession":
        precision = "fp32" if settings.precision == "auto" else settings.precision
        chosen = "fused" if precision == "int8" else choose_form(card, "cpu") if form == "auto" else form
        path = model_file(folder, card, chosen, precision=precision)
        try:
            session = _load(path, [CPU], intra_op_threads)
        except Exception as error:  # ONNX Runtime's errors have no common parent but Exception
            raise ModelFolderError(f"{path} cannot be loaded: {error}") from error
        bound = None
        if settings.io_binding == "on":
            bound = BoundRunner(
                session, device="cpu", buckets=_buckets(card, settings), shrink_tokens=settings.shrink_tokens
            )
        return cls(session, card, chosen, precision=precision, bound=bound)

    @classmethod
    def _open_on_cuda(
        cls,
        folder: Path,
        card: ModelCard,
        form: Form | Literal["auto"],
        intra_op_threads: int,
        settings: DeviceSettings,
    ) -> "ModelSession":
        wanted = TENSORRT if settings.tensorrt else CUDA
        driver, device, missing = _find_cuda(wanted, settings.device_id)
        available = tuple(onnxruntime.get_available_providers())
        # TensorRT reads the plain form alone.
        chosen = form if form != "auto" else "plain" if settings.tensorrt else choose_form(card, "cuda")
        precision = _cuda_precision(card, chosen, settings)
        path = model_file(folder, card, chosen, precision="fp32" if settings.tensorrt else precision)
        if settings.tensorrt_cache is not None:
            settings.tensorrt_cache.mkdir(parents=True, exist_ok=True)
        providers = cuda_providers(settings, inputs=INPUTS, max_tokens=card.max_tokens)
        try:
            session = _load(path, providers, intra_op_threads)
        except Exception as error:  # as above
            message = f"{error}; {missing}" if missing else str(error)
            raise DeviceUnavailable("cuda", available=available, message=message) from error
        if live_provider(session) != wanted:
            raise DeviceUnavailable(
                "cuda", available=available, message=missing or f"{wanted} did not activate; its libraries are absent"
            )
        bound = None
        if settings.io_binding != "off":
            bound = BoundRunner(
                session,
                device="cuda",
                device_id=settings.device_id,
                allocate=lambda shape: driver.pinned(shape, np.int64, device=settings.device_id),
                buckets=_buckets(card, settings),
                shrink_tokens=settings.shrink_tokens,
            )
        return cls(session, card, chosen, precision=precision, device_name=device.name, bound=bound)

    @property
    def device(self) -> str:
        """Device in use, read from the live session: "cpu" or "cuda:0"."""
        return self._device

    @property
    def device_name(self) -> str:
        """What the driver calls the device, such as "NVIDIA H200 MIG 1g.18gb". Empty on the CPU."""
        return self._device_name

    @property
    def device_text(self) -> str:
        """Device in use with its name, for people: "cpu" or "cuda:0 (NVIDIA H200)"."""
        return f"{self._device} ({self._device_name})" if self._device_name else self._device

    @property
    def provider(self) -> str:
        """ONNX Runtime's name of the execution provider in use."""
        return self._provider

    @property
    def graphs(self) -> int:
        """Buckets that are captured as CUDA graphs. 0 before the first run."""
        return len(self._bound.buckets) if self._bound is not None else 0

    @property
    def precision(self) -> str:
        """Precision in use: "fp32" or "fp16"."""
        return self._precision

    @property
    def form(self) -> Form:
        """Form in use."""
        return self._form

    @property
    def outputs(self) -> frozenset[str]:
        """Names of the outputs that `run` can give."""
        return self._outputs

    def run(
        self,
        ids: NDArray[np.int64],
        mask: NDArray[np.int64],
        type_ids: NDArray[np.int64],
        *,
        outputs: tuple[Output, ...],
    ) -> tuple[NDArray[np.float32], ...]:
        """Run a batch and give the outputs that were asked for, in that order.

        `ids`, `mask` and `type_ids` are (n, t) int64, padded where the mask is 0. "embeddings" is (n, dimension),
        "token_embeddings" (n, t, dimension) with zeros at padding and not of unit length, "logits" (n, 1); all
        float32. Blocks; ONNX Runtime releases the GIL. Raises ValueError for arrays that do not fit the model, and
        InferenceError where the model fails or the session is closed.
        """
        self._check(ids, mask, type_ids, outputs)
        with self._lock:
            session, bound = self._session, self._bound
        if session is None:
            raise InferenceError(f"{self._card.name}: the session is closed")
        try:
            if bound is not None:
                return bound.run((ids, mask, type_ids), outputs)
            return tuple(session.run(list(outputs), dict(zip(INPUTS, (ids, mask, type_ids), strict=True))))
        except Exception as error:  # ONNX Runtime's errors have no common parent but Exception
            raise InferenceError(f"{self._card.name}: {error}", out_of_memory=_is_out_of_memory(error)) from error

    def close(self) -> None:
        """Give the model's memory back once runs in flight are done. May be called twice."""
        with self._lock:
            self._session = self._bound = None

    def _check(
        self,
        ids: NDArray[np.int64],
        mask: NDArray[np.int64],
        type_ids: NDArray[np.int64],
        outputs: tuple[Output, ...],
    ) -> None:
        for name, array in (("ids", ids), ("mask", mask), ("type_ids", type_ids)):
            if array.dtype != np.int64 or array.ndim != 2 or array.shape != ids.shape:
                raise ValueError(f"{name} is {array.dtype} {array.shape}; int64 of ids' shape (n, t) is needed")
        if 0 in ids.shape:
            raise ValueError(f"the batch is empty: {ids.shape}")
        if ids.shape[1] > self._card.max_tokens:
            raise ValueError(f"{ids.shape[1]} tokens, of which {self._card.name} reads {self._card.max_tokens}")
        unknown = set(outputs) - self._outputs
        if unknown or not outputs:
            raise ValueError(f"{self._card.name} gives {sorted(self._outputs)}, not {sorted(unknown)}")


def choose_form(card: ModelCard, device: Literal["cpu", "cuda"]) -> Form:
    """Take the measured form; where none was measured, the fused one on CUDA, whose kernels are made for it."""
    preferred = card.preferred_form.get(device)
    if preferred is not None:
        return preferred
    return "fused" if device == "cuda" and "fused" in card.forms else card.forms[0]


def model_file(folder: Path, card: ModelCard, form: Form, *, precision: str) -> Path:
    """The file of a form in a precision. Raises ModelFolderError where the card has none."""
    if form not in card.forms:
        raise ModelFolderError(f"{card.name} has no {form} form, only {', '.join(card.forms)}")
    if precision == "fp32":
        return Path(folder) / FORM_FILES[form]
    if precision == "int8":
        if INT8_FILE not in card.file_sizes or card.int8 is None:
            raise ModelFolderError(f"{card.name} has no int8 file; kbmesh models pull NAME --precision int8 adds it")
        return Path(folder) / INT8_FILE
    if HALF_FILES[form] not in card.file_sizes:
        raise ModelFolderError(f"{card.name} has no fp16 file of its {form} form; python -m kbmesh_onnx.half adds it")
    return Path(folder) / HALF_FILES[form]


def _cuda_precision(card: ModelCard, form: Form, settings: DeviceSettings) -> Literal["fp32", "fp16"]:
    if settings.precision in ("fp32", "fp16"):
        return settings.precision
    # TensorRT makes fp16 of the fp32 file, and only where it is asked to.
    return "fp16" if HALF_FILES[form] in card.file_sizes and not settings.tensorrt else "fp32"


def _find_cuda(wanted: str, device_id: int) -> tuple[CudaDriver, CudaDevice, str]:
    """The driver, the device, and what ONNX Runtime misses of its libraries. Raises DeviceUnavailable.

    Asked beforehand: ONNX Runtime says no more than that it did not work, and writes the reason to stderr.
    """
    available = tuple(onnxruntime.get_available_providers())
    if wanted not in available:
        raise DeviceUnavailable(
            "cuda", available=available, message=f"the installed ONNX Runtime was built without {wanted}"
        )
    try:
        driver = CudaDriver()
        devices = driver.devices()
    except DriverAbsent as error:
        raise DeviceUnavailable("cuda", available=available, message=str(error)) from error
    if device_id >= len(devices):
        names = ", ".join(f"{device.index} {device.name}" for device in devices)
        raise DeviceUnavailable("cuda", available=available, message=f"there is no device {device_id}, only {names}")
    return driver, devices[device_id], load_cuda_libraries()


def _load(path: Path, providers: list[Provider], intra_op_threads: int) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = intra_op_threads
    options.log_severity_level = LOG_ERRORS_ONLY
    # A pattern is kept for each shape that was ever run, and one block of the arena for the whole of it: memory grows
    # with every new shape. On the CPU it gains no speed.
    options.enable_mem_pattern = providers != [CPU]
    # Without fallback, ONNX Runtime raises instead of printing to stdout and changing the device on its own.
    return onnxruntime.InferenceSession(str(path), options, providers=providers, enable_fallback=0)


def _buckets(card: ModelCard, settings: DeviceSettings) -> tuple[Bucket, ...]:
    return choose_buckets(max_tokens=card.max_tokens, max_area=settings.cuda_graph_tokens, most=settings.cuda_graphs)


def _is_out_of_memory(error: Exception) -> bool:
    message = str(error).lower()
    return any(words in message for words in OUT_OF_MEMORY)
