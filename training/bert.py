"""A BERT cross-encoder in PyTorch, whose weights have Hugging Face's names."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

HEAD_SCALE = 0.02
"""Deviation of the new head's weights: small, so that the first opinion of all pairs is none."""


class CrossEncoder(nn.Module):
    """Logits, (n,), of n pairs. The embeddings and the first layers stay as they are (`frozen_layers`)."""

    def __init__(self, config: Mapping[str, Any], *, frozen_layers: int) -> None:
        super().__init__()
        hidden = int(config["hidden_size"])
        self.config = dict(config)
        self.bert = nn.Module()
        self.bert.embeddings = _Embeddings(config)
        self.bert.encoder = nn.Module()
        self.bert.encoder.layer = nn.ModuleList(_Layer(config) for _ in range(config["num_hidden_layers"]))
        self.bert.pooler = nn.Module()
        self.bert.pooler.dense = nn.Linear(hidden, hidden)
        self.classifier = nn.Linear(hidden, 1)
        # The last layer always learns: the new head reads its first token.
        self.frozen_layers = min(frozen_layers, int(config["num_hidden_layers"]) - 1)
        for module in (self.bert.embeddings, *self.bert.encoder.layer[: self.frozen_layers]):
            module.requires_grad_(False)

    @classmethod
    def from_encoder(cls, folder: Path, *, frozen_layers: int, seed: int) -> "CrossEncoder":
        """The encoder's weights under a new head."""
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        model = cls(config, frozen_layers=frozen_layers)
        stored = {f"bert.{name}": tensor for name, tensor in load_file(folder / "model.safetensors").items()}
        stored.pop("bert.embeddings.position_ids", None)
        torch.manual_seed(seed)
        # The encoder was not trained to use its pooler. A unit matrix lets the first token through.
        nn.init.eye_(model.bert.pooler.dense.weight)
        nn.init.zeros_(model.bert.pooler.dense.bias)
        nn.init.normal_(model.classifier.weight, std=HEAD_SCALE)
        nn.init.zeros_(model.classifier.bias)
        fresh = {
            name: tensor for name, tensor in model.state_dict().items() if "pooler" in name or "classifier" in name
        }
        model.load_state_dict({name: value for name, value in stored.items() if "pooler" not in name} | fresh)
        return model

    def forward(self, ids: Tensor, mask: Tensor, types: Tensor) -> Tensor:
        """Each (n, t) int64."""
        with torch.no_grad():
            hidden = self.bert.embeddings(ids, types)
            attended = mask[:, None, None, :].bool()
            for layer in self.bert.encoder.layer[: self.frozen_layers]:
                hidden = layer(hidden, attended)
        for layer in self.bert.encoder.layer[self.frozen_layers : -1]:
            hidden = layer(hidden, attended)
        # Of the last layer only the first token is read.
        first = self.bert.encoder.layer[-1](hidden, attended, first=True)
        logits: Tensor = self.classifier(torch.tanh(self.bert.pooler.dense(first[:, 0])))[:, 0]
        return logits

    def save(
        self, folder: Path, tokenizer: Path, *, max_tokens: int, state: Mapping[str, Tensor] | None = None
    ) -> None:
        """In Hugging Face's layout, for `kbmesh models export`."""
        folder.mkdir(parents=True, exist_ok=True)
        config = self.config | {"architectures": ["BertForSequenceClassification"], "id2label": {"0": "LABEL_0"}}
        (folder / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
        (folder / "tokenizer.json").write_bytes(tokenizer.read_bytes())
        (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": max_tokens}), encoding="utf-8")
        tensors = {name: tensor.contiguous() for name, tensor in (state or self.state_dict()).items()}
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


class _Embeddings(nn.Module):
    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        hidden = int(config["hidden_size"])
        self.word_embeddings = nn.Embedding(config["vocab_size"], hidden)
        self.position_embeddings = nn.Embedding(config["max_position_embeddings"], hidden)
        self.token_type_embeddings = nn.Embedding(config["type_vocab_size"], hidden)
        self.LayerNorm = nn.LayerNorm(hidden, eps=config["layer_norm_eps"])

    def forward(self, ids: Tensor, types: Tensor) -> Tensor:
        positions = self.position_embeddings.weight[: ids.shape[1]]
        embedded: Tensor = self.LayerNorm(self.word_embeddings(ids) + positions + self.token_type_embeddings(types))
        return embedded


class _Layer(nn.Module):
    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        hidden, inner = int(config["hidden_size"]), int(config["intermediate_size"])
        self.heads = int(config["num_attention_heads"])
        self.attention = nn.Module()
        self.attention.self = nn.ModuleDict({role: nn.Linear(hidden, hidden) for role in ("query", "key", "value")})
        self.attention.output = _Output(hidden, hidden, config)
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(hidden, inner)})
        self.output = _Output(inner, hidden, config)

    def forward(self, hidden: Tensor, mask: Tensor, *, first: bool = False) -> Tensor:
        asking = hidden[:, :1] if first else hidden
        roles = self.attention.self
        query, key, value = (
            roles[role](states).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for role, states in (("query", asking), ("key", hidden), ("value", hidden))
        )
        attended = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        asking = self.attention.output(attended.transpose(1, 2).flatten(2), asking)
        inner = nn.functional.gelu(self.intermediate["dense"](asking))
        done: Tensor = self.output(inner, asking)
        return done


class _Output(nn.Module):
    def __init__(self, inputs: int, hidden: int, config: Mapping[str, Any]) -> None:
        super().__init__()
        self.dense = nn.Linear(inputs, hidden)
        self.LayerNorm = nn.LayerNorm(hidden, eps=config["layer_norm_eps"])

    def forward(self, inputs: Tensor, residual: Tensor) -> Tensor:
        normed: Tensor = self.LayerNorm(self.dense(inputs) + residual)
        return normed
