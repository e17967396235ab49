"""The int8 file of a model folder: for CPUs, with vectors that do not depend on the batch.

It holds the dense layers' weights in 8 bits and takes all else from the model's fp32 weights file.
docs/decisions/0013-int8-without-batch-mates.md says why it is made this way, and how near it is.
"""

import hashlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray

from kbmesh_onnx.architecture import BertArchitecture
from kbmesh_onnx.calibration import channel_ranges, smoothing_factors
from kbmesh_onnx.device_settings import DeviceSettings
from kbmesh_onnx.errors import ExportError, OnnxError
from kbmesh_onnx.folder import FORM_FILES, INT8_FILE, WEIGHTS_FILE, Int8Proof, ModelCard, load_card, write_card
from kbmesh_onnx.graph_bert import build_bert
from kbmesh_onnx.graph_builder import GraphBuilder
from kbmesh_onnx.graph_int8 import MIDDLE, Int8Steps, QuantizedDense, quantize_dense
from kbmesh_onnx.padding import pad
from kbmesh_onnx.proof_passages import PASSAGES
from kbmesh_onnx.session import ModelSession, Output
from kbmesh_onnx.tokenizer import ModelTokenizer, TokenizedText
from kbmesh_onnx.verification import LONGEST, TEXTS
from kbmesh_onnx.weights_file import StoredTensor
from kbmesh_onnx.writing import exclusive

MIN_COSINE = 0.998
"""What the cosine of each passage's vector with that of fp32 must reach."""
MIN_FRAGMENT_COSINE = 0.99
"""The same for fragments, down to a single character, where one token's error is the whole error."""
MAX_LOGIT_DIFFERENCE = 0.05
"""Largest difference of a logit, relative to the range of the logits of the proof."""
MARGIN = 1.1
"""How much wider than the largest number seen the limits are."""
MAX_BATCH_ERROR = 1e-3
"""Largest difference that a text's batch mates may make to one number. They change only the order in which attention is
summed in single precision, about 1e-6; now and then that rounds a number to the next byte."""

Floats = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class FusedGraph:
    """The fused form of a BERT, as its folder has it."""

    folder: Path
    graph: onnx.ModelProto
    architecture: BertArchitecture
    stored: dict[str, StoredTensor]
    attending: tuple[str, ...]
    """Layers in which every token attends, all but the last of a cross-encoder."""

    @property
    def smoothed(self) -> tuple[str, ...]:
        """The dense layers whose input comes from a layer normalisation, where some channels are very large."""
        return tuple(f"{layer}.{dense}" for layer in self.attending for dense in ("query_key_value", "inner"))

    @property
    def attended(self) -> tuple[str, ...]:
        """The dense layers after attention."""
        return tuple(f"{layer}.attended" for layer in self.attending)

    @property
    def outer(self) -> tuple[str, ...]:
        """The dense layers after GELU."""
        return tuple(f"{layer}.outer" for layer in self.attending)

    def weight(self, dense: str) -> Floats:
        """The weight of a dense layer, (in, out), read from the weights file."""
        place = self.stored[f"{dense}.weight"]
        count = place.length // 4
        data = np.fromfile(self.folder / WEIGHTS_FILE, "<f4", count=count, offset=place.offset)
        return data.reshape(place.shape)


def write_int8(folder: Path) -> ModelCard:
    """Add an int8 file to the model in `folder`, and prove it against fp32 on the CPU.

    Gives the new card. A file that was there is replaced. Raises ModelFolderError; and ExportError where the model is
    no BERT that kbmesh wrote, or the outputs are too far from fp32 or depend on the batch: the folder has no int8 file
    then.
    """
    folder = Path(folder)
    with exclusive(folder):
        before = load_card(folder)
        card = replace(
            before, int8=None, file_sizes={name: size for name, size in before.file_sizes.items() if name != INT8_FILE}
        )
        # A card without it comes first, so that no reader takes a file in the making.
        write_card(folder, card)
        path = folder / INT8_FILE
        try:
            fused = read_fused(folder, card)
            tokenizer = ModelTokenizer.load(folder, card)
            graph = _build(fused, card, tokenizer)
            _write(path, graph.SerializeToString())
            card = replace(card, file_sizes={**card.file_sizes, INT8_FILE: path.stat().st_size})
            card = replace(card, int8=_prove(folder, card, tokenizer))
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        write_card(folder, card)
        return card


