"""The forward pass of BERT in NumPy: what every exported graph is held against.

Written from the papers, not from the graphs, without padding, so that a mistake in a graph's
masks, pooling or fusion cannot be repeated here. BERT: Devlin et al. 2019, arXiv:1810.04805; attention: Vaswani et al.
2017, arXiv:1706.03762; GELU: Hendrycks and Gimpel 2016, arXiv:1606.08415; mean pooling: Reimers and Gurevych 2019,
arXiv:1908.10084.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from kbmesh_onnx.architecture import BertArchitecture
from kbmesh_onnx.folder import Pooling

Floats = NDArray[np.float32]


class Tensors(Protocol):
    """Weights by Hugging Face's names, each float32 in Hugging Face's shape."""

    def __getitem__(self, name: str, /) -> Floats: ...


@dataclass(frozen=True)
class BertReference:
    """A BERT in NumPy. Texts stand one after another, not padded, and every weight is read once for all of them."""

    architecture: BertArchitecture
    tensors: Tensors

    def hidden_states(self, ids: Sequence[NDArray[np.int64]], type_ids: Sequence[NDArray[np.int64]]) -> list[Floats]:
        """Give the last hidden state of each text, (tokens,) ids to (tokens, hidden size) float32."""
        ends = np.cumsum([len(text) for text in ids])
        embedded = (
            self.tensors["embeddings.word_embeddings.weight"][np.concatenate(ids)]
            + self.tensors["embeddings.position_embeddings.weight"][
                np.concatenate([np.arange(len(text)) for text in ids])
            ]
            + self.tensors["embeddings.token_type_embeddings.weight"][np.concatenate(type_ids)]
        )
        hidden = self._normalize(embedded, "embeddings.LayerNorm")
        for layer in range(self.architecture.layers):
            hidden = self._layer(hidden, ends, f"encoder.layer.{layer}")
        return np.split(hidden, ends[:-1])

    def embedding(self, hidden: Floats, pooling: Pooling, normalized: bool) -> Floats:
        """Pool (tokens, hidden size) into one vector, (hidden size,) float32."""
        pooled = hidden[0] if pooling == "cls" else hidden.mean(axis=0, dtype=np.float64)
        if normalized:
            pooled = pooled / max(float(np.linalg.norm(pooled)), 1e-12)
        return np.asarray(pooled, dtype=np.float32)

    def logits(self, hidden: Sequence[Floats]) -> list[Floats]:
        """Give the raw output of BertForSequenceClassification with one label: (1,) float32 for each text."""
        pooled = np.tanh(self._linear(np.stack([text[0] for text in hidden]), "pooler.dense"))
        return list(self._linear(pooled, "classifier"))

    def _layer(self, hidden: Floats, ends: NDArray[np.int64], name: str) -> Floats:
        query, key, value = (
            np.split(self._linear(hidden, f"{name}.attention.self.{role}"), ends[:-1])
            for role in ("query", "key", "value")
        )
        attended = np.concatenate([self._attention(*text) for text in zip(query, key, value, strict=True)])
        attended = self._linear(attended, f"{name}.attention.output.dense")
        hidden = self._normalize(attended + hidden, f"{name}.attention.output.LayerNorm")
        inner = _gelu(self._linear(hidden, f"{name}.intermediate.dense"))
        return self._normalize(self._linear(inner, f"{name}.output.dense") + hidden, f"{name}.output.LayerNorm")

    def _attention(self, query: Floats, key: Floats, value: Floats) -> Floats:
        """Let the tokens of one text attend to each other; three (tokens, hidden size) to one."""
        tokens, heads, size = len(query), self.architecture.heads, self.architecture.head_size
        query, key, value = (each.reshape(tokens, heads, size).transpose(1, 0, 2) for each in (query, key, value))
        scores = query @ key.transpose(0, 2, 1) / np.float32(math.sqrt(size))
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        attended: Floats = (weights @ value).transpose(1, 0, 2).reshape(tokens, heads * size)
        return attended

    def _linear(self, inputs: Floats, name: str) -> Floats:
        return inputs @ self.tensors[f"{name}.weight"].T + self.tensors[f"{name}.bias"]

    def _normalize(self, inputs: Floats, name: str) -> Floats:
        exact = inputs.astype(np.float64)
        centred = exact - exact.mean(axis=-1, keepdims=True)
        deviation = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + self.architecture.epsilon)
        scaled: Floats = (centred / deviation).astype(np.float32)
        return scaled * self.tensors[f"{name}.weight"] + self.tensors[f"{name}.bias"]


# NumPy has no error function. Between these points it is a straight line to 2e-8, finer than float32; beyond 6 it is 1.
_ERF_POINTS = np.linspace(0.0, 6.0, 16_385)
_ERF_VALUES = np.array([math.erf(point) for point in _ERF_POINTS])


def _gelu(inputs: Floats) -> Floats:
    erf = np.sign(inputs) * np.interp(np.abs(inputs) / math.sqrt(2.0), _ERF_POINTS, _ERF_VALUES)
    return np.asarray(inputs * 0.5 * (1.0 + erf), dtype=np.float32)
