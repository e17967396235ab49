"""One SHA-256 for everything that a vector depends on."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kbmesh_onnx.architecture import BertArchitecture
from kbmesh_onnx.layout import SourceModel


def bert_fingerprint(
    source: SourceModel, architecture: BertArchitecture, tensors: Iterable[tuple[str, NDArray[np.float32]]]
) -> str:
    """Give the fingerprint of a BERT, in hexadecimal.

    It covers weights (as float32, in the order given), architecture, tokenizer.json, pooling, normalisation, prefixes
    and limit. It does not depend on the form, the machine, the time or the name of the export, nor on how the source's
    files are cut.
    """
    digest = _settings_digest(source, asdict(architecture))
    for name, tensor in tensors:
        digest.update(f"{name} {tensor.shape}\n".encode())
        digest.update(np.ascontiguousarray(tensor, dtype="<f4").data)
    return digest.hexdigest()


def files_fingerprint(source: SourceModel, files: Iterable[Path]) -> str:
    """Give the fingerprint of any other architecture, whose weights are taken as files."""
    digest = _settings_digest(source, dict(source.config))
    for path in files:
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def _settings_digest(source: SourceModel, architecture: dict[str, object]) -> "hashlib._Hash":
    settings = {
        "kind": source.kind,
        "architecture": architecture,
        "tokenizer": hashlib.sha256(source.tokenizer.read_bytes()).hexdigest(),
        "pooling": source.pooling,
        "normalized": source.normalized,
        "max_tokens": source.max_tokens,
        "query_prefix": source.query_prefix,
        "document_prefix": source.document_prefix,
    }
    return hashlib.sha256(json.dumps(settings, sort_keys=True, ensure_ascii=False).encode())
