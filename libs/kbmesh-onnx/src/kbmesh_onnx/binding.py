"""Runs of a model with inputs and outputs bound to memory of our own, and CUDA graphs over them.

A bound run copies a batch once, from page-locked memory on CUDA, and gets its outputs where they are wanted. A batch
that fits a bucket replays that bucket's graph: one call, fixed addresses. ONNX Runtime keeps captured graphs with the
thread that captured them, so another thread runs the operators one by one, with the same result.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from kbmesh_onnx.bucket import Bucket, fill, smallest

Integers = NDArray[np.int64]
Floats = NDArray[np.float32]
Batch = tuple[Integers, Integers, Integers]
Allocate = Callable[[tuple[int, ...]], Integers]

INPUTS = ("input_ids", "attention_mask", "token_type_ids")
GRAPH_ID = "gpu_graph_id"
NO_GRAPH = "-1"
SHRINK = "memory.enable_memory_arena_shrinkage"
ELEMENTS = {"tensor(float)": np.float32, "tensor(float16)": np.float16}


@dataclass(frozen=True, kw_only=True)
class _Slot:
    """A bucket with its memory on the device, its binding and the number of its graph."""

    bucket: Bucket
    host: Batch
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    binding: Any
    options: Any


class BoundRunner:
    """Runs one session, one run at a time.

    `device` is where the session's provider keeps its memory. `allocate` gives memory on the host for int64 of a shape.
    Over `buckets`, which are captured at the first run, in its thread and for its outputs, batches are padded.
    `shrink_tokens` is as in DeviceSettings.
    """

    def __init__(
        self,
        session: Any,
        *,
        device: Literal["cpu", "cuda"],
        device_id: int = 0,
        allocate: Allocate = lambda shape: np.empty(shape, dtype=np.int64),
        buckets: tuple[Bucket, ...] = (),
        shrink_tokens: int = 0,
    ) -> None:
        self._session = session
        self._device = device
        self._device_id = device_id
        self._allocate = allocate
        self._buckets = buckets
        self._shrink_tokens = shrink_tokens
        self._lock = threading.Lock()
        self._staging: Integers = np.empty(0, dtype=np.int64)
        self._element = {output.name: ELEMENTS[output.type] for output in session.get_outputs()}
        self._last_axis = {output.name: output.shape[-1] for output in session.get_outputs()}
        self._slots: dict[Bucket, _Slot] = {}
        self._captured: tuple[int, tuple[str, ...]] | None = None
        self._plain_options = _run_options({GRAPH_ID: NO_GRAPH} if buckets else {})
        arena = f"gpu:{device_id}" if device == "cuda" else "cpu:0"
        self._shrinking_options = _run_options({SHRINK: arena})

    @property
    def buckets(self) -> tuple[Bucket, ...]:
        """Those that were made ready. Empty before the first run."""
        return tuple(self._slots)

    def run(self, batch: Batch, outputs: tuple[str, ...]) -> tuple[Floats, ...]:
        """As `ModelSession.run`, which checks the arrays. Raises what ONNX Runtime raises."""
        with self._lock:
            if self._buckets and self._captured is None:
                self._capture(outputs)
            if self._captured == (threading.get_ident(), outputs):
                bucket = smallest(self._slots, *batch[0].shape)
                if bucket is not None:
                    return self._replay(self._slots[bucket], batch, outputs)
            return self._run_bound(batch, outputs)

    def _run_bound(self, batch: Batch, outputs: tuple[str, ...]) -> tuple[Floats, ...]:
        rows, tokens = batch[0].shape
        binding = self._session.io_binding()
        for name, array in zip(INPUTS, self._staged(batch), strict=True):
            binding.bind_cpu_input(name, array)
        results = []
        for name in outputs:
            middle = (tokens,) if name == "token_embeddings" else ()
            result = np.empty((rows, *middle, self._last_axis[name]), dtype=self._element[name])
            binding.bind_output(name, "cpu", 0, result.dtype.type, result.shape, result.ctypes.data)
            results.append(result)
        large = 0 < self._shrink_tokens <= rows * tokens
        self._session.run_with_iobinding(binding, self._shrinking_options if large else self._plain_options)
        return tuple(result.astype(np.float32, copy=False) for result in results)

    def _staged(self, batch: Batch) -> Batch:
        """The batch where the device copies it from best. On the CPU that is where it is."""
        if self._device == "cpu":
            ids, mask, type_ids = (np.ascontiguousarray(array) for array in batch)
            return ids, mask, type_ids
        size = batch[0].size
        if self._staging.size < len(batch) * size:
            self._staging = self._allocate((len(batch) * size,))
        parts = []
        for place, array in enumerate(batch):
            part = self._staging[place * size : (place + 1) * size].reshape(array.shape)
            part[:] = array
            parts.append(part)
        return parts[0], parts[1], parts[2]

    def _replay(self, slot: _Slot, batch: Batch, outputs: tuple[str, ...]) -> tuple[Floats, ...]:
        rows, tokens = batch[0].shape
        fill(*slot.host, *batch)
        for value, array in zip(slot.inputs, slot.host, strict=True):
            value.update_inplace(array)
        self._session.run_with_iobinding(slot.binding, slot.options)
        results = []
        for name, value in zip(outputs, slot.outputs, strict=True):
            whole = value.numpy()
            part = whole[:rows, :tokens] if name == "token_embeddings" else whole[:rows]
            results.append(part.astype(np.float32))
        return tuple(results)

    def _capture(self, outputs: tuple[str, ...]) -> None:
        """Makes every bucket ready. Largest first: what the arena takes for it, the smaller ones share."""
        one = np.ones((1, 1), dtype=np.int64)
        for number, bucket in enumerate(sorted(self._buckets, key=lambda each: -each.area), start=1):
            slot = self._make_slot(bucket, outputs, number)
            self._replay(slot, (one, one, one * 0), outputs)
            self._slots[bucket] = slot
        self._captured = (threading.get_ident(), outputs)

    def _make_slot(self, bucket: Bucket, outputs: tuple[str, ...], number: int) -> _Slot:
        shape = (bucket.rows, bucket.tokens)
        binding = self._session.io_binding()
        inputs = tuple(self._value(shape, np.int64) for _ in INPUTS)
        for name, value in zip(INPUTS, inputs, strict=True):
            binding.bind_ortvalue_input(name, value)
        values = []
        for name in outputs:
            middle = (bucket.tokens,) if name == "token_embeddings" else ()
            value = self._value((bucket.rows, *middle, self._last_axis[name]), self._element[name])
            binding.bind_ortvalue_output(name, value)
            values.append(value)
        return _Slot(
            bucket=bucket,
            host=(self._allocate(shape), self._allocate(shape), self._allocate(shape)),
            inputs=inputs,
            outputs=tuple(values),
            binding=binding,
            options=_run_options({GRAPH_ID: str(number)}),
        )

    def _value(self, shape: tuple[int, ...], element: type) -> Any:
        return onnxruntime.OrtValue.ortvalue_from_shape_and_type(shape, element, self._device, self._device_id)


def _run_options(entries: dict[str, str]) -> Any:
    options = onnxruntime.RunOptions()
    for key, value in entries.items():
        options.add_run_config_entry(key, value)
    return options
