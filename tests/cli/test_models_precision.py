"""`kbmesh models export --precision` adds a proven file to the model, and tells what cannot be had."""

from pathlib import Path

import pytest
import tiny_models
from cli.command import Kbmesh
from kbmesh_onnx import int8
from kbmesh_onnx.folder import INT8_FILE, load_card


async def test_int8_is_exported_beside_fp32_and_shown(kbmesh: Kbmesh, tmp_path: Path) -> None:
    source = tiny_models.write_tiny_cross_encoder(tmp_path / "tiny")
    done = await kbmesh("models", "export", source, "--precision", "int8", "--json")
    assert done.code == 0
    folder = tmp_path / "home" / "models" / "tiny"
    card = load_card(folder)
    assert (folder / INT8_FILE).is_file()
    assert card.int8 is not None
    assert card.int8.fingerprint in done.out


async def test_what_cannot_be_proven_ends_with_the_reason_and_leaves_fp32(
    kbmesh: Kbmesh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(int8, "MAX_LOGIT_DIFFERENCE", -1.0)
    source = tiny_models.write_tiny_cross_encoder(tmp_path / "tiny")
    done = await kbmesh("models", "export", source, "--precision", "int8")
    assert done.code != 0
    assert "MODEL_NOT_EXPORTED" in done.err
    assert load_card(tmp_path / "home" / "models" / "tiny").int8 is None