def read_fused(folder: Path, card: ModelCard) -> FusedGraph:
    """Read the fused form without its weights. Raises ExportError where there is none or kbmesh did not write it."""
    if card.architecture != "bert" or "fused" not in card.forms:
        raise ExportError(f"{card.name} is of architecture {card.architecture}; only BERT models have int8 files")
    graph = onnx.load(folder / FORM_FILES["fused"], load_external_data=False)
    stored = {}
    for tensor in graph.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            place = {entry.key: entry.value for entry in tensor.external_data}
            stored[tensor.name] = StoredTensor(
                offset=int(place["offset"]), length=int(place["length"]), shape=tuple(tensor.dims)
            )
    attributes = {
        (node.op_type, attribute.name): attribute for node in graph.graph.node for attribute in node.attribute
    }
    layers = sorted({int(found[1]) for name in stored if (found := re.match(r"layer\.(\d+)\.", name))})
    attending = tuple(f"layer.{layer}" for layer in layers if f"layer.{layer}.query_key_value.weight" in stored)
    if not attending:
        raise ExportError(f"{card.name} has no layer in which every token attends; int8 would gain nothing")
    try:
        vocabulary_size, hidden_size = stored["embeddings.word"].shape
        architecture = BertArchitecture(
            vocabulary_size=vocabulary_size,
            hidden_size=hidden_size,
            layers=len(layers),
            heads=attributes["Attention", "num_heads"].i,
            intermediate_size=stored["layer.0.inner.weight"].shape[1],
            max_positions=stored["embeddings.position"].shape[0],
            segments=stored["embeddings.token_type"].shape[0],
            epsilon=attributes["EmbedLayerNormalization", "epsilon"].f,
        )
    except KeyError as error:
        raise ExportError(f"the fused form of {card.name} was not written by kbmesh: it has no {error}") from error
    return FusedGraph(folder=folder, graph=graph, architecture=architecture, stored=stored, attending=attending)


def _build(fused: FusedGraph, card: ModelCard, tokenizer: ModelTokenizer) -> onnx.ModelProto:
    texts = _encode(tokenizer, card, TEXTS, limit=LONGEST)
    ranges = channel_ranges(fused.folder, fused.graph, (*fused.smoothed, *fused.attended), texts)
    dense: dict[str, QuantizedDense] = {}
    for name in fused.smoothed:
        weight = fused.weight(name)
        factors = smoothing_factors(ranges[name].sizes, weight)
        if name.endswith("inner"):
            dense[name] = quantize_dense(weight, factors=factors, zero=MIDDLE)
        else:
            dense[name] = quantize_dense(weight, factors=factors, limits=ranges[name].limits(factors, margin=MARGIN))
    for name in fused.attended:
        dense[name] = quantize_dense(fused.weight(name), limits=ranges[name].limits(None, margin=MARGIN))
    for name in fused.outer:
        dense[name] = quantize_dense(fused.weight(name))

    def make_steps(builder: GraphBuilder) -> Int8Steps:
        return Int8Steps(builder, fused.architecture, dense)

    return build_bert(
        fused.architecture,
        fused.stored,
        kind=card.kind,
        form="fused",
        pooling=card.pooling,
        normalized=card.normalized,
        make_steps=make_steps,
    )


