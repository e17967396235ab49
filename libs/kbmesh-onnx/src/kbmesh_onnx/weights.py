"""Weights of a source: safetensors in, float32 out, one tensor at a time.

Files are mapped, not loaded, so that reading a model costs the memory of its largest tensor.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from kbmesh_onnx.architecture import read_json_object
from kbmesh_onnx.errors import ExportError

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
FLOATS = ("F64", "F32", "F16", "BF16")


class Weights:
    """The tensors of a source, by Hugging Face's names without the "bert." before them."""

    def __init__(self, folder: Path) -> None:
        self._places = _find_tensors(folder)
        self._folder = folder

    def __contains__(self, name: str) -> bool:
        return name in self._places

    def __getitem__(self, name: str) -> NDArray[np.float32]:
        """Read one tensor as float32. Raises ExportError for one that is absent or holds no floats."""
        if name not in self._places:
            raise ExportError(f"{self._folder} has no tensor {name}")
        path, stored = self._places[name]
        with safe_open(path, framework="numpy") as file:
            kind = file.get_slice(stored).get_dtype()
            if kind not in FLOATS:
                raise ExportError(f"tensor {name} is {kind}; only {', '.join(FLOATS)} are supported")
            return np.ascontiguousarray(file.get_tensor(stored), dtype=np.float32)

    def check(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Raise ExportError, naming what, unless every tensor of `shapes` is there in that shape."""
        missing = [name for name in shapes if name not in self._places]
        if missing:
            more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
            raise ExportError(f"{self._folder} lacks tensors: {', '.join(missing[:3])}{more}")
        for name, shape in shapes.items():
            path, stored = self._places[name]
            with safe_open(path, framework="numpy") as file:
                found = tuple(file.get_slice(stored).get_shape())
            if found != shape:
                raise ExportError(f"tensor {name} is {found}; config.json says {shape}")

    def finite(self, names: Iterator[str]) -> Iterator[tuple[str, NDArray[np.float32]]]:
        """Give tensors one after another. Raises ExportError for one that holds NaN or an infinity."""
        for name in names:
            tensor = self[name]
            # A sum is NaN or infinite if a number is; only then is it worth looking closer.
            if not np.isfinite(tensor.sum(dtype=np.float64)):
                bad = int(np.count_nonzero(~np.isfinite(tensor)))
                raise ExportError(f"tensor {name} holds {bad} numbers that are NaN or infinite")
            yield name, tensor


def weight_files(folder: Path) -> list[Path]:
    """Give the safetensors files of a source, sorted. Raises ExportError where there are none."""
    if (folder / INDEX_FILE).is_file():
        names = sorted(set(read_json_object(folder / INDEX_FILE).get("weight_map", {}).values()))
        missing = [name for name in names if not (folder / name).is_file()]
        if missing:
            raise ExportError(f"{folder} lacks {', '.join(missing)}, which {INDEX_FILE} names")
        return [folder / name for name in names]
    if (folder / SINGLE_FILE).is_file():
        return [folder / SINGLE_FILE]
    raise ExportError(f"{folder} has no {SINGLE_FILE}; weights in other formats may run code and are not read")


def _find_tensors(folder: Path) -> dict[str, tuple[Path, str]]:
    places: dict[str, tuple[Path, str]] = {}
    for path in weight_files(folder):
        try:
            with safe_open(path, framework="numpy") as file:
                places |= {_plain_name(stored): (path, stored) for stored in file.keys()}  # noqa: SIM118 - not a mapping
        except (SafetensorError, OSError, json.JSONDecodeError) as error:
            raise ExportError(f"{path} cannot be read: {error}") from error
    return places


def _plain_name(stored: str) -> str:
    """Give a tensor's name as today's transformers has it, whatever class and year it was saved from."""
    name = stored.removeprefix("bert.")
    name = re.sub(r"LayerNorm\.gamma$", "LayerNorm.weight", name)
    return re.sub(r"LayerNorm\.beta$", "LayerNorm.bias", name)
