"""An export that is not proven does not happen, and says why."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tiny_models
from kbmesh_onnx import weights_file
from kbmesh_onnx.errors import ExportError
from kbmesh_onnx.export import export_model
from kbmesh_onnx.folder import load_card
from kbmesh_onnx.layout import ModelSettings
from kbmesh_onnx.session import ModelSession
from opened_model import OpenedModel
from safetensors.numpy import save_file
from tiny_models import Tensors, tiny_tensors, write_tiny_cross_encoder, write_tiny_encoder

VALUE = "encoder.layer.1.attention.self.value.weight"


def refused(source: Path, destination: Path, *words: str, **options: Any) -> None:
    """Check that an export is refused with these words, and leaves nothing that could be taken for a model."""
    with pytest.raises(ExportError) as caught:
        export_model(source, destination, **options)
    assert all(word in str(caught.value) for word in words), str(caught.value)
    assert not destination.exists()
    assert [path.name for path in destination.parent.glob(".*") if path.is_dir()] == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"hidden_act": "relu"}, ("hidden_act", "relu")),
        ({"position_embedding_type": "relative_key"}, ("position_embedding_type", "relative_key")),
        ({"architectures": ["BertLMHeadModel"]}, ("BertLMHeadModel",)),
        ({"is_decoder": True}, ("decoder",)),
        ({"num_attention_heads": 5}, ("5 heads",)),
        ({"vocab_size": None}, ("vocab_size",)),
        ({"hidden_size": 48, "num_attention_heads": 4}, ("word_embeddings", "32", "48")),
        ({"architectures": ["BertForSequenceClassification"], "num_labels": 3}, ("3 labels",)),
        ({"model_type": "distilbert"}, ("distilbert", "kbmesh-onnx[torch]")),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_an_architecture_that_the_graphs_do_not_compute(
    tmp_path: Path, changes: dict[str, Any], words: tuple[str, ...]
) -> None:
    refused(write_tiny_encoder(tmp_path / "source", config=changes), tmp_path / "models" / "tiny", *words)


def without(name: str) -> Callable[[Tensors], None]:
    def change(tensors: Tensors) -> None:
        del tensors[name]

    return change


def with_nan(name: str) -> Callable[[Tensors], None]:
    def change(tensors: Tensors) -> None:
        tensors[name][3, 4] = np.nan

    return change


@pytest.mark.parametrize("change", [without(VALUE), with_nan(VALUE)])
def test_weights_that_are_missing_or_no_numbers(tmp_path: Path, change: Callable[[Tensors], None]) -> None:
    tensors = tiny_tensors()
    change(tensors)
    refused(write_tiny_encoder(tmp_path / "source", tensors=tensors), tmp_path / "models" / "tiny", VALUE)


def test_a_cross_encoder_without_its_classifier(tmp_path: Path) -> None:
    source = write_tiny_cross_encoder(tmp_path / "source", tensors=tiny_tensors())
    refused(source, tmp_path / "models" / "tiny", "classifier.weight")


def test_a_pooling_that_nobody_states_is_not_guessed(tmp_path: Path) -> None:
    """EMB-08."""
    source = write_tiny_encoder(tmp_path / "source", sentence_transformers=False)
    refused(source, tmp_path / "models" / "tiny", "pooling")
    card = export_model(source, tmp_path / "models" / "tiny", settings=ModelSettings(pooling="cls"))
    assert card.pooling == "cls"


@pytest.mark.parametrize("pooling", ["max", "both"])
def test_a_pooling_that_is_not_computed(tmp_path: Path, pooling: str) -> None:
    source = write_tiny_encoder(tmp_path / "source", pooling="max" if pooling == "max" else "mean")
    if pooling == "both":
        modes = {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True}
        (source / "1_Pooling" / "config.json").write_text(json.dumps(modes))
    refused(source, tmp_path / "models" / "tiny", "pooling")


def test_a_module_after_pooling_that_is_not_computed(tmp_path: Path) -> None:
    source = write_tiny_encoder(tmp_path / "source")
    modules = json.loads((source / "modules.json").read_text())
    modules.append({"idx": 3, "path": "3_Dense", "type": "sentence_transformers.models.Dense"})
    (source / "modules.json").write_text(json.dumps(modules))
    refused(source, tmp_path / "models" / "tiny", "Dense")


@pytest.mark.parametrize("file", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_source_without_one_of_its_files(tmp_path: Path, file: str) -> None:
    source = write_tiny_encoder(tmp_path / "source")
    (source / file).unlink()
    refused(source, tmp_path / "models" / "tiny", file)


def test_a_weights_file_that_was_not_copied_whole(tmp_path: Path) -> None:
    source = write_tiny_encoder(tmp_path / "source")
    data = (source / "model.safetensors").read_bytes()
    (source / "model.safetensors").write_bytes(data[: len(data) // 2])
    refused(source, tmp_path / "models" / "tiny", "model.safetensors")


@pytest.mark.parametrize("write", [write_tiny_encoder, write_tiny_cross_encoder])
def test_a_weight_that_goes_wrong_on_the_way_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[[Path], Path]
) -> None:
    """One number changes between reading and writing."""
    real = weights_file.graph_tensors

    def bent(*arguments: Any) -> Any:
        for name, tensor in real(*arguments):
            if name == "layer.1.outer.weight":
                tensor = tensor.copy()
                tensor[0, 0] += 1.0
            yield name, tensor

    monkeypatch.setattr(weights_file, "graph_tensors", bent)
    refused(write(tmp_path / "source"), tmp_path / "models" / "tiny", "differs from the numpy reference")


def test_a_failed_export_leaves_the_model_that_was_there(tmp_path: Path) -> None:
    destination = tmp_path / "models" / "tiny"
    before = export_model(write_tiny_encoder(tmp_path / "good"), destination)
    bad = write_tiny_encoder(tmp_path / "bad", config={"hidden_act": "relu"})
    with pytest.raises(ExportError):
        export_model(bad, destination)
    assert load_card(destination) == before


def test_a_killed_export_leaves_no_model_and_the_next_one_cleans_up(tmp_path: Path) -> None:
    source, destination = write_tiny_encoder(tmp_path / "source"), tmp_path / "models" / "tiny"
    script = (
        "import os, signal, sys; from pathlib import Path; from kbmesh_onnx.export import export_model\n"
        "def progress(stage):\n"
        "    if stage.startswith('checking'): os.kill(os.getpid(), signal.SIGKILL)\n"
        "export_model(Path(sys.argv[1]), Path(sys.argv[2]), progress=progress)\n"
    )
    ended = subprocess.run([sys.executable, "-c", script, str(source), str(destination)], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert not destination.exists()
    assert any(path.name.startswith(".tiny") for path in destination.parent.iterdir())
    card = export_model(source, destination)
    assert load_card(destination) == card
    assert [path.name for path in destination.parent.iterdir() if path.is_dir()] == ["tiny"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written(tmp_path: Path) -> None:
    source = write_tiny_encoder(tmp_path / "source")
    (tmp_path / "models").mkdir(mode=0o500)
    refused(source, tmp_path / "models" / "tiny", "cannot be written")


def test_weights_in_half_precision_and_in_old_names_give_the_same_model(tmp_path: Path) -> None:
    """BERTs of 2019 call a normalisation's weights gamma and beta, and put "bert." before every name."""
    rounded = {name: tensor.astype(np.float16).astype(np.float32) for name, tensor in tiny_tensors().items()}
    today = export_model(write_tiny_encoder(tmp_path / "today", tensors=rounded), tmp_path / "models" / "today")
    old = {
        "bert." + name.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta"): tensor.astype(np.float16)
        for name, tensor in rounded.items()
    }
    source = write_tiny_encoder(tmp_path / "old", tensors=old)  # type: ignore[arg-type] # half precision on purpose
    assert export_model(source, tmp_path / "models" / "old").fingerprint == today.fingerprint


