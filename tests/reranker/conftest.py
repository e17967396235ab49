"""Model folders for the reranker."""

from pathlib import Path

import pytest
import tiny_models
from kbmesh_onnx.export import export_model
from kbmesh_onnx.pull import pull_model

MINILM = "all-MiniLM-L6-v2"


@pytest.fixture(scope="session")
def models_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds all-MiniLM-L6-v2 and `tiny-ce`, a cross-encoder of 128 tokens with random weights."""
    folder = tmp_path_factory.mktemp("models")
    pull_model(MINILM, folder)
    source = tiny_models.write_tiny_cross_encoder(tmp_path_factory.mktemp("source") / "tiny-ce")
    export_model(source, folder / "tiny-ce")
    return folder
