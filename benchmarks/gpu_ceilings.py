"""What a device could do at most: copies from the host, and products of matrices, through ONNX Runtime itself."""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Literal

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper

Where = Literal["cpu", "cuda"]
COPY_BYTES = 64 << 20
ROUNDS = 5
CHAIN = 8
"""Products in a row, so that the call of the first does not show."""
WEIGHTED = {"MatMul": 1, "Gemm": 1, "Attention": 1}
"""Operators that multiply by a weight, and which of their inputs it is."""


def copy_ceiling(device: Where, device_id: int, allocate: Callable[[tuple[int, ...]], Any]) -> dict[str, float]:
    """GB/s from the host to the device: from ordinary memory, and from what `allocate` gives, page-locked on CUDA."""
    count = COPY_BYTES // 8
    there = onnxruntime.OrtValue.ortvalue_from_shape_and_type((count,), np.int64, device, device_id)
    speeds = {}
    for name, source in (
        ("ordinary_gb_per_s", np.zeros(count, dtype=np.int64)),
        ("bound_gb_per_s", allocate((count,))),
    ):
        source[:] = 1
        speeds[name] = COPY_BYTES / _median_seconds(partial(there.update_inplace, source)) / 1e9
    return speeds


def product_ceiling(device: Where, device_id: int, *, size: int, element: type, providers: list[Any]) -> float:
    """TFLOP/s of products of square matrices that stay on the device."""
    kind = TensorProto.FLOAT16 if element is np.float16 else TensorProto.FLOAT
    nodes = [
        helper.make_node("MatMul", [f"x{step}" if step else "x", "w"], [f"x{step + 1}" if step + 1 < CHAIN else "y"])
        for step in range(CHAIN)
    ]
    infos = [helper.make_tensor_value_info(name, kind, [size, size]) for name in ("x", "w", "y")]
    graph = helper.make_graph(nodes, "products", infos[:2], infos[2:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=providers, enable_fallback=0)
    values: NDArray[Any] = np.full((size, size), 1 / size, dtype=element)
    binding = session.io_binding()
    for name in ("x", "w"):
        binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(values, device, device_id))
    result = onnxruntime.OrtValue.ortvalue_from_shape_and_type((size, size), element, device, device_id)
    binding.bind_ortvalue_output("y", result)
    return 2 * size**3 * CHAIN / _median_seconds(lambda: session.run_with_iobinding(binding)) / 1e12


def floating_point_operations(model_file: Path, *, tokens: int, hidden: int) -> float:
    """Operations of one text of so many tokens: two for each weight and token, and attention's two products."""
    graph = onnx.load(model_file, load_external_data=False).graph
    weights = {tensor.name: tensor.dims for tensor in graph.initializer if len(tensor.dims) == 2}
    numbers = sum(
        int(np.prod(weights[node.input[1]]))
        for node in graph.node
        if node.op_type in WEIGHTED and len(node.input) > 1 and node.input[1] in weights
    )
    layers = sum(node.op_type in ("Softmax", "Attention") for node in graph.node)
    return 2.0 * numbers * tokens + 4.0 * layers * hidden * tokens**2


def _median_seconds(call: Callable[[], Any]) -> float:
    call()
    seconds = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - began)
    return median(seconds)