def test_weights_in_bfloat16_and_in_several_files(tmp_path: Path) -> None:
    rounded = {name: tensor.astype(ml_dtypes.bfloat16) for name, tensor in tiny_tensors().items()}
    whole = {name: tensor.astype(np.float32) for name, tensor in rounded.items()}
    expected = export_model(write_tiny_encoder(tmp_path / "whole", tensors=whole), tmp_path / "models" / "whole")
    source = write_tiny_encoder(tmp_path / "source")
    (source / "model.safetensors").unlink()
    names = sorted(rounded)
    for number, part in enumerate((names[::2], names[1::2])):
        save_file({name: rounded[name] for name in part}, source / f"model-{number}.safetensors")
    weight_map = {name: f"model-{index % 2}.safetensors" for index, name in enumerate(names)}
    (source / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    assert export_model(source, tmp_path / "models" / "tiny").fingerprint == expected.fingerprint


def test_the_fingerprint_tells_models_apart_by_what_moves_a_vector(tmp_path: Path) -> None:
    """EMB-09: weights, tokenizer, pooling, normalisation, prefixes and limit; not the folder, name or time."""
    source = write_tiny_encoder(tmp_path / "source")
    other_tokenizer = write_tiny_encoder(tmp_path / "other-tokenizer")
    tokenizer = tiny_models.tiny_tokenizer()
    tokenizer.add_tokens(["kubernetes"])
    tokenizer.save(str(other_tokenizer / "tokenizer.json"))
    exports = [
        (source, ModelSettings()),
        (write_tiny_encoder(tmp_path / "other-weights", seed=1), ModelSettings()),
        (source, ModelSettings(pooling="cls")),
        (source, ModelSettings(normalized=False)),
        (source, ModelSettings(max_tokens=32)),
        (source, ModelSettings(query_prefix="query: ")),
        (source, ModelSettings(document_prefix="query: ")),
    ]
    found = [
        export_model(each, tmp_path / "models" / f"model-{number}", settings=settings).fingerprint
        for number, (each, settings) in enumerate(exports)
    ]
    assert len(set(found)) == len(exports)
    assert export_model(source, tmp_path / "models" / "again").fingerprint == found[0]
    matryoshka = ModelSettings(matryoshka_dimensions=(8, 16))
    card = export_model(source, tmp_path / "models" / "matryoshka", settings=matryoshka)
    assert (card.fingerprint, card.matryoshka_dimensions) == (found[0], (16, 8))


@pytest.mark.parametrize(
    ("name", "pooling", "query_prefix", "document_prefix"),
    [
        ("e5-small-v2", "mean", "query: ", "passage: "),
        ("bge-base-en-v1.5", "cls", "Represent this sentence for searching relevant passages: ", ""),
        ("gte-small", "mean", "", ""),
    ],
)
def test_well_known_families_are_known_by_name(
    tmp_path: Path, name: str, pooling: str, query_prefix: str, document_prefix: str
) -> None:
    source = write_tiny_encoder(tmp_path / name, sentence_transformers=False)
    card = export_model(source, tmp_path / "models" / name)
    assert (card.pooling, card.normalized) == (pooling, True)
    assert (card.query_prefix, card.document_prefix) == (query_prefix, document_prefix)


def test_a_model_s_own_prompts_go_before_its_family_s_and_the_caller_s_before_both(tmp_path: Path) -> None:
    source = write_tiny_encoder(tmp_path / "e5-small")
    prompts = {"prompts": {"query": "ask: ", "document": ""}}
    (source / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    card = export_model(source, tmp_path / "models" / "e5-small")
    assert (card.query_prefix, card.document_prefix) == ("ask: ", "passage: ")
    settings = ModelSettings(query_prefix="", document_prefix="d: ")
    card = export_model(source, tmp_path / "models" / "e5-small", settings=settings)
    assert (card.query_prefix, card.document_prefix) == ("", "d: ")


@pytest.mark.parametrize("settings", [ModelSettings(max_tokens=129), ModelSettings(matryoshka_dimensions=(64,))])
def test_settings_that_the_model_cannot_meet(tmp_path: Path, settings: ModelSettings) -> None:
    source = write_tiny_encoder(tmp_path / "source")
    refused(source, tmp_path / "models" / "tiny", str(settings.max_tokens or 64), settings=settings)


def test_a_vector_that_is_not_normalised_stays_as_it_is(tmp_path: Path) -> None:
    source = write_tiny_encoder(tmp_path / "source", normalized=False, pooling="cls")
    card = export_model(source, tmp_path / "models" / "tiny")
    assert (card.normalized, card.pooling) == (False, "cls")
    model = OpenedModel.open(tmp_path / "models" / "tiny", card)
    rows = model.tokenizer.encode(["reset the password"], max_tokens=64)
    (vector,), (tokens,) = (model.run(rows, output) for output in ("embeddings", "token_embeddings"))
    np.testing.assert_allclose(vector, tokens[0], atol=1e-6)
    assert abs(float(np.linalg.norm(vector)) - 1) > 0.1
    model.close()


def test_one_weights_file_serves_both_forms(tmp_path: Path) -> None:
    source = write_tiny_encoder(tmp_path / "source")
    card = export_model(source, tmp_path / "tiny")
    weights = (source / "model.safetensors").stat().st_size
    assert card.file_sizes["model.onnx"] + card.file_sizes["model.fused.onnx"] < 30_000
    assert card.file_sizes["model.onnx.data"] < weights + 4096 * len(tiny_tensors())
    for form in card.forms:
        ModelSession.open(tmp_path / "tiny", card, form=form).close()
