"""What ONNX Runtime's own matrix product reaches: a model's products, and nothing else, as a graph."""

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

HEADS = 12
LAYERS = 6
HIDDEN = 384
"""Of all-MiniLM-L6-v2."""


class MatrixProducts:
    """The products of all layers, at the shapes of a batch.

    Of each layer: one for query, key and value together, scores and weighted values of each head, the output's dense
    layer and the two of the feed-forward part. No softmax, no normalisation, no activation, no bias, no embedding.
    """

    def __init__(self, *, threads: int) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3
        # The layers' products are of the same inputs: they would be found equal and computed once.
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        self._session = onnxruntime.InferenceSession(
            _graph().SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        self._inputs: dict[tuple[int, int], dict[str, NDArray[np.float32]]] = {}

    def run(self, texts: int, tokens: int) -> None:
        """Multiplies everything once for a batch of `texts` texts of `tokens` tokens."""
        self._session.run(None, self._feed(texts, tokens))

    def prepare(self, texts: int, tokens: int) -> None:
        """Makes the inputs of a shape ahead of the time that is taken."""
        self._feed(texts, tokens)

    def _feed(self, texts: int, tokens: int) -> dict[str, NDArray[np.float32]]:
        feed = self._inputs.get((texts, tokens))
        if feed is None:
            generator = np.random.default_rng(0)
            size = HIDDEN // HEADS

            def uniform(*shape: int) -> NDArray[np.float32]:
                return generator.uniform(-0.1, 0.1, shape).astype(np.float32)

            feed = self._inputs[texts, tokens] = {
                "hidden": uniform(texts, tokens, HIDDEN),
                "inner": uniform(texts, tokens, 4 * HIDDEN),
                "query": uniform(texts, HEADS, tokens, size),
                "key": uniform(texts, HEADS, size, tokens),
                "weights": uniform(texts, HEADS, tokens, tokens),
                "value": uniform(texts, HEADS, tokens, size),
            }
        return feed


def flops(texts: int, tokens: int) -> float:
    """Floating-point operations of the products of one batch."""
    dense = 2 * texts * tokens * HIDDEN * HIDDEN * (3 + 1 + 4 + 4)
    attention = 2 * 2 * texts * tokens * tokens * HIDDEN
    return float(LAYERS * (dense + attention))


def _graph() -> onnx.ModelProto:
    generator = np.random.default_rng(0)
    nodes, weights, outputs = [], [], []
    wide = {"query_key_value": ("hidden", HIDDEN, 3 * HIDDEN), "output": ("hidden", HIDDEN, HIDDEN)}
    wide |= {"up": ("hidden", HIDDEN, 4 * HIDDEN), "down": ("inner", 4 * HIDDEN, HIDDEN)}
    for layer in range(LAYERS):
        for name, (source, rows, columns) in wide.items():
            weight = generator.uniform(-0.1, 0.1, (rows, columns)).astype(np.float32)
            weights.append(numpy_helper.from_array(weight, f"{layer}.{name}.weight"))
            nodes.append(helper.make_node("MatMul", [source, f"{layer}.{name}.weight"], [f"{layer}.{name}"]))
            outputs.append(f"{layer}.{name}")
        for name, inputs in {"scores": ["query", "key"], "mixed": ["weights", "value"]}.items():
            nodes.append(helper.make_node("MatMul", inputs, [f"{layer}.{name}"]))
            outputs.append(f"{layer}.{name}")
    # One number of each product, so that none can be left out and none has to be copied.
    for output in outputs:
        nodes.append(helper.make_node("Shape", [output], [f"{output}.shape"]))
        nodes.append(helper.make_node("Size", [f"{output}.shape"], [f"{output}.rank"]))
    shapes: dict[str, list[str | int]] = {
        "hidden": ["n", "t", HIDDEN],
        "inner": ["n", "t", 4 * HIDDEN],
        "query": ["n", HEADS, "t", HIDDEN // HEADS],
        "key": ["n", HEADS, HIDDEN // HEADS, "t"],
        "weights": ["n", HEADS, "t", "t"],
        "value": ["n", HEADS, "t", HIDDEN // HEADS],
    }
    graph = helper.make_graph(
        nodes,
        "products",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()],
        [helper.make_tensor_value_info(f"{output}.rank", TensorProto.INT64, []) for output in outputs],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
