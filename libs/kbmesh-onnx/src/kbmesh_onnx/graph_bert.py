"""BERT as an ONNX graph, from ids to pooled vectors or logits, in either vocabulary of operators."""

from collections.abc import Callable, Mapping
from typing import Protocol

import onnx

from kbmesh_onnx.architecture import BertArchitecture
from kbmesh_onnx.folder import Form, Kind, Pooling
from kbmesh_onnx.graph_builder import GraphBuilder
from kbmesh_onnx.graph_fused import FusedSteps
from kbmesh_onnx.graph_plain import PlainSteps
from kbmesh_onnx.weights_file import StoredTensor

FLOAT = 1
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
SMALLEST_NORM = 1e-12
"""What torch.nn.functional.normalize divides a shorter vector by."""


class Steps(Protocol):
    """The steps of BERT in one vocabulary of operators. Names of values go in and out."""

    def mask(self, attention_mask: str) -> str: ...
    def embed(self, input_ids: str, token_type_ids: str) -> str: ...
    def self_attention(self, hidden: str, mask: str, name: str) -> str: ...
    def first_attention(self, hidden: str, first: str, mask: str, name: str) -> str: ...
    def add_norm(self, inputs: str, residual: str, dense: str) -> str: ...
    def gelu(self, inputs: str, dense: str) -> str: ...


def build_bert(
    architecture: BertArchitecture,
    stored: Mapping[str, StoredTensor],
    *,
    kind: Kind,
    form: Form,
    pooling: Pooling,
    normalized: bool,
    make_steps: Callable[[GraphBuilder], Steps] | None = None,
) -> onnx.ModelProto:
    """Build the graph, in the steps of `form` unless `make_steps` gives others.

    Inputs are (n, t) int64. An encoder gives "embeddings", (n, hidden), pooled and, if `normalized`, of unit length,
    and "token_embeddings", (n, t, hidden), the last hidden states with zeros at padding. A cross-encoder gives
    "logits", (n, 1).
    """
    builder = GraphBuilder(stored)
    steps: Steps
    if make_steps is not None:
        steps = make_steps(builder)
    else:
        steps = FusedSteps(builder, architecture) if form == "fused" else PlainSteps(builder, architecture)
    input_ids, attention_mask, token_type_ids = INPUTS
    mask = steps.mask(attention_mask)
    hidden = steps.embed(input_ids, token_type_ids)
    outputs: dict[str, tuple[str | int, ...]]
    if kind == "encoder":
        for layer in range(architecture.layers):
            name = f"layer.{layer}"
            hidden = _finish_layer(steps, steps.self_attention(hidden, mask, name), hidden, name)
        _pool(builder, hidden, attention_mask, pooling=pooling, normalized=normalized)
        outputs = {
            "embeddings": ("batch", architecture.hidden_size),
            "token_embeddings": ("batch", "tokens", architecture.hidden_size),
        }
    else:
        for layer in range(architecture.layers - 1):
            name = f"layer.{layer}"
            hidden = _finish_layer(steps, steps.self_attention(hidden, mask, name), hidden, name)
        # Only the first token of the last layer is read, so only that one is computed.
        name = f"layer.{architecture.layers - 1}"
        first = builder.node("Slice", hidden, builder.integers(0), builder.integers(1), builder.integers(1))
        first = _finish_layer(steps, steps.first_attention(hidden, first, mask, name), first, name)
        _classify(builder, first)
        outputs = {"logits": ("batch", 1)}
    return builder.model(f"bert_{form}", dict.fromkeys(INPUTS, ("batch", "tokens")), outputs)


def _finish_layer(steps: Steps, attended: str, hidden: str, name: str) -> str:
    hidden = steps.add_norm(attended, hidden, f"{name}.attended")
    return steps.add_norm(steps.gelu(hidden, f"{name}.inner"), hidden, f"{name}.outer")


def _pool(builder: GraphBuilder, hidden: str, attention_mask: str, *, pooling: Pooling, normalized: bool) -> None:
    last = builder.integers(2)
    read = builder.node("Cast", builder.node("Unsqueeze", attention_mask, last), to=FLOAT)
    tokens = builder.node("Mul", hidden, read)
    builder.named(tokens, "token_embeddings")
    if pooling == "mean":
        total = builder.node("ReduceSum", tokens, builder.integers(1), keepdims=0)
        count = builder.node("ReduceSum", read, builder.integers(1), keepdims=0)
        # A row that is all padding has no mean; a zero vector is better than NaN in its batch.
        pooled = builder.node("Div", total, builder.node("Max", count, builder.number(1e-9)))
    else:
        pooled = builder.node("Gather", hidden, builder.integers(0), axis=1)
        pooled = builder.node("Squeeze", pooled, builder.integers(1))
    if normalized:
        squares = builder.node("ReduceSum", builder.node("Mul", pooled, pooled), builder.integers(1), keepdims=1)
        norm = builder.node("Max", builder.node("Sqrt", squares), builder.number(SMALLEST_NORM))
        pooled = builder.node("Div", pooled, norm)
    builder.named(pooled, "embeddings")


def _classify(builder: GraphBuilder, first: str) -> None:
    state = builder.node("Squeeze", first, builder.integers(1))
    pooled = builder.node("Gemm", state, builder.weight("pooler.weight"), builder.weight("pooler.bias"))
    pooled = builder.node("Tanh", pooled)
    logits = builder.node("Gemm", pooled, builder.weight("classifier.weight"), builder.weight("classifier.bias"))
    builder.named(logits, "logits")
