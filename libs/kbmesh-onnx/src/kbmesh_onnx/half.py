"""The fp16 files of a model folder: half the memory and, on CUDA, the tensor cores.

`python -m kbmesh_onnx.half FOLDER` adds them to an exported model. The layers compute in half precision; pooling,
normalisation and the classifier stay in single precision, where their small constants exist. Inputs and outputs are
those of the other files.
"""

import argparse
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from kbmesh_onnx.device_settings import DeviceSettings
from kbmesh_onnx.errors import ExportError, ModelFolderError
from kbmesh_onnx.folder import FORM_FILES, Form, ModelCard, load_card, write_card
from kbmesh_onnx.session import HALF_FILES, ModelSession, Output
from kbmesh_onnx.tokenizer import ModelTokenizer
from kbmesh_onnx.verification import Expected, Rows, verification_rows, verify
from kbmesh_onnx.weights_file import PAGE
from kbmesh_onnx.writing import exclusive

HALF_WEIGHTS_FILE = "model.fp16.onnx.data"
TOLERANCES: Mapping[str, float] = MappingProxyType({"encoder": 1e-2, "cross_encoder": 5e-2})
"""Largest difference from single precision, relative to the largest number of an output. Half precision has 11 bits;
a value that overflowed differs by more than 1."""


@dataclass
class _Weights:
    """The weights file in the making, that the forms share."""

    source: Path
    file: Path
    places: dict[str, tuple[int, int]] = field(default_factory=dict)

    def halve(self, tensor: TensorProto) -> TensorProto:
        """A tensor in half precision; a large one stands in the weights file."""
        if tensor.data_location != TensorProto.EXTERNAL:
            return numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float16), tensor.name)
        if tensor.name not in self.places:
            self.places[tensor.name] = self._write(tensor)
        offset, length = self.places[tensor.name]
        halved = TensorProto(name=tensor.name, data_type=TensorProto.FLOAT16, dims=tensor.dims)
        halved.data_location = TensorProto.EXTERNAL
        for key, value in (("location", HALF_WEIGHTS_FILE), ("offset", offset), ("length", length)):
            halved.external_data.add(key=key, value=str(value))
        return halved

    def _write(self, tensor: TensorProto) -> tuple[int, int]:
        place = {entry.key: entry.value for entry in tensor.external_data}
        count = int(place["length"]) // 4
        whole = np.fromfile(self.source / place["location"], "<f4", count=count, offset=int(place["offset"]))
        data = whole.astype("<f2")
        if not np.isfinite(data).all():
            raise ExportError(f"{tensor.name} holds numbers that half precision has not")
        with self.file.open("ab") as file:
            file.write(bytes(-file.tell() % PAGE))
            offset = file.tell()
            file.write(data.data)
        return offset, data.nbytes


def write_half(folder: Path) -> ModelCard:
    """Add fp16 files for each form of the model in `folder`, and prove them against the fp32 ones on the CPU.

    Gives the new card. Files that were there are replaced. Raises ModelFolderError, and ExportError where the graph is
    not one of ours or the outputs differ; the folder is then as it was.
    """
    folder = Path(folder)
    with exclusive(folder):
        card = load_card(folder)
        names = {HALF_WEIGHTS_FILE, *(HALF_FILES[form] for form in card.forms)}
        written = replace(card, file_sizes={n: size for n, size in card.file_sizes.items() if n not in names})
        # A card without them comes first, so that no reader takes a file in the making.
        write_card(folder, written)
        try:
            _write_files(folder, card)
            _prove(folder, card)
        except BaseException:
            for name in names:
                (folder / name).unlink(missing_ok=True)
            raise
        sizes = {**written.file_sizes, **{name: (folder / name).stat().st_size for name in sorted(names)}}
        written = replace(written, file_sizes=sizes)
        write_card(folder, written)
        return written


def _write_files(folder: Path, card: ModelCard) -> None:
    weights = _Weights(source=folder, file=folder / HALF_WEIGHTS_FILE)
    weights.file.write_bytes(b"")
    for form in card.forms:
        model = onnx.load(folder / FORM_FILES[form], load_external_data=False)
        _halve(model.graph, weights)
        (folder / HALF_FILES[form]).write_bytes(model.SerializeToString())
    with weights.file.open("rb") as file:
        os.fsync(file.fileno())


