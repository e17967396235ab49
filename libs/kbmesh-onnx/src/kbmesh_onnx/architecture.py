"""What a BERT is made of, read from the source's config.json."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbmesh_onnx.errors import ExportError
from kbmesh_onnx.folder import Kind

ENCODERS = ("BertModel", "BertForMaskedLM", "BertForPreTraining")
CROSS_ENCODERS = ("BertForSequenceClassification",)


@dataclass(frozen=True, kw_only=True)
class BertArchitecture:
    """The sizes and constants of a BERT encoder."""

    vocabulary_size: int
    hidden_size: int
    layers: int
    heads: int
    intermediate_size: int
    max_positions: int
    segments: int
    epsilon: float
    """Added to the variance by layer normalisation."""

    @property
    def head_size(self) -> int:
        return self.hidden_size // self.heads

    def tensor_shapes(self, kind: Kind) -> dict[str, tuple[int, ...]]:
        """Give the name and shape of every weight that a forward pass reads, as Hugging Face names them."""
        hidden, inner = self.hidden_size, self.intermediate_size
        shapes: dict[str, tuple[int, ...]] = {
            "embeddings.word_embeddings.weight": (self.vocabulary_size, hidden),
            "embeddings.position_embeddings.weight": (self.max_positions, hidden),
            "embeddings.token_type_embeddings.weight": (self.segments, hidden),
            "embeddings.LayerNorm.weight": (hidden,),
            "embeddings.LayerNorm.bias": (hidden,),
        }
        for layer in range(self.layers):
            prefix = f"encoder.layer.{layer}"
            for name, (out, into) in {
                "attention.self.query": (hidden, hidden),
                "attention.self.key": (hidden, hidden),
                "attention.self.value": (hidden, hidden),
                "attention.output.dense": (hidden, hidden),
                "intermediate.dense": (inner, hidden),
                "output.dense": (hidden, inner),
            }.items():
                shapes[f"{prefix}.{name}.weight"] = (out, into)
                shapes[f"{prefix}.{name}.bias"] = (out,)
            for name in ("attention.output.LayerNorm", "output.LayerNorm"):
                shapes[f"{prefix}.{name}.weight"] = (hidden,)
                shapes[f"{prefix}.{name}.bias"] = (hidden,)
        if kind == "cross_encoder":
            shapes |= {
                "pooler.dense.weight": (hidden, hidden),
                "pooler.dense.bias": (hidden,),
                "classifier.weight": (1, hidden),
                "classifier.bias": (1,),
            }
        return shapes


def read_config(folder: Path) -> dict[str, Any]:
    """Read config.json of a source. Raises ExportError."""
    path = folder / "config.json"
    if not path.is_file():
        raise ExportError(f"{folder} has no config.json; a model in Hugging Face's layout is needed")
    return read_json_object(path)


def read_json_object(path: Path) -> dict[str, Any]:
    """Read a JSON object of a source. Raises ExportError."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ExportError(f"{path} cannot be read: {error}") from error
    if not isinstance(data, dict):
        raise ExportError(f"{path} is not a JSON object")
    return data


def is_bert(config: Mapping[str, Any]) -> bool:
    """Tell whether kbmesh writes this architecture itself, without PyTorch."""
    return config.get("model_type") == "bert"


def model_kind(config: Mapping[str, Any]) -> Kind:
    """Tell an encoder from a cross-encoder by the class that the weights were saved from. Raises ExportError."""
    architectures = config.get("architectures") or []
    if any(str(name).endswith("ForSequenceClassification") for name in architectures):
        labels = len(config["id2label"]) if "id2label" in config else config.get("num_labels", 2)
        if labels != 1:
            raise ExportError(f"the classifier has {labels} labels; a cross-encoder of one label is needed")
        return "cross_encoder"
    return "encoder"


def read_architecture(config: Mapping[str, Any]) -> BertArchitecture:
    """Read the architecture of a BERT. Raises ExportError for whatever the graphs here do not compute."""
    if not is_bert(config):
        raise ExportError(f"model_type is {config.get('model_type')!r}; without PyTorch only bert can be exported")
    for name in config.get("architectures") or []:
        if name not in ENCODERS + CROSS_ENCODERS:
            raise ExportError(f"architecture {name} is not known; known are {', '.join(ENCODERS + CROSS_ENCODERS)}")
    positions = config.get("position_embedding_type", "absolute")
    if positions != "absolute":
        raise ExportError(f"position_embedding_type is {positions!r}; only absolute positions are supported")
    activation = config.get("hidden_act", "gelu")
    if activation != "gelu":
        raise ExportError(f"hidden_act is {activation!r}; only gelu is supported")
    if config.get("is_decoder") or config.get("add_cross_attention"):
        raise ExportError("the model is a decoder; only encoders are supported")
    architecture = BertArchitecture(
        vocabulary_size=_size(config, "vocab_size"),
        hidden_size=_size(config, "hidden_size"),
        layers=_size(config, "num_hidden_layers"),
        heads=_size(config, "num_attention_heads"),
        intermediate_size=_size(config, "intermediate_size"),
        max_positions=_size(config, "max_position_embeddings"),
        segments=_size(config, "type_vocab_size"),
        epsilon=float(config.get("layer_norm_eps", 1e-12)),
    )
    if architecture.hidden_size % architecture.heads:
        raise ExportError(f"hidden_size {architecture.hidden_size} does not divide by {architecture.heads} heads")
    return architecture


def _size(config: Mapping[str, Any], name: str) -> int:
    value = config.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise ExportError(f"config.json: {name} is {value!r}, not a positive number")
    return value
