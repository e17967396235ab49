"""A model that computes something else than it did when it was exported does not start."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from kbmesh_onnx.errors import ModelFolderError
from kbmesh_onnx.export import export_model
from kbmesh_onnx.folder import CARD_FILE, load_card, write_card
from kbmesh_onnx.golden import check_golden
from kbmesh_onnx.layout import ModelSettings
from kbmesh_onnx.session import ModelSession
from kbmesh_onnx.tokenizer import ModelTokenizer
from opened_model import OpenedModel
from tiny_models import write_tiny_cross_encoder, write_tiny_encoder


def check(folder: Path) -> None:
    card = load_card(folder)
    session = ModelSession.open(folder, card)
    try:
        check_golden(session, ModelTokenizer.load(folder, card), card)
    finally:
        session.close()


def with_files_of(other: Path, folder: Path, into: Path) -> Path:
    """A model's card with another's graphs and weights."""
    shutil.copytree(other, into)
    sizes = {path.name: path.stat().st_size for path in into.iterdir() if path.name != CARD_FILE}
    write_card(into, replace(load_card(folder), file_sizes=sizes))
    return into


@pytest.mark.parametrize("model", ["tiny", "tiny_cross_encoder", "minilm"])
def test_a_model_gives_what_it_gave_when_it_was_exported(model: str, request: pytest.FixtureRequest) -> None:
    opened: OpenedModel = request.getfixturevalue(model)
    assert opened.card.golden is not None
    check(opened.folder)


def test_another_pooling_is_found_though_its_vectors_have_unit_length(tmp_path: Path) -> None:
    """EMB-08: the service would be healthy and its ranking bad."""
    source = write_tiny_encoder(tmp_path / "source")
    export_model(source, tmp_path / "mean")
    export_model(source, tmp_path / "cls", settings=ModelSettings(pooling="cls"))
    swapped = with_files_of(tmp_path / "cls", tmp_path / "mean", tmp_path / "swapped")
    with pytest.raises(ModelFolderError, match="pooling"):
        check(swapped)


def test_other_weights_of_a_cross_encoder_are_found(tmp_path: Path) -> None:
    export_model(write_tiny_cross_encoder(tmp_path / "source"), tmp_path / "one")
    folder = tmp_path / "one"
    card = load_card(folder)
    assert card.golden is not None
    shifted = replace(card.golden, outputs=tuple((logit + 1,) for (logit,) in card.golden.outputs))
    write_card(folder, replace(card, golden=shifted))
    with pytest.raises(ModelFolderError, match="logits"):
        check(folder)


def test_a_folder_of_before_is_taken_as_it_is(tiny: OpenedModel, tmp_path: Path) -> None:
    folder = tmp_path / "old"
    shutil.copytree(tiny.folder, folder)
    write_card(folder, replace(tiny.card, golden=None))
    assert load_card(folder).golden is None
    check(folder)


def test_golden_texts_without_an_output_for_each_are_refused(tiny: OpenedModel, tmp_path: Path) -> None:
    folder = tmp_path / "broken"
    shutil.copytree(tiny.folder, folder)
    assert tiny.card.golden is not None
    write_card(folder, replace(tiny.card, golden=replace(tiny.card.golden, outputs=())))
    with pytest.raises(ModelFolderError, match="golden"):
        load_card(folder)
