"""The weights file that every form of a model shares: raw float32 tensors, one after another.

ONNX calls it external data. It is written tensor by tensor, so that an export never holds a second copy of the model,
and laid out for the graphs: dense weights are (in, out), query, key and value stand side by side.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kbmesh_onnx.architecture import BertArchitecture
from kbmesh_onnx.folder import Kind
from kbmesh_onnx.weights import Weights

# ONNX asks for page-aligned tensors, so that a runtime can map them.
PAGE = 4096


@dataclass(frozen=True, kw_only=True)
class StoredTensor:
    """Where a tensor stands in the weights file."""

    offset: int
    length: int
    shape: tuple[int, ...]


def write_weights(path: Path, weights: Weights, architecture: BertArchitecture, kind: Kind) -> dict[str, StoredTensor]:
    """Write the weights file and give the place of each tensor."""
    stored: dict[str, StoredTensor] = {}
    with path.open("wb") as file:
        for name, tensor in graph_tensors(weights, architecture, kind):
            file.seek(-file.tell() % PAGE, os.SEEK_CUR)
            data = np.ascontiguousarray(tensor, dtype="<f4")
            stored[name] = StoredTensor(offset=file.tell(), length=data.nbytes, shape=data.shape)
            file.write(data.data)
        file.flush()
        os.fsync(file.fileno())
    return stored


def graph_tensors(
    weights: Weights, architecture: BertArchitecture, kind: Kind
) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Give every tensor that the graphs read, named and laid out as they read it."""
    for table in ("word", "position", "token_type"):
        yield f"embeddings.{table}", weights[f"embeddings.{table}_embeddings.weight"]
    yield from _layer_norm(weights, "embeddings.LayerNorm", "embeddings.norm")
    for layer in range(architecture.layers):
        source, name = f"encoder.layer.{layer}", f"layer.{layer}"
        yield from _attention(
            weights,
            f"{source}.attention.self",
            name,
            split=kind == "cross_encoder" and layer == architecture.layers - 1,
        )
        yield from _dense(weights, f"{source}.attention.output.dense", f"{name}.attended")
        yield from _layer_norm(weights, f"{source}.attention.output.LayerNorm", f"{name}.attended.norm")
        yield from _dense(weights, f"{source}.intermediate.dense", f"{name}.inner")
        yield from _dense(weights, f"{source}.output.dense", f"{name}.outer")
        yield from _layer_norm(weights, f"{source}.output.LayerNorm", f"{name}.outer.norm")
    if kind == "cross_encoder":
        yield from _dense(weights, "pooler.dense", "pooler")
        yield from _dense(weights, "classifier", "classifier")


def _attention(weights: Weights, source: str, name: str, *, split: bool) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Merge query, key and value, or, where only one token asks, key and value."""
    if split:
        yield from _dense(weights, f"{source}.query", f"{name}.query")
    roles = ("key", "value") if split else ("query", "key", "value")
    merged = f"{name}.key_value" if split else f"{name}.query_key_value"
    yield f"{merged}.weight", np.concatenate([weights[f"{source}.{role}.weight"].T for role in roles], axis=1)
    yield f"{merged}.bias", np.concatenate([weights[f"{source}.{role}.bias"] for role in roles])


def _dense(weights: Weights, source: str, name: str) -> Iterator[tuple[str, NDArray[np.float32]]]:
    yield f"{name}.weight", weights[f"{source}.weight"].T
    yield f"{name}.bias", weights[f"{source}.bias"]


def _layer_norm(weights: Weights, source: str, name: str) -> Iterator[tuple[str, NDArray[np.float32]]]:
    yield f"{name}.weight", weights[f"{source}.weight"]
    yield f"{name}.bias", weights[f"{source}.bias"]
