"""The steps of BERT with dense layers in 8 bits, in which a text does not depend on its batch mates.

ONNX Runtime's dynamic quantisation takes one scale for a whole batch. Here the input of a product has fixed limits,
read from texts beforehand, where attention and a layer normalisation bound it; elsewhere each token has a scale of its
own. Products are summed in integers, with weights that have a scale for each column.

Two things keep the result near single precision. Channels that are far larger than the others would take the range
from them, so each is divided by a factor, which the weight's row is multiplied by (Xiao et al. 2022, arXiv:2211.10438).
And GELU gives nothing below -0.17, so bytes after it begin a little below zero instead of in the middle.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kbmesh_onnx.architecture import BertArchitecture
from kbmesh_onnx.graph_builder import CONTRIB, GraphBuilder
from kbmesh_onnx.graph_fused import FusedSteps

LARGEST = 127
MIDDLE = 128
"""The byte of zero where numbers lie on both sides of it."""
GELU_ZERO = 16
"""The byte of zero after GELU."""
GELU_LOWEST = 0.17
"""GELU gives nothing smaller than minus this."""
SMALLEST = 1e-12

PAIR_LARGEST = 128
"""x86 without VNNI adds two products of a byte and a weight in 16 bits, and cuts what is more. 255 times this fits."""


@dataclass(frozen=True, kw_only=True)
class QuantizedDense:
    """A dense layer's weight in 8 bits, and how its input is made bytes."""

    weight: NDArray[np.int8]
    """(in, out)."""
    scales: NDArray[np.float32]
    """(out,): a number of the weight times its column's scale is the number."""
    factors: NDArray[np.float32] | None = None
    """(in,): what each channel of the input is divided by. None for nothing."""
    step: float | None = None
    """What one step of a byte of the input is. None: as large as each row needs."""
    zero: int = GELU_ZERO
    """The byte that is zero."""


def quantize_dense(
    weight: NDArray[np.float32],
    *,
    factors: NDArray[np.float32] | None = None,
    limits: tuple[float, float] | None = None,
    zero: int = GELU_ZERO,
) -> QuantizedDense:
    """Round a weight, (in, out), to 8 bits with a scale for each column.

    `limits` are the smallest and the largest number of the input that a byte can be, after division by `factors`.
    Without, each row has limits of its own, and `zero`, which is GELU_ZERO or MIDDLE, is the byte of zero.

    No two neighbours of a column that are added in 16 bits can overflow there, whatever the input.
    """
    smoothed = weight if factors is None else weight * factors[:, np.newaxis]
    even = np.pad(smoothed, ((0, len(smoothed) % 2), (0, 0)))
    pairs = even.reshape(-1, 2, even.shape[1])
    sums = np.maximum(np.maximum(pairs, 0).sum(axis=1), np.maximum(-pairs, 0).sum(axis=1)).max(axis=0)
    # Half a step is kept free, since both neighbours may be rounded up.
    scales = np.maximum(np.abs(smoothed).max(axis=0) / LARGEST, sums / (PAIR_LARGEST - 1)).astype(np.float32)
    scales = np.where(scales == 0, np.float32(1), scales)
    rounded = np.clip(np.rint(smoothed / scales), -LARGEST, LARGEST).astype(np.int8)
    if limits is None:
        return QuantizedDense(weight=rounded, scales=scales, factors=factors, zero=zero)
    step = max(limits[1] - limits[0], SMALLEST) / 255
    zero_byte = min(max(round(-limits[0] / step), 0), 255)
    return QuantizedDense(weight=rounded, scales=scales, factors=factors, step=step, zero=zero_byte)


@dataclass(frozen=True, kw_only=True)
class _Bytes:
    """Names of a value in bytes, of their zero and step, and of each row's scale where rows have one."""

    values: str
    zero: str
    step: str
    scales: str | None = None