def _halve(graph: onnx.GraphProto, weights: _Weights) -> None:
    """Turns the layers into half precision, in place."""
    last = _last_hidden(graph)
    layers = _upstream(graph, last)
    single = {name for node in graph.node if node.name not in layers for name in node.input}
    halved = {name for node in graph.node if node.name in layers for name in node.input}
    initializers, renamed = [], {}
    for tensor in graph.initializer:
        if tensor.data_type != TensorProto.FLOAT:
            initializers.append(tensor)
            continue
        if tensor.name in single:
            initializers.append(tensor)
        if tensor.name in halved:
            half = weights.halve(tensor)
            renamed[tensor.name] = half.name = f"{tensor.name}.fp16"
            initializers.append(half)
    nodes = []
    for node in graph.node:
        if node.name in layers:
            node.input[:] = [renamed.get(name, name) for name in node.input]
            for attribute in node.attribute:
                if node.op_type == "Cast" and attribute.name == "to" and attribute.i == TensorProto.FLOAT:
                    attribute.i = TensorProto.FLOAT16
            nodes.append(node)
            if last in node.output:
                nodes.append(helper.make_node("Cast", [last], [f"{last}.fp32"], name="to_fp32", to=TensorProto.FLOAT))
        else:
            node.input[:] = [f"{name}.fp32" if name == last else name for name in node.input]
            nodes.append(node)
    del graph.node[:], graph.initializer[:]
    graph.node.extend(nodes)
    graph.initializer.extend(initializers)


def _last_hidden(graph: onnx.GraphProto) -> str:
    """The value after the last layer: what is multiplied by the mask, or, in a cross-encoder, the first token's."""
    makers = {output: node for node in graph.node for output in node.output}
    end = makers.get("token_embeddings") or makers.get("logits")
    steps = ["Identity", "Mul"] if "token_embeddings" in makers else ["Identity", "Gemm", "Tanh", "Gemm"]
    node, value = end, ""
    for step in steps:
        if node is None or node.op_type != step:
            raise ExportError("the graph was not written by kbmesh; only BERT models have fp16 files")
        value = node.input[0]
        node = makers.get(value)
    return value


def _upstream(graph: onnx.GraphProto, value: str) -> set[str]:
    makers = {output: node for node in graph.node for output in node.output}
    found: set[str] = set()
    waiting = [value]
    while waiting:
        node = makers.get(waiting.pop())
        if node is not None and node.name not in found:
            found.add(node.name)
            waiting.extend(node.input)
    return found


def _prove(folder: Path, card: ModelCard) -> None:
    rows = verification_rows(ModelTokenizer.load(folder, card), card.kind, card.max_tokens)
    names: tuple[Output, ...] = ("embeddings", "token_embeddings") if card.kind == "encoder" else ("logits",)
    expected = _expected(folder, card, rows, names)
    for form in card.forms:
        session = _open(folder, card, form)
        try:
            verify(session, rows, expected, tolerance=TOLERANCES[card.kind], reference="fp32")
        finally:
            session.close()


def _open(folder: Path, card: ModelCard, form: Form) -> ModelSession:
    # Its files are not in the card yet: they are not proven.
    sizes = {name: (folder / name).stat().st_size for name in (HALF_FILES[form], HALF_WEIGHTS_FILE)}
    half = replace(card, file_sizes={**card.file_sizes, **sizes})
    return ModelSession.open(folder, half, form=form, settings=DeviceSettings(precision="fp16"))


def _expected(folder: Path, card: ModelCard, rows: Rows, names: tuple[Output, ...]) -> Expected:
    session = ModelSession.open(folder, card, form=card.forms[0], settings=DeviceSettings(precision="fp32"))
    found = dict(zip(names, session.run(rows.ids, rows.mask, rows.type_ids, outputs=names), strict=True))
    session.close()
    return Expected(
        outputs={
            name: [found[name][row, : text.tokens] for row, text in enumerate(rows.texts)]
            if name == "token_embeddings"
            else list(found[name])
            for name in names
        }
    )


def main() -> int:
    """`python -m kbmesh_onnx.half FOLDER`."""
    parser = argparse.ArgumentParser(prog="python -m kbmesh_onnx.half", description="Adds fp16 files to a model.")
    parser.add_argument("folder", type=Path, help="model folder")
    folder = parser.parse_args().folder
    try:
        card = write_half(folder)
    except (ExportError, ModelFolderError) as error:
        parser.exit(1, f"{error}\n")
    sys.stdout.write(f"{card.name}: {', '.join(HALF_FILES[form] for form in card.forms)}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
