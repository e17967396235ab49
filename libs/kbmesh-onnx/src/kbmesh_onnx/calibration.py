"""How large each channel of a BERT's hidden states becomes, and the factors that make them alike."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper

from kbmesh_onnx.errors import ExportError
from kbmesh_onnx.padding import pad
from kbmesh_onnx.tokenizer import TokenizedText

PROBE_FILE = ".model.probe.onnx"
BATCH_ROWS = 8
LOG_ERRORS_ONLY = 3

STRENGTH = 0.6
"""How much of a channel's size goes to the weight: all at 1, nothing at 0. The best of .5, .6 and .7 on MiniLM."""

Floats = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class ChannelRange:
    """Between what the numbers of each channel lie, (in,) float32 both; zero is between them."""

    lowest: Floats
    highest: Floats

    @property
    def sizes(self) -> Floats:
        """The largest size of each channel, (in,)."""
        return np.maximum(-self.lowest, self.highest)

    def limits(self, factors: Floats | None, *, margin: float) -> tuple[float, float]:
        """The limits of all channels, each divided by its factor, widened by `margin`."""
        by = np.float32(1) if factors is None else factors
        return float((self.lowest / by).min()) * margin, float((self.highest / by).max()) * margin


def channel_ranges(
    folder: Path, graph: onnx.ModelProto, layers: Sequence[str], texts: Sequence[TokenizedText]
) -> dict[str, ChannelRange]:
    """Give the range of each input channel of the dense layers named, over all tokens.

    `graph` is the fused form, whose weights are in `folder`. Raises ExportError where it cannot be run.
    """
    inputs = _inputs_of(graph, layers)
    probed = onnx.ModelProto()
    probed.CopyFrom(graph)
    probed.graph.output.extend(
        helper.make_tensor_value_info(value, TensorProto.FLOAT, None) for value in dict.fromkeys(inputs.values())
    )
    path = folder / PROBE_FILE
    options = onnxruntime.SessionOptions()
    options.log_severity_level = LOG_ERRORS_ONLY
    try:
        path.write_bytes(probed.SerializeToString())
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        return _run(session, inputs, texts)
    except Exception as error:  # ONNX Runtime's errors have no common parent but Exception
        raise ExportError(f"the fused form cannot be run: {error}") from error
    finally:
        path.unlink(missing_ok=True)


def smoothing_factors(sizes: Floats, weight: Floats) -> Floats:
    """What to divide each input channel by, (in,) float32, given its size and the weight, (in, out).

    Powers of a quarter of two, so that the last bits of a machine's arithmetic do not show.
    """
    rows = np.abs(weight).max(axis=1)
    factors = np.log2(np.maximum(sizes, 1e-3)) * STRENGTH - np.log2(np.maximum(rows, 1e-4)) * (1 - STRENGTH)
    factors -= factors.mean()
    powers: Floats = np.exp2(np.rint(factors * 4) / 4).astype(np.float32)
    return powers


def _inputs_of(graph: onnx.ModelProto, layers: Sequence[str]) -> dict[str, str]:
    weights = {f"{layer}.weight": layer for layer in layers}
    found = {weights[name]: node.input[0] for node in graph.graph.node for name in node.input if name in weights}
    missing = sorted(set(layers) - set(found))
    if missing:
        raise ExportError(f"the graph was not written by kbmesh: it has no layer {', '.join(missing)}")
    return found


def _run(
    session: onnxruntime.InferenceSession, inputs: Mapping[str, str], texts: Sequence[TokenizedText]
) -> dict[str, ChannelRange]:
    ranges: dict[str, ChannelRange] = {}
    names = list(dict.fromkeys(inputs.values()))
    ordered = sorted(texts, key=lambda text: text.tokens)
    for start in range(0, len(ordered), BATCH_ROWS):
        ids, mask, type_ids = pad(ordered[start : start + BATCH_ROWS])
        feed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": type_ids}
        found = dict(zip(names, session.run(names, feed), strict=True))
        for layer, value in inputs.items():
            numbers = found[value][mask.astype(bool)]
            before = ranges.get(
                layer, ChannelRange(lowest=np.zeros(1, dtype=np.float32), highest=np.zeros(1, dtype=np.float32))
            )
            ranges[layer] = ChannelRange(
                lowest=np.minimum(before.lowest, numbers.min(axis=0)),
                highest=np.maximum(before.highest, numbers.max(axis=0)),
            )
    return ranges
