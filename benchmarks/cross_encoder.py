"""A cross-encoder to measure with: the encoder's weights under a head of random ones.

No package carries a cross-encoder's weights. Its scores mean nothing; it takes as long as one that was trained.
"""

import json
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from kbmesh_onnx.export import export_model
from kbmesh_onnx.folder import CARD_FILE, ModelCard, load_card
from kbmesh_onnx.pull import find_source
from safetensors.numpy import load_file, save_file

NAME = "bench-cross-encoder"


def make_cross_encoder(encoder: str, models_folder: Path) -> ModelCard:
    """Exports it into `models_folder` unless it is there. Raises PullError or ExportError."""
    destination = models_folder / NAME
    if (destination / CARD_FILE).is_file():
        return load_card(destination)
    source = find_source(encoder, models_folder, name=None, progress=lambda _: None).folder
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    config |= {"architectures": ["BertForSequenceClassification"], "id2label": {"0": "LABEL_0"}}
    tensors = {f"bert.{name}": tensor for name, tensor in load_file(source / "model.safetensors").items()}
    generator = np.random.default_rng(0)
    tensors["classifier.weight"] = generator.normal(0, 0.1, (1, config["hidden_size"])).astype(np.float32)
    tensors["classifier.bias"] = np.zeros(1, dtype=np.float32)
    with TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
        shutil.copyfile(source / "tokenizer.json", folder / "tokenizer.json")
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        return export_model(folder, destination, name=NAME, origin="random head over " + encoder)
