"""An int8 file: near fp32, proven, the same whatever stands beside a text, and known by its own fingerprint."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tiny_models
from kbmesh_onnx import int8
from kbmesh_onnx.device_settings import DeviceSettings
from kbmesh_onnx.errors import DeviceUnavailable, ExportError, ModelFolderError
from kbmesh_onnx.export import export_model
from kbmesh_onnx.folder import INT8_FILE, load_card
from kbmesh_onnx.graph_int8 import quantize_dense
from kbmesh_onnx.int8 import kendall_tau, write_int8
from kbmesh_onnx.padding import pad
from kbmesh_onnx.proof_passages import PASSAGES
from kbmesh_onnx.session import ModelSession
from kbmesh_onnx.tokenizer import ModelTokenizer
from opened_model import OpenedModel

INT8 = DeviceSettings(precision="int8")


@pytest.fixture(scope="module")
def small(minilm: OpenedModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """all-MiniLM-L6-v2 with an int8 file."""
    folder = tmp_path_factory.mktemp("int8") / minilm.card.name
    shutil.copytree(minilm.folder, folder)
    write_int8(folder)
    return folder


def test_its_vectors_are_near_those_of_fp32_and_the_card_says_how_near(small: Path, minilm: OpenedModel) -> None:
    card = load_card(small)
    assert card.int8 is not None
    assert card.int8.min_cosine is not None
    assert card.int8.min_cosine >= 0.998
    session = ModelSession.open(small, card, settings=INT8)
    assert (session.precision, session.device) == ("int8", "cpu")
    texts = minilm.tokenizer.encode(PASSAGES, max_tokens=256)
    (found,) = session.run(*pad(texts), outputs=("embeddings",))
    cosines = (found * minilm.run(texts, "embeddings")).sum(axis=1)
    assert cosines.min() == pytest.approx(card.int8.min_cosine, abs=1e-3)
    session.close()


def test_a_text_has_the_same_vector_alone_and_among_31_others(small: Path, minilm: OpenedModel) -> None:
    session = ModelSession.open(small, load_card(small), settings=INT8)
    words = " ".join(PASSAGES).split()
    others = [" ".join(words[number * 9 : number * 9 + 1 + number * 4]) for number in range(31)]
    for passage in PASSAGES[:4]:
        texts = minilm.tokenizer.encode([passage, *others], max_tokens=256)
        (alone,) = session.run(*pad(texts[:1]), outputs=("embeddings",))
        (among,) = session.run(*pad(texts), outputs=("embeddings",))
        assert alone[0] @ among[0] >= 0.999999
    session.close()


def test_it_has_a_fingerprint_of_its_own(small: Path, minilm: OpenedModel) -> None:
    card = load_card(small)
    assert card.fingerprint == minilm.card.fingerprint == card.fingerprint_in("fp32") == card.fingerprint_in("fp16")
    assert card.fingerprint_in("int8") != card.fingerprint
    again = write_int8(small)
    assert again == card


def test_a_cross_encoder_gives_nearly_the_same_logits(tmp_path: Path) -> None:
    folder = tmp_path / "tiny"
    export_model(tiny_models.write_tiny_cross_encoder(tmp_path / "source"), folder)
    proof = write_int8(folder).int8
    assert proof is not None
    assert proof.min_cosine is None
    assert proof.max_difference <= int8.MAX_LOGIT_DIFFERENCE
    assert proof.kendall_tau is not None
    assert proof.kendall_tau > 0.9


def test_what_cannot_be_proven_is_not_kept(tiny: OpenedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "tiny"
    shutil.copytree(tiny.folder, folder)
    monkeypatch.setattr(int8, "MIN_COSINE", 1.1)
    with pytest.raises(ExportError, match="cosine"):
        write_int8(folder)
    assert load_card(folder).int8 is None
    assert not (folder / INT8_FILE).exists()
    assert not list(folder.glob(".*probe*"))
    ModelSession.open(folder, load_card(folder)).close()


def test_int8_that_is_not_there_or_wanted_on_cuda_is_an_error(small: Path, tiny: OpenedModel) -> None:
    with pytest.raises(ModelFolderError, match="int8"):
        ModelSession.open(tiny.folder, tiny.card, settings=INT8)
    with pytest.raises(DeviceUnavailable, match="CPU alone"):
        ModelSession.open(small, load_card(small), device="cuda", settings=INT8)


def test_another_architecture_is_refused(tiny: OpenedModel) -> None:
    with pytest.raises(ExportError, match="BERT"):
        int8.read_fused(tiny.folder, replace(tiny.card, architecture="mpnet"))


def test_a_copy_brings_the_int8_file(small: Path, tmp_path: Path) -> None:
    from kbmesh_onnx.pull import pull_model

    card = pull_model(str(small), tmp_path / "models")
    assert card.int8 == load_card(small).int8
    assert ModelTokenizer.load(tmp_path / "models" / card.name, card).special_tokens == 2
    ModelSession.open(tmp_path / "models" / card.name, card, settings=INT8).close()


def test_no_two_neighbours_overflow_sixteen_bits() -> None:
    """Processors without VNNI add two products in 16 bits and cut what is more."""
    generator = np.random.default_rng(0)
    weight = generator.standard_t(2, (65, 200)).astype(np.float32)
    weight[10:12] = 50
    dense = quantize_dense(weight)
    even = np.pad(dense.weight.astype(np.int64), ((0, 1), (0, 0))).reshape(-1, 2, 200)
    assert (255 * np.maximum(even, 0).sum(axis=1)).max() <= 32_767
    assert (255 * np.minimum(even, 0).sum(axis=1)).min() >= -32_768
    assert (np.abs(dense.weight * dense.scales - weight) <= dense.scales * 0.501).all()


def test_kendalls_tau() -> None:
    order = np.arange(5, dtype=np.float32)
    assert kendall_tau(order, order * 3) == 1
    assert kendall_tau(order, -order) == -1
