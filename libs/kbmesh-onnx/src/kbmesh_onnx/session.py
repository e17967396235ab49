"""One model, loaded on one device.

The only module that imports ONNX Runtime. The device is read from the live session, never from what was asked for:
ONNX Runtime lists CUDA as available on machines that have none.
"""

import threading
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from kbmesh_onnx.errors import DeviceUnavailable, InferenceError, ModelFolderError
from kbmesh_onnx.folder import FORM_FILES, Form, ModelCard

Device = Literal["cpu", "cuda", "auto"]
Output = Literal["embeddings", "token_embeddings", "logits"]

CUDA = "CUDAExecutionProvider"
CPU = "CPUExecutionProvider"
LOG_ERRORS_ONLY = 3

# The arena grows by what a batch needs instead of doubling, so that varied shapes do not eat the device's memory.
CUDA_OPTIONS = {"arena_extend_strategy": "kSameAsRequested"}


class ModelSession:
    """A model in ONNX Runtime. `run` may be called from several threads at once."""

    def __init__(self, session: Any, card: ModelCard, form: Form) -> None:
        self._session = session
        self._lock = threading.Lock()
        self._card = card
        self._form: Form = form
        self._device = _live_device(session)
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
    ) -> "ModelSession":
        """Load a model.

        `device` "cuda" raises DeviceUnavailable unless CUDA really activated; "auto" takes CUDA where it activates,
        else the CPU. `form` "auto" takes the form that the card says is faster on the device in use.
        `intra_op_threads` 0 leaves the number to ONNX Runtime: one a core. Raises ModelFolderError where the form is
        absent or cannot be loaded.
        """
        if device not in ("cpu", "cuda", "auto"):
            raise ValueError(f"device is {device!r}, not cpu, cuda or auto")
        if device in ("cuda", "auto"):
            try:
                return cls._open_on(folder, card, "cuda", form, intra_op_threads)
            except DeviceUnavailable:
                if device == "cuda":
                    raise
        return cls._open_on(folder, card, "cpu", form, intra_op_threads)

    @classmethod
    def _open_on(
        cls,
        folder: Path,
        card: ModelCard,
        device: Literal["cpu", "cuda"],
        form: Form | Literal["auto"],
        intra_op_threads: int,
    ) -> "ModelSession":
        available = tuple(onnxruntime.get_available_providers())
        if device == "cuda" and CUDA not in available:
            raise DeviceUnavailable(
                device, available=available, message="the installed ONNX Runtime was built without CUDA"
            )
        chosen = _choose_form(card, device) if form == "auto" else form
        if chosen not in card.forms:
            raise ModelFolderError(f"{card.name} has no {chosen} form, only {', '.join(card.forms)}")
        path = Path(folder) / FORM_FILES[chosen]
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = intra_op_threads
        options.log_severity_level = LOG_ERRORS_ONLY
        providers: list[str | tuple[str, dict[str, str]]] = [CPU] if device == "cpu" else [(CUDA, CUDA_OPTIONS), CPU]
        try:
            # Without fallback, ONNX Runtime raises instead of printing to stdout and changing the device on its own.
            session = onnxruntime.InferenceSession(str(path), options, providers=providers, enable_fallback=0)
        except Exception as error:  # ONNX Runtime's errors have no common parent but Exception
            if device == "cuda":
                raise DeviceUnavailable(device, available=available, message=str(error)) from error
            raise ModelFolderError(f"{path} cannot be loaded: {error}") from error
        opened = cls(session, card, chosen)
        if device == "cuda" and not opened.device.startswith("cuda"):
            raise DeviceUnavailable(
                device, available=available, message="CUDA did not activate; its driver or libraries are absent"
            )
        return opened

    @property
    def device(self) -> str:
        """Device in use, read from the live session: "cpu" or "cuda:0"."""
        return self._device

    @property
    def precision(self) -> str:
        """Precision in use."""
        return "fp32"

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
            session = self._session
        if session is None:
            raise InferenceError(f"{self._card.name}: the session is closed")
        feed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": type_ids}
        try:
            return tuple(session.run(list(outputs), feed))
        except Exception as error:  # ONNX Runtime's errors have no common parent but Exception
            raise InferenceError(f"{self._card.name}: {error}", out_of_memory=_is_out_of_memory(error)) from error

    def close(self) -> None:
        """Give the model's memory back once runs in flight are done. May be called twice."""
        with self._lock:
            self._session = None

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


def _choose_form(card: ModelCard, device: Literal["cpu", "cuda"]) -> Form:
    """Take the measured form; where none was measured, the fused one on CUDA, whose kernels are made for it."""
    preferred = card.preferred_form.get(device)
    if preferred is not None:
        return preferred
    return "fused" if device == "cuda" and "fused" in card.forms else card.forms[0]


def _live_device(session: Any) -> str:
    if session.get_providers()[0] != CUDA:
        return "cpu"
    return f"cuda:{session.get_provider_options()[CUDA].get('device_id', '0')}"


def _is_out_of_memory(error: Exception) -> bool:
    message = str(error).lower()
    return "failed to allocate memory" in message or "out of memory" in message
