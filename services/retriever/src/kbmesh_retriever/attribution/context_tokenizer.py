"""Tokenizers of the models that context blocks are for, from their tokenizer.json files."""

import asyncio
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from kbmesh_rpc.errors import DependencyInvalidResponse, FeatureUnsupported, shown


class ContextTokenizers:
    """Counts tokens as named models do, without the special tokens that a model puts around a prompt."""

    def __init__(self, tokenizers: Mapping[str, Any]) -> None:
        """`tokenizers.Tokenizer` by name."""
        self._tokenizers = tokenizers

    @classmethod
    def load(cls, setting: str) -> "ContextTokenizers":
        """Those of NAME=PATH,NAME=PATH; none for an empty setting. Raises ValueError for a setting that is wrong or a
        file that is no tokenizer, and FeatureUnsupported where the library is not installed."""
        paths = _paths(setting)
        if not paths:
            return cls({})
        try:
            library = import_module("tokenizers")
        except ImportError as error:
            raise FeatureUnsupported("context_tokenizers: install kbmesh-retriever[tokenizers]") from error
        return cls({name: _open(library, name, path) for name, path in paths.items()})

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._tokenizers)

    async def count(self, texts: Sequence[str], *, name: str) -> Sequence[int]:
        """Tokens of each text. Raises FeatureUnsupported for a name that is none of `names`, and
        DependencyInvalidResponse where the tokenizer fails."""
        tokenizer = self._tokenizers.get(name)
        if tokenizer is None:
            raise FeatureUnsupported(f"the tokenizer {shown(name)}")
        try:
            return await asyncio.to_thread(_count, tokenizer, texts)
        except Exception as error:  # the library raises a bare Exception
            raise DependencyInvalidResponse(
                "tokenizer", f"the tokenizer {shown(name)} failed: {type(error).__name__}"
            ) from error


def _paths(setting: str) -> dict[str, Path]:
    paths: dict[str, Path] = {}
    for entry in filter(None, map(str.strip, setting.split(","))):
        name, sign, path = (part.strip() for part in entry.partition("="))
        if not (name and sign and path):
            raise ValueError(f"context_tokenizers: {entry!r} is not NAME=PATH")
        if name in paths:
            raise ValueError(f"context_tokenizers: {name!r} is named twice")
        paths[name] = Path(path).expanduser()
    return paths


def _open(library: Any, name: str, path: Path) -> Any:
    try:
        tokenizer = library.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises a bare Exception
        raise ValueError(f"context_tokenizers: {name} cannot be read from {path}: {error}") from error
    # A file may say that texts are cut or filled up: then every long text would count the same.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _count(tokenizer: Any, texts: Sequence[str]) -> list[int]:
    encodings = tokenizer.encode_batch(list(texts), add_special_tokens=False)
    return [len(encoding.ids) for encoding in encodings]
