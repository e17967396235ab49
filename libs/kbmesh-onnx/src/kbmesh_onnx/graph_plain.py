"""The steps of BERT in standard ONNX operators: the form that any runtime reads, TensorRT too."""

import math

from kbmesh_onnx.architecture import BertArchitecture
from kbmesh_onnx.graph_builder import GraphBuilder

# Far enough from every score that its exponential is 0, and still a number in half precision.
MASKED = -10_000.0


class PlainSteps:
    """Steps for `graph_bert.build_bert`, in standard operators."""

    def __init__(self, builder: GraphBuilder, architecture: BertArchitecture) -> None:
        self._builder = builder
        self._architecture = architecture

    def mask(self, attention_mask: str) -> str:
        """Turn (n, t) ones and zeros into (n, 1, 1, t) numbers to add to scores."""
        g = self._builder
        keep = g.node("Cast", g.node("Unsqueeze", attention_mask, g.integers(1, 2)), to=1)
        return g.node("Mul", g.node("Sub", g.number(1.0), keep), g.number(MASKED))

    def embed(self, input_ids: str, token_type_ids: str) -> str:
        """Add word, position and segment, and normalise: (n, t) to (n, t, hidden)."""
        g = self._builder
        words = g.node("Gather", g.weight("embeddings.word"), input_ids)
        segments = g.node("Gather", g.weight("embeddings.token_type"), token_type_ids)
        tokens = g.node("Gather", g.node("Shape", input_ids), g.integers(1))
        positions = g.node("Slice", g.weight("embeddings.position"), g.integers(0), tokens, g.integers(0))
        return self._layer_norm(g.node("Add", g.node("Add", words, segments), positions), "embeddings.norm")

    def self_attention(self, hidden: str, mask: str, name: str) -> str:
        """Let every token attend to all: (n, t, hidden) to (n, t, hidden), before the output's dense layer."""
        g, size = self._builder, self._architecture.hidden_size
        projected = self._dense(hidden, f"{name}.query_key_value")
        query, key, value = g.split("Split", projected, g.integers(size, size, size), outputs=3, axis=2)
        return self._attend(query, key, value, mask)

    def first_attention(self, hidden: str, first: str, mask: str, name: str) -> str:
        """Let only the first token, (n, 1, hidden), attend to all: the last layer of a cross-encoder."""
        g, size = self._builder, self._architecture.hidden_size
        key, value = g.split(
            "Split", self._dense(hidden, f"{name}.key_value"), g.integers(size, size), outputs=2, axis=2
        )
        return self._attend(self._dense(first, f"{name}.query"), key, value, mask)

    def add_norm(self, inputs: str, residual: str, dense: str) -> str:
        """Apply a dense layer, add the residual, normalise."""
        return self._layer_norm(self._builder.node("Add", self._dense(inputs, dense), residual), f"{dense}.norm")

    def gelu(self, inputs: str, dense: str) -> str:
        """Apply a dense layer and GELU in its exact form."""
        g = self._builder
        inner = self._dense(inputs, dense)
        erf = g.node("Erf", g.node("Div", inner, g.number(math.sqrt(2.0))))
        return g.node("Mul", g.node("Mul", inner, g.node("Add", erf, g.number(1.0))), g.number(0.5))

    def _attend(self, query: str, key: str, value: str, mask: str) -> str:
        g = self._builder
        scale = g.number(1.0 / math.sqrt(self._architecture.head_size))
        heads = self._heads(g.node("Mul", query, scale), (0, 2, 1, 3))
        scores = g.node("Add", g.node("MatMul", heads, self._heads(key, (0, 2, 3, 1))), mask)
        attended = g.node("MatMul", g.node("Softmax", scores, axis=-1), self._heads(value, (0, 2, 1, 3)))
        joined = g.node("Transpose", attended, perm=(0, 2, 1, 3))
        return g.node("Reshape", joined, g.integers(0, 0, self._architecture.hidden_size))

    def _heads(self, inputs: str, order: tuple[int, ...]) -> str:
        g, architecture = self._builder, self._architecture
        parted = g.node("Reshape", inputs, g.integers(0, 0, architecture.heads, architecture.head_size))
        return g.node("Transpose", parted, perm=order)

    def _dense(self, inputs: str, name: str) -> str:
        g = self._builder
        return g.node("Add", g.node("MatMul", inputs, g.weight(f"{name}.weight")), g.weight(f"{name}.bias"))

    def _layer_norm(self, inputs: str, name: str) -> str:
        g = self._builder
        weight, bias = g.weight(f"{name}.weight"), g.weight(f"{name}.bias")
        return g.node("LayerNormalization", inputs, weight, bias, axis=-1, epsilon=self._architecture.epsilon)