class Int8Steps:
    """Steps for `graph_bert.build_bert`. A dense layer that is not in `dense` stays in single precision."""

    def __init__(
        self, builder: GraphBuilder, architecture: BertArchitecture, dense: Mapping[str, QuantizedDense]
    ) -> None:
        self._builder = builder
        self._architecture = architecture
        self._dense = dense
        self._single = FusedSteps(builder, architecture)
        self._fused = FusedSteps(builder, architecture, product=self._product)

    def mask(self, attention_mask: str) -> str:
        """Turn (n, t) int64 ones and zeros into int32."""
        return self._fused.mask(attention_mask)

    def embed(self, input_ids: str, token_type_ids: str) -> str:
        """Add word, position and segment, and normalise, in single precision."""
        return self._fused.embed(input_ids, token_type_ids)

    def self_attention(self, hidden: str, mask: str, name: str) -> str:
        """Project in 8 bits, attend in single precision: the layer's input has fixed limits."""
        merged = f"{name}.query_key_value"
        layer = self._dense.get(merged)
        if layer is None:
            return self._single.self_attention(hidden, mask, name)
        g, read = self._builder, self._bytes(hidden, merged, layer)
        return g.node(
            "QAttention",
            read.values,
            g.constant(f"{merged}.int8", layer.weight),
            g.weight(f"{merged}.bias"),
            read.step,
            g.constant(f"{merged}.scales", layer.scales),
            mask,
            read.zero,
            g.constant(f"{merged}.zeros", np.zeros(len(layer.scales), dtype=np.int8)),
            domain=CONTRIB,
            num_heads=self._architecture.heads,
        )

    def first_attention(self, hidden: str, first: str, mask: str, name: str) -> str:
        """Stay in single precision: a cross-encoder's last layer has little to do."""
        return self._single.first_attention(hidden, first, mask, name)

    def add_norm(self, inputs: str, residual: str, dense: str) -> str:
        """Apply a dense layer, add the residual, normalise."""
        return self._fused.add_norm(inputs, residual, dense)

    def gelu(self, inputs: str, dense: str) -> str:
        """Apply a dense layer and GELU."""
        return self._fused.gelu(inputs, dense)

    def _product(self, inputs: str, dense: str) -> str:
        layer = self._dense.get(dense)
        if layer is None:
            return self._builder.node("MatMul", inputs, self._builder.weight(f"{dense}.weight"))
        g, read = self._builder, self._bytes(inputs, dense, layer)
        product = g.node(
            "MatMulIntegerToFloat",
            read.values,
            g.constant(f"{dense}.int8", layer.weight),
            read.step,
            g.constant(f"{dense}.scales", layer.scales),
            read.zero,
            domain=CONTRIB,
        )
        return product if read.scales is None else g.node("Mul", product, read.scales)

    def _bytes(self, inputs: str, name: str, layer: QuantizedDense) -> _Bytes:
        """Round a value to bytes."""
        g = self._builder
        zero = g.constant(f"zero_{layer.zero}", np.array(layer.zero, dtype=np.uint8))
        if layer.factors is not None:
            inputs = g.node("Mul", inputs, g.constant(f"{name}.factors", 1 / layer.factors))
        if layer.step is not None:
            step = g.number(layer.step)
            return _Bytes(values=g.node("QuantizeLinear", inputs, step, zero), zero=zero, step=step)
        largest, floor = g.node("ReduceMax", inputs, axes=[-1], keepdims=1), SMALLEST
        if layer.zero == MIDDLE:
            largest = g.node("Max", largest, g.node("Neg", g.node("ReduceMin", inputs, axes=[-1], keepdims=1)))
        else:
            floor = GELU_LOWEST / layer.zero
        scales = g.node("Max", g.node("Mul", largest, g.number(1 / (255 - layer.zero))), g.number(floor))
        scaled = g.node("Mul", inputs, g.node("Reciprocal", scales))
        step = g.number(1.0)
        return _Bytes(values=g.node("QuantizeLinear", scaled, step, zero), zero=zero, step=step, scales=scales)
