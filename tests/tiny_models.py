"""Models of two layers in Hugging Face's layout, for tests that need some model and no meaning.

    write_tiny_encoder(tmp_path / "tiny")            # a sentence-transformers encoder, random weights
    write_tiny_cross_encoder(tmp_path / "tiny-ce")   # a BertForSequenceClassification with one label

Their weights are random but large, so that every token moves the result. The tokenizer is a real WordPiece one.
"""

import json
import string
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

HIDDEN = 32
LAYERS = 2
HEADS = 4
INTERMEDIATE = 64
POSITIONS = 128

Tensors = dict[str, NDArray[np.float32]]

WORDS = (
    "the a an of to in is are was port key query passage document answer question server system user password reset "
    "rotate access account cake recipe lemon hello world text long short red green blue cat dog fox jumps over lazy "
    "filler pad which what how why where unrelated"
)


def tiny_vocabulary() -> list[str]:
    """Give some 200 word pieces: special ones, letters, digits, signs, a few words and characters of other scripts."""
    alone = [*string.ascii_lowercase, *string.digits, *".,:;!?-_()'\"/", *"的日本東京é"]
    pieces = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *alone,
        *(f"##{letter}" for letter in alone),
        *WORDS.split(),
    ]
    return list(dict.fromkeys(pieces))


def tiny_tokenizer() -> Tokenizer:
    """Make a WordPiece tokenizer that works as BERT's does."""
    vocabulary = {piece: index for index, piece in enumerate(tiny_vocabulary())}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True, strip_accents=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])],
    )
    tokenizer.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    # As published tokenizers do, it carries the settings of its training, which a reader has to undo.
    tokenizer.enable_truncation(max_length=16)
    tokenizer.enable_padding(length=16, pad_id=0, pad_token="[PAD]")
    return tokenizer


def tiny_config(**changes: Any) -> dict[str, Any]:
    """Give a BERT's config.json."""
    config = {
        "architectures": ["BertModel"],
        "model_type": "bert",
        "vocab_size": len(tiny_vocabulary()),
        "hidden_size": HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "intermediate_size": INTERMEDIATE,
        "max_position_embeddings": POSITIONS,
        "type_vocab_size": 2,
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-12,
        "position_embedding_type": "absolute",
        "pad_token_id": 0,
    }
    return {name: value for name, value in (config | changes).items() if value is not None}


def tiny_tensors(*, seed: int = 0, classifier: bool = False) -> Tensors:
    """Give random weights by Hugging Face's names, without the "bert." before them."""
    random = np.random.default_rng(seed)

    def normal(*shape: int, scale: float = 0.3) -> NDArray[np.float32]:
        return random.normal(0.0, scale, shape).astype(np.float32)

    tensors: Tensors = {}

    def dense(name: str, out: int, into: int) -> None:
        tensors[f"{name}.weight"] = normal(out, into)
        tensors[f"{name}.bias"] = normal(out, scale=0.1)

    def layer_norm(name: str) -> None:
        tensors[f"{name}.weight"] = 1 + normal(HIDDEN, scale=0.1)
        tensors[f"{name}.bias"] = normal(HIDDEN, scale=0.1)

    tensors["embeddings.word_embeddings.weight"] = normal(len(tiny_vocabulary()), HIDDEN, scale=1.0)
    tensors["embeddings.position_embeddings.weight"] = normal(POSITIONS, HIDDEN)
    tensors["embeddings.token_type_embeddings.weight"] = normal(2, HIDDEN)
    layer_norm("embeddings.LayerNorm")
    for layer in range(LAYERS):
        name = f"encoder.layer.{layer}"
        for role in ("query", "key", "value"):
            dense(f"{name}.attention.self.{role}", HIDDEN, HIDDEN)
        dense(f"{name}.attention.output.dense", HIDDEN, HIDDEN)
        layer_norm(f"{name}.attention.output.LayerNorm")
        dense(f"{name}.intermediate.dense", INTERMEDIATE, HIDDEN)
        dense(f"{name}.output.dense", HIDDEN, INTERMEDIATE)
        layer_norm(f"{name}.output.LayerNorm")
    dense("pooler.dense", HIDDEN, HIDDEN)
    if classifier:
        dense("classifier", 1, HIDDEN)
    return tensors


def write_tiny_encoder(
    folder: Path,
    *,
    seed: int = 0,
    pooling: str = "mean",
    normalized: bool = True,
    max_tokens: int = 64,
    config: Mapping[str, Any] | None = None,
    tensors: Tensors | None = None,
    sentence_transformers: bool = True,
) -> Path:
    """Write an encoder into `folder` and give the folder.

    With `sentence_transformers`, modules.json and the files that it names say how it pools, whether it normalises and
    how many tokens it reads; without, nothing does.
    """
    _write(folder, tiny_config(**(config or {})), tensors or tiny_tensors(seed=seed))
    if sentence_transformers:
        modules = ["Transformer", "Pooling", *(["Normalize"] if normalized else [])]
        paths = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize"}
        listed = [
            {"idx": i, "path": paths[m], "type": f"sentence_transformers.models.{m}"} for i, m in enumerate(modules)
        ]
        _json(folder / "modules.json", listed)
        modes = {
            f"pooling_mode_{mode}": mode.startswith(pooling) for mode in ("cls_token", "mean_tokens", "max_tokens")
        }
        _json(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": HIDDEN, **modes})
        _json(folder / "sentence_bert_config.json", {"max_seq_length": max_tokens, "do_lower_case": False})
    return folder


def write_tiny_cross_encoder(
    folder: Path, *, seed: int = 0, config: Mapping[str, Any] | None = None, tensors: Tensors | None = None
) -> Path:
    """Write a cross-encoder of one label into `folder` and give the folder. It reads 128 tokens."""
    changes = {"architectures": ["BertForSequenceClassification"], "id2label": {"0": "LABEL_0"}, **(config or {})}
    named = tensors or tiny_tensors(seed=seed, classifier=True)
    prefixed = {name if name.startswith("classifier") else f"bert.{name}": tensor for name, tensor in named.items()}
    _write(folder, tiny_config(**changes), prefixed)
    return folder


def _write(folder: Path, config: Mapping[str, Any], tensors: Tensors) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    _json(folder / "config.json", config)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    tiny_tokenizer().save(str(folder / "tokenizer.json"))


def _json(path: Path, data: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data, indent=2), encoding="utf-8")
