"""What the source says of itself beside its weights: pooling, normalisation, limit, prefixes.

sentence-transformers writes this down (modules.json and the folders it names). Where a source does not, the well-known
families are known by name; a pooling is never guessed, since a wrong one gives bad rankings without any error.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbmesh_onnx.architecture import model_kind, read_config, read_json_object
from kbmesh_onnx.errors import ExportError
from kbmesh_onnx.folder import TOKENIZER_FILE, Kind, Pooling

BGE_QUERY_PREFIX = "Represent this sentence for searching relevant passages: "


# These count positions from the one after the padding token's id, so that some are never used.
POSITIONS_AFTER_PADDING = ("camembert", "mpnet", "roberta", "xlm-roberta")


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """What a caller states of a model. None means: as the source says."""

    pooling: Pooling | None = None
    """How token vectors become one vector."""
    normalized: bool | None = None
    """Whether vectors get unit length."""
    max_tokens: int | None = None
    """Tokens to read at most, special ones included; no more than the model has positions."""
    query_prefix: str | None = None
    """Put before a query."""
    document_prefix: str | None = None
    """Put before a passage."""
    matryoshka_dimensions: tuple[int, ...] | None = None
    """Sizes to which vectors may be shortened: those that the model was trained for."""


@dataclass(frozen=True, kw_only=True)
class SourceModel:
    """A source in Hugging Face's layout, with every setting resolved."""

    folder: Path
    """Where config.json and the weights are."""
    tokenizer: Path
    """Its tokenizer.json."""
    config: Mapping[str, Any]
    kind: Kind
    pooling: Pooling
    normalized: bool
    max_tokens: int
    query_prefix: str
    document_prefix: str
    matryoshka_dimensions: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class _Family:
    name: re.Pattern[str]
    pooling: Pooling
    query_prefix: str = ""
    document_prefix: str = ""


FAMILIES = (
    _Family(
        name=re.compile(r"(^|[-/])e5-(small|base|large)(-v2|-unsupervised)?$"),
        pooling="mean",
        query_prefix="query: ",
        document_prefix="passage: ",
    ),
    _Family(name=re.compile(r"bge-(small|base|large)-en(-v1\.5)?$"), pooling="cls", query_prefix=BGE_QUERY_PREFIX),
    _Family(
        name=re.compile(r"bge-(small|base|large)-zh(-v1\.5)?$"),
        pooling="cls",
        query_prefix="为这个句子生成表示以用于检索相关文章：",
    ),
    _Family(name=re.compile(r"gte-(small|base|large)$"), pooling="mean"),
    _Family(name=re.compile(r"snowflake-arctic-embed-(xs|s|m|l)$"), pooling="cls", query_prefix=BGE_QUERY_PREFIX),
    _Family(name=re.compile(r"mxbai-embed-large-v1$"), pooling="cls", query_prefix=BGE_QUERY_PREFIX),
    _Family(name=re.compile(r"all-minilm-l(6|12)-v2$"), pooling="mean"),
)


def read_layout(source: Path, name: str, settings: ModelSettings) -> SourceModel:
    """Read a source folder. `name` is its hub id or folder name, by which a family is known.

    Raises ExportError where something needed is absent, contradictory or not supported.
    """
    if not source.is_dir():
        raise ExportError(f"{source} is not a folder")
    modules = _read_modules(source)
    folder = source / modules["Transformer"] if "Transformer" in modules else source
    tokenizer = next((path for path in (folder / TOKENIZER_FILE, source / TOKENIZER_FILE) if path.is_file()), None)
    if tokenizer is None:
        raise ExportError(f"{source} has no {TOKENIZER_FILE}; save the source's fast tokenizer into it")
    config = read_config(folder)
    kind = model_kind(config)
    family = next((family for family in FAMILIES if family.name.search(name.lower())), None)
    prompts = _read_prompts(source)
    pooling: Pooling
    if kind == "cross_encoder":
        pooling, normalized = "cls", False
    else:
        pooling = settings.pooling or _read_pooling(source, modules, family, name)
        normalized = "Normalize" in modules or not modules if settings.normalized is None else settings.normalized
    return SourceModel(
        folder=folder,
        tokenizer=tokenizer,
        config=config,
        kind=kind,
        pooling=pooling,
        normalized=normalized,
        max_tokens=_max_tokens(source, folder, config, settings),
        query_prefix=_first(settings.query_prefix, prompts.get("query"), family.query_prefix if family else None),
        document_prefix=_first(
            settings.document_prefix,
            prompts.get("document", prompts.get("passage")),
            family.document_prefix if family else None,
        ),
        matryoshka_dimensions=_matryoshka_dimensions(config, settings),
    )


