"""fp16 files: proven when they are written, taken on CUDA where they are, and never in silence elsewhere."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tiny_models
from kbmesh_onnx import half, session
from kbmesh_onnx.device_settings import DeviceSettings
from kbmesh_onnx.errors import ExportError, ModelFolderError
from kbmesh_onnx.export import export_model
from kbmesh_onnx.folder import load_card
from kbmesh_onnx.half import HALF_WEIGHTS_FILE, write_half
from kbmesh_onnx.session import HALF_FILES, ModelSession
from opened_model import OpenedModel

HALF = DeviceSettings(precision="fp16")


@pytest.fixture(scope="module")
def halved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("half")
    export_model(tiny_models.write_tiny_encoder(place / "source"), place / "tiny")
    write_half(place / "tiny")
    return place / "tiny"


def batch() -> tuple[Any, Any, Any]:
    ids = np.random.default_rng(0).integers(5, 100, size=(4, 20), dtype=np.int64)
    mask = np.ones_like(ids)
    mask[1:, 12:] = 0
    return ids, mask, np.zeros_like(ids)


@pytest.mark.parametrize("form", ["plain", "fused"])
def test_an_encoder_in_half_precision_is_near_and_takes_less_room(halved: Path, form: Any) -> None:
    card = load_card(halved)
    single = ModelSession.open(halved, card, form=form)
    small = ModelSession.open(halved, card, form=form, settings=HALF)
    assert (single.precision, small.precision) == ("fp32", "fp16")
    for name in ("embeddings", "token_embeddings"):
        (found,) = small.run(*batch(), outputs=(name,))
        (expected,) = single.run(*batch(), outputs=(name,))
        assert found.dtype == np.float32
        assert 0 < np.abs(found - expected).max() < 1e-2
    assert np.allclose(np.linalg.norm(small.run(*batch(), outputs=("embeddings",))[0], axis=1), 1, atol=1e-5)
    assert (halved / HALF_WEIGHTS_FILE).stat().st_size < (halved / "model.onnx.data").stat().st_size
    single.close()
    small.close()


@pytest.mark.parametrize("form", ["plain", "fused"])
def test_a_row_of_padding_stays_a_number(halved: Path, form: Any) -> None:
    """The constants that keep it one do not exist in half precision."""
    small = ModelSession.open(halved, load_card(halved), form=form, settings=HALF)
    ids, mask, types = batch()
    mask[3] = 0
    (vectors,) = small.run(ids, mask, types, outputs=("embeddings",))
    assert np.isfinite(vectors).all()
    small.close()


def test_a_cross_encoder(tmp_path: Path) -> None:
    export_model(tiny_models.write_tiny_cross_encoder(tmp_path / "source"), tmp_path / "tiny")
    card = write_half(tmp_path / "tiny")
    single, small = (
        ModelSession.open(tmp_path / "tiny", card, settings=each) for each in (DeviceSettings(precision="fp32"), HALF)
    )
    (found,), (expected,) = (each.run(*batch(), outputs=("logits",)) for each in (small, single))
    assert found.dtype == np.float32
    assert np.abs(found - expected).max() < 5e-2
    onnx.checker.check_model(tmp_path / "tiny" / HALF_FILES["plain"], full_check=True)


def test_the_fp16_file_is_taken_on_cuda_and_the_fp32_one_on_the_cpu(halved: Path) -> None:
    card = load_card(halved)
    choose = session._cuda_precision
    assert choose(card, "fused", DeviceSettings()) == "fp16"
    assert choose(card, "fused", DeviceSettings(precision="fp32")) == "fp32"
    assert choose(card, "plain", DeviceSettings(tensorrt=True)) == "fp32"
    assert choose(card, "plain", DeviceSettings(tensorrt=True, precision="fp16")) == "fp16"
    assert choose(replace(card, file_sizes={}), "fused", DeviceSettings()) == "fp32"
    assert ModelSession.open(halved, card).precision == "fp32"


def test_fp16_that_is_asked_for_and_not_there_is_an_error(tiny: OpenedModel) -> None:
    with pytest.raises(ModelFolderError, match="fp16"):
        ModelSession.open(tiny.folder, tiny.card, settings=HALF)


def test_written_twice_it_is_the_same(halved: Path, tmp_path: Path) -> None:
    folder = tmp_path / "tiny"
    shutil.copytree(halved, folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    write_half(folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_what_differs_is_not_kept(halved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "tiny"
    shutil.copytree(halved, folder)
    monkeypatch.setattr(half, "TOLERANCES", {"encoder": 1e-9})
    with pytest.raises(ExportError):
        write_half(folder)
    card = load_card(folder)
    assert HALF_FILES["plain"] not in card.file_sizes
    assert not (folder / HALF_WEIGHTS_FILE).exists()
    ModelSession.open(folder, card).close()


def test_a_graph_that_is_not_ours_is_left_alone(halved: Path, tmp_path: Path) -> None:
    folder = tmp_path / "tiny"
    shutil.copytree(halved, folder)
    card = load_card(folder)
    graph = onnx.load(folder / "model.onnx", load_external_data=False)
    for node in graph.graph.node:
        if node.name == "token_embeddings":
            node.op_type = "Relu"
    (folder / "model.onnx").write_bytes(graph.SerializeToString())
    half.write_card(
        folder,
        replace(card, file_sizes={**card.file_sizes, "model.onnx": (folder / "model.onnx").stat().st_size}),
    )
    with pytest.raises(ExportError):
        write_half(folder)
