"""Models that the tests here share: the real one, pulled once, and tiny ones."""

from collections.abc import Iterator

import pytest
import tiny_models
from kbmesh_onnx.export import export_model
from kbmesh_onnx.pull import pull_model
from opened_model import OpenedModel


@pytest.fixture(scope="session")
def minilm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenedModel]:
    """all-MiniLM-L6-v2, from the installed package."""
    models = tmp_path_factory.mktemp("models")
    card = pull_model("sentence-transformers/all-MiniLM-L6-v2", models)
    model = OpenedModel.open(models / card.name, card)
    yield model
    model.close()


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenedModel]:
    """A tiny encoder of 64 tokens."""
    place = tmp_path_factory.mktemp("tiny")
    card = export_model(tiny_models.write_tiny_encoder(place / "source"), place / "tiny")
    model = OpenedModel.open(place / "tiny", card)
    yield model
    model.close()


@pytest.fixture(scope="session")
def tiny_cross_encoder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenedModel]:
    """A tiny cross-encoder of 128 tokens."""
    place = tmp_path_factory.mktemp("tiny-ce")
    card = export_model(tiny_models.write_tiny_cross_encoder(place / "source"), place / "tiny-ce")
    model = OpenedModel.open(place / "tiny-ce", card)
    yield model
    model.close()