def _encode(tokenizer: ModelTokenizer, card: ModelCard, texts: Sequence[str], *, limit: int) -> list[TokenizedText]:
    """Encode texts, for a cross-encoder as pairs with a fixed query."""
    tokens = min(card.max_tokens, limit)
    if card.kind == "encoder":
        return tokenizer.encode(texts, max_tokens=tokens)
    return [pair.windows[0] for pair in tokenizer.encode_pairs(TEXTS[3], texts, max_tokens=tokens)]


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _prove(folder: Path, card: ModelCard, tokenizer: ModelTokenizer) -> Int8Proof:
    # Its proof is not in the card yet; a session asks for one.
    unproven = Int8Proof(
        fingerprint="",
        min_cosine=None,
        p1_cosine=None,
        mean_cosine=None,
        fragment_cosine=None,
        max_difference=0,
        kendall_tau=None,
        batch_error=0,
    )
    texts = _encode(tokenizer, card, (*TEXTS, *PASSAGES), limit=card.max_tokens)
    output: Output = "embeddings" if card.kind == "encoder" else "logits"
    try:
        single = ModelSession.open(folder, card, form="fused", settings=DeviceSettings(precision="fp32"))
        small = ModelSession.open(folder, replace(card, int8=unproven), settings=DeviceSettings(precision="int8"))
        expected, found = _outputs(single, texts, output), _outputs(small, texts, output)
        alone = np.concatenate([_outputs(small, [text], output) for text in texts])
    except OnnxError as error:
        raise ExportError(f"the int8 file does not run: {error}") from error
    single.close()
    small.close()
    fingerprint = hashlib.sha256(card.fingerprint.encode() + (folder / INT8_FILE).read_bytes()).hexdigest()
    proof = compare(expected, found, alone, fingerprint=fingerprint, logits=output == "logits")
    _check(proof)
    return proof


def _outputs(session: ModelSession, texts: Sequence[TokenizedText], output: Output) -> Floats:
    (found,) = session.run(*pad(list(texts)), outputs=(output,))
    return found


def compare(expected: Floats, found: Floats, alone: Floats, *, fingerprint: str, logits: bool) -> Int8Proof:
    """Hold int8's outputs, batched and alone, against those of fp32: (n, dimension) vectors or (n, 1) logits.

    The rows are those of TEXTS, the fragments, and then of PASSAGES.
    """
    batch_error = float(np.abs(found - alone).max())
    difference = float(np.abs(found - expected).max())
    if logits:
        return Int8Proof(
            fingerprint=fingerprint,
            min_cosine=None,
            p1_cosine=None,
            mean_cosine=None,
            fragment_cosine=None,
            max_difference=difference / max(float(np.ptp(expected)), 1e-6),
            kendall_tau=kendall_tau(expected[:, 0], found[:, 0]),
            batch_error=batch_error,
        )
    lengths = np.linalg.norm(expected, axis=1) * np.linalg.norm(found, axis=1)
    cosines = (expected.astype(np.float64) * found).sum(axis=1) / lengths
    passages = cosines[len(TEXTS) :]
    return Int8Proof(
        fingerprint=fingerprint,
        min_cosine=float(passages.min()),
        p1_cosine=float(np.quantile(passages, 0.01)),
        mean_cosine=float(passages.mean()),
        fragment_cosine=float(cosines[: len(TEXTS)].min()),
        max_difference=difference,
        kendall_tau=None,
        batch_error=batch_error,
    )


def kendall_tau(one: NDArray[np.float32], other: NDArray[np.float32]) -> float:
    """How alike two orders of the same items are: 1 the same, -1 reversed (tau-a; Kendall 1938)."""
    first, second = (np.sign(each[:, np.newaxis] - each[np.newaxis, :]) for each in (one, other))
    return float((first * second).sum() / (len(one) * (len(one) - 1)))


def _check(proof: Int8Proof) -> None:
    # Written so that NaN fails as well.
    if proof.min_cosine is not None and not proof.min_cosine >= MIN_COSINE:
        raise ExportError(
            f"the int8 file's worst passage has a cosine of {proof.min_cosine:.5f} with fp32's; {MIN_COSINE} is needed"
        )
    if proof.fragment_cosine is not None and not proof.fragment_cosine >= MIN_FRAGMENT_COSINE:
        raise ExportError(
            f"the int8 file's worst fragment has a cosine of {proof.fragment_cosine:.5f} with fp32's; "
            f"{MIN_FRAGMENT_COSINE} is needed"
        )
    if proof.kendall_tau is not None and not proof.max_difference <= MAX_LOGIT_DIFFERENCE:
        raise ExportError(
            f"an int8 logit differs from fp32's by {proof.max_difference:.3f} of their range; "
            f"{MAX_LOGIT_DIFFERENCE} is the most"
        )
    if not proof.batch_error <= MAX_BATCH_ERROR:
        raise ExportError(
            f"a text's batch mates change its int8 output by {proof.batch_error:.2g}; {MAX_BATCH_ERROR} is the most"
        )
