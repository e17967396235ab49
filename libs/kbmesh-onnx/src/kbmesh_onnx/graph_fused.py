"""The steps of BERT in ONNX Runtime's own operators (com.microsoft), each of which is many standard ones.

The mask stays a (n, t) matrix of ones and zeros. Attention also takes the number of leading ones, which
EmbedLayerNormalization would give, but that reads a mask with a hole or padding on the left wrongly and in silence.
"""

from collections.abc import Callable

from kbmesh_onnx.architecture import BertArchitecture
from kbmesh_onnx.graph_builder import CONTRIB, GraphBuilder
from kbmesh_onnx.graph_plain import PlainSteps

INT32 = 6


class FusedSteps:
    """Steps for `graph_bert.build_bert`, in ONNX Runtime's operators."""

    def __init__(
        self,
        builder: GraphBuilder,
        architecture: BertArchitecture,
        product: Callable[[str, str], str] | None = None,
    ) -> None:
        """`product` multiplies a value with the weight of the dense layer that is named; in single precision unless
        given."""
        self._builder = builder
        self._architecture = architecture
        self._plain = PlainSteps(builder, architecture)
        self._product = product or self._single_product

    def mask(self, attention_mask: str) -> str:
        """Turn (n, t) int64 ones and zeros into int32."""
        return self._builder.node("Cast", attention_mask, to=INT32)

    def embed(self, input_ids: str, token_type_ids: str) -> str:
        """Add word, position and segment, and normalise: (n, t) to (n, t, hidden)."""
        g = self._builder
        return g.split(
            "EmbedLayerNormalization",
            g.node("Cast", input_ids, to=INT32),
            g.node("Cast", token_type_ids, to=INT32),
            g.weight("embeddings.word"),
            g.weight("embeddings.position"),
            g.weight("embeddings.token_type"),
            g.weight("embeddings.norm.weight"),
            g.weight("embeddings.norm.bias"),
            outputs=2,
            domain=CONTRIB,
            epsilon=self._architecture.epsilon,
        )[0]

    def self_attention(self, hidden: str, mask: str, name: str) -> str:
        """Let every token attend to all: (n, t, hidden) to (n, t, hidden), before the output's dense layer."""
        g, merged = self._builder, f"{name}.query_key_value"
        weight, bias = g.weight(f"{merged}.weight"), g.weight(f"{merged}.bias")
        return g.node("Attention", hidden, weight, bias, mask, domain=CONTRIB, num_heads=self._architecture.heads)

    def first_attention(self, hidden: str, first: str, mask: str, name: str) -> str:
        """Let only the first token attend to all. No fused operator does it on every device: standard ones."""
        return self._plain.first_attention(hidden, first, self._plain.mask(mask), name)

    def add_norm(self, inputs: str, residual: str, dense: str) -> str:
        """Apply a dense layer, add the residual, normalise."""
        g = self._builder
        return g.node(
            "SkipLayerNormalization",
            self._product(inputs, dense),
            residual,
            g.weight(f"{dense}.norm.weight"),
            g.weight(f"{dense}.norm.bias"),
            g.weight(f"{dense}.bias"),
            domain=CONTRIB,
            epsilon=self._architecture.epsilon,
        )

    def gelu(self, inputs: str, dense: str) -> str:
        """Apply a dense layer and GELU in its exact form."""
        g = self._builder
        return g.node("BiasGelu", self._product(inputs, dense), g.weight(f"{dense}.bias"), domain=CONTRIB)

    def _single_product(self, inputs: str, dense: str) -> str:
        return self._builder.node("MatMul", inputs, self._builder.weight(f"{dense}.weight"))