def _read_modules(source: Path) -> dict[str, str]:
    """Give the sentence-transformers modules of a source, as {"Pooling": "1_Pooling"}; empty where there are none."""
    path = source / "modules.json"
    if not path.is_file():
        return {}
    modules = {str(module["type"]).rsplit(".", 1)[-1]: str(module.get("path", "")) for module in _read_list(path)}
    unknown = set(modules) - {"Transformer", "Pooling", "Normalize"}
    if unknown:
        raise ExportError(f"{path}: module {', '.join(sorted(unknown))} is not supported")
    return modules


def _read_list(path: Path) -> list[dict[str, Any]]:
    """Read a JSON list of objects. Raises ExportError."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ExportError(f"{path} cannot be read: {error}") from error
    if not isinstance(data, list) or not all(isinstance(item, dict) and "type" in item for item in data):
        raise ExportError(f"{path} is not a list of modules")
    return data


def _read_pooling(source: Path, modules: Mapping[str, str], family: _Family | None, name: str) -> Pooling:
    if "Pooling" in modules:
        path = source / modules["Pooling"] / "config.json"
        config = read_json_object(path)
        if config.get("include_prompt") is False:
            raise ExportError(f"{path}: pooling that leaves out the prompt is not supported")
        modes = [
            mode.removeprefix("pooling_mode_") for mode, on in config.items() if mode.startswith("pooling_mode_") and on
        ]
        if isinstance(config.get("pooling_mode"), str):
            modes = [config["pooling_mode"]]
        poolings: dict[str, Pooling] = {"mean_tokens": "mean", "cls_token": "cls", "mean": "mean", "cls": "cls"}
        if len(modes) != 1 or modes[0] not in poolings:
            raise ExportError(f"{path}: pooling {'+'.join(modes) or 'of no kind'} is not supported, only mean or cls")
        return poolings[modes[0]]
    if family is not None:
        return family.pooling
    raise ExportError(f"{name} does not say how it pools (no modules.json); state the pooling, mean or cls")


def _read_prompts(source: Path) -> dict[str, str]:
    path = source / "config_sentence_transformers.json"
    if not path.is_file():
        return {}
    prompts = read_json_object(path).get("prompts") or {}
    # Newer releases write empty prompts into every model; those say nothing.
    return {str(role): str(prompt) for role, prompt in prompts.items() if prompt}


def _max_tokens(source: Path, folder: Path, config: Mapping[str, Any], settings: ModelSettings) -> int:
    positions = int(config.get("max_position_embeddings") or 0)
    if config.get("model_type") in POSITIONS_AFTER_PADDING:
        positions -= int(config.get("pad_token_id") or 0) + 1
    if settings.max_tokens is not None:
        if not 8 <= settings.max_tokens <= positions:
            raise ExportError(f"max_tokens is {settings.max_tokens}; the model has {positions} positions")
        return settings.max_tokens
    stated = [positions] if positions else []
    for place in (source, folder):
        for file, key in (
            ("sentence_bert_config.json", "max_seq_length"),
            ("tokenizer_config.json", "model_max_length"),
        ):
            if (place / file).is_file():
                value = read_json_object(place / file).get(key)
                # Tokenizers without a limit say 1e30.
                if isinstance(value, int | float) and 0 < value < 1e9:
                    stated.append(int(value))
    if not stated:
        raise ExportError(f"{source} does not say how many tokens it reads; state max_tokens")
    return min(stated)


def _matryoshka_dimensions(config: Mapping[str, Any], settings: ModelSettings) -> tuple[int, ...]:
    sizes = settings.matryoshka_dimensions
    if sizes is None:
        sizes = tuple(config.get("matryoshka_dimensions") or ())
    hidden = int(config.get("hidden_size") or 0)
    for size in sizes:
        if not 0 < int(size) <= hidden:
            raise ExportError(f"Matryoshka size {size} is not from 1 to the dimension, {hidden}")
    return tuple(sorted({int(size) for size in sizes}, reverse=True))


def _first(*values: str | None) -> str:
    return next((value for value in values if value is not None), "")
