"""`python -m benchmarks.gpu --json`: an encoder on a GPU, how near it stays to the CPU and how fast it is.

Every row embeds the same passages, sorted by length, in batches of the same tokens. First it is held to the vectors of
fp32 on the CPU; a row that is too far from them ends the command with 1. Without a GPU it says why and ends with 3.
`--cpu` runs the same code on the CPU, which shows that it works and nothing else.
"""

import argparse
import json
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from shutil import copytree
from statistics import median
from typing import Any

import numpy as np
import onnxruntime
from kbmesh_onnx.cuda_driver import CudaDriver
from kbmesh_onnx.device_settings import DeviceSettings, Precision
from kbmesh_onnx.errors import DeviceUnavailable, OnnxError
from kbmesh_onnx.folder import FORM_FILES, Form, ModelCard, load_card
from kbmesh_onnx.half import write_half
from kbmesh_onnx.padding import pad
from kbmesh_onnx.provider import CPU, cuda_providers
from kbmesh_onnx.pull import pull_model
from kbmesh_onnx.session import HALF_FILES, ModelSession
from kbmesh_onnx.tokenizer import ModelTokenizer, TokenizedText
from numpy.typing import NDArray

from benchmarks.gpu_ceilings import Where, copy_ceiling, floating_point_operations, product_ceiling
from benchmarks.gpu_torch import Batch, TorchEncoder, elements, missing, versions
from benchmarks.passages import read_passages

MODEL = "sentence-transformers/all-MiniLM-L6-v2"
NO_GPU, TOO_FAR = 3, 1
LEAST_COSINE = {"fp32": 0.9999, "fp16": 0.999, "torch": 0.99}
LEAST_OVERLAP = 0.9
SINGLE_RUNS = 10
"""Of one text, in each round."""
QUERIES, TOP = 100, 10
"""Passages that serve as queries, and hits of each that are compared."""

Floats = NDArray[np.float32]
Run = Callable[[Batch], Floats]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One way to run the model."""

    name: str
    form: Form
    precision: Precision
    settings: DeviceSettings


def main() -> int:
    """Prints the report and gives the exit status."""
    options = _arguments()
    device: Where = "cpu" if options.cpu else "cuda"
    with tempfile.TemporaryDirectory() as scratch:
        card, folder = _model(options.model, Path(scratch))
        try:
            ModelSession.open(folder, card, device=device, settings=DeviceSettings(device_id=options.device_id)).close()
        except DeviceUnavailable as error:
            _print({"gpu": None, "reason": str(error)}, as_json=options.json)
            return NO_GPU
        card = _with_half(folder, card)
        report = _measure(options, device, folder, card)
    _print(report, as_json=options.json)
    return TOO_FAR if report["too_far"] else 0


def _measure(options: argparse.Namespace, device: Where, folder: Path, card: ModelCard) -> dict[str, Any]:
    tokenizer = ModelTokenizer.load(folder, card)
    passages = read_passages(tokenizer, count=options.passages, max_tokens=card.max_tokens)
    texts = sorted(tokenizer.encode(passages, max_tokens=card.max_tokens), key=lambda text: text.tokens)
    batches = [pad(part) for part in _batches(texts, options.batch_tokens)]
    reference_session = ModelSession.open(folder, card, form="plain", settings=DeviceSettings(precision="fp32"))
    progress("embedding on the CPU in fp32")
    reference = _embed(partial(_run, reference_session), batches)
    reference_session.close()
    rows: dict[str, dict[str, Any]] = {}
    for row in _rows(card, options.device_id, options.cuda_graphs):
        progress(row.name)
        session = ModelSession.open(folder, card, device=device, form=row.form, settings=row.settings)
        measured = _held(partial(_run, session), batches, reference, row.precision, rounds=options.rounds)
        rows[row.name] = {**measured, "device": session.device_text, "graphs": session.graphs}
        session.close()
    return {
        "device": rows[next(iter(rows))]["device"],
        "machine": {"processor": platform.processor() or platform.machine(), "system": platform.platform()},
        "onnxruntime": onnxruntime.__version__,
        "model": card.name,
        "passages": len(texts),
        "tokens": sum(text.tokens for text in texts),
        "batch_tokens": options.batch_tokens,
        "rows": rows,
        "torch": _torch_rows(options, device, card, batches, reference),
        "ceilings": _ceilings(options, device, folder, card, texts),
        "too_far": sorted(name for name, row in rows.items() if not row["near"]),
        "figures_count": device == "cuda",
    }


def _rows(card: ModelCard, device_id: int, cuda_graphs: int) -> list[Row]:
    """Each form in each precision: as ONNX Runtime runs it on its own, bound, and with graphs."""
    precisions: tuple[Precision, ...] = ("fp32", "fp16")
    rows = []
    for form in card.forms:
        for precision in precisions:
            alone = DeviceSettings(device_id=device_id, precision=precision, io_binding="off")
            bound = replace(alone, io_binding="on")
            ways = {"": alone, " bound": bound, " graphs": replace(bound, cuda_graphs=cuda_graphs)}
            rows += [
                Row(name=f"{form} {precision}{way}", form=form, precision=precision, settings=settings)
                for way, settings in ways.items()
            ]
    return rows


def _held(run: Run, batches: Sequence[Batch], reference: Floats, precision: str, *, rounds: int) -> dict[str, Any]:
    """Parity first, which warms up as well, then speed."""
    found = _embed(run, batches)
    cosine = float(np.min(np.sum(_unit(found) * _unit(reference), axis=1)))
    overlap = _overlap(found, reference)
    seconds = []
    for _ in range(rounds):
        began = time.perf_counter()
        _embed(run, batches)
        seconds.append(time.perf_counter() - began)
    one = tuple(array[:1] for array in batches[len(batches) // 2])
    single = []
    for _ in range(SINGLE_RUNS * rounds):
        began = time.perf_counter()
        run((one[0], one[1], one[2]))
        single.append(time.perf_counter() - began)
    return {
        "min_cosine": cosine,
        "top10_overlap": overlap,
        "near": cosine >= LEAST_COSINE[precision] and overlap >= LEAST_OVERLAP,
        "texts_per_s": len(reference) / median(seconds),
        "one_text_ms": median(single) * 1000,
    }


def _torch_rows(
    options: argparse.Namespace, device: Where, card: ModelCard, batches: Sequence[Batch], reference: Floats
) -> dict[str, Any]:
    if missing():
        return {"missing": missing()}
    if options.torch_source is None:
        return {"missing": ["--torch-source"]}
    where = f"cuda:{options.device_id}" if device == "cuda" else "cpu"
    rows: dict[str, Any] = {}
    for element in elements(where):
        progress(f"torch {element}")
        encoder = TorchEncoder(
            options.torch_source, device=where, element=element, pooling=card.pooling, normalized=card.normalized
        )
        rows[element] = _held(encoder.run, batches, reference, "torch", rounds=options.rounds)
    return {"versions": versions(), "rows": rows}


def _ceilings(
    options: argparse.Namespace, device: Where, folder: Path, card: ModelCard, texts: Sequence[TokenizedText]
) -> dict[str, Any]:
    progress("ceilings")
    settings = DeviceSettings(device_id=options.device_id)
    providers: list[Any] = [CPU]
    allocate: Callable[[tuple[int, ...]], Any] = partial(np.empty, dtype=np.int64)
    if device == "cuda":
        providers = cuda_providers(settings, inputs=(), max_tokens=card.max_tokens)
        allocate = partial(CudaDriver().pinned, dtype=np.int64, device=options.device_id)
    size = 8192 if device == "cuda" else 512
    products = {
        f"{name}_tflops": product_ceiling(device, options.device_id, size=size, element=element, providers=providers)
        for name, element in (("fp32", np.float32), ("fp16", np.float16))
    }
    file = folder / FORM_FILES["plain"]
    work = sum(floating_point_operations(file, tokens=text.tokens, hidden=card.dimension) for text in texts)
    bounds = {f"{name[:4]}_texts_per_s": len(texts) * teraflops * 1e12 / work for name, teraflops in products.items()}
    return {**copy_ceiling(device, options.device_id, allocate), **products, **bounds}


def _model(model: Path | None, scratch: Path) -> tuple[ModelCard, Path]:
    """A copy, to which files can be added."""
    if model is not None:
        folder = scratch / model.name
        copytree(model, folder)
    else:
        folder = scratch / pull_model(MODEL, scratch).name
    card = load_card(folder)
    if card.kind != "encoder":
        raise SystemExit(f"{card.name} is a {card.kind}; an encoder is needed")
    return card, folder


def _with_half(folder: Path, card: ModelCard) -> ModelCard:
    if all(HALF_FILES[form] in card.file_sizes for form in card.forms):
        return card
    progress("writing fp16 files")
    try:
        return write_half(folder)
    except OnnxError as error:
        raise SystemExit(f"{card.name}: {error}") from error


def _batches(texts: Sequence[TokenizedText], batch_tokens: int) -> list[list[TokenizedText]]:
    batches: list[list[TokenizedText]] = [[]]
    for text in texts:
        if batches[-1] and (len(batches[-1]) + 1) * text.tokens > batch_tokens:
            batches.append([])
        batches[-1].append(text)
    return batches


def _run(session: ModelSession, batch: Batch) -> Floats:
    return session.run(*batch, outputs=("embeddings",))[0]


def _embed(run: Run, batches: Sequence[Batch]) -> Floats:
    return np.concatenate([run(batch) for batch in batches])


def _unit(vectors: Floats) -> Floats:
    unit: Floats = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit


def _overlap(found: Floats, reference: Floats) -> float:
    """Share of the reference's best hits that are among the found ones, over the first queries."""
    shares = []
    for query in range(min(QUERIES, len(reference))):
        best = [set(np.argsort(-(vectors @ vectors[query]), kind="stable")[:TOP]) for vectors in (found, reference)]
        shares.append(len(best[0] & best[1]) / len(best[1]))
    return float(np.mean(shares))


def progress(message: str) -> None:
    """Says on stderr how far it is."""
    print(message, file=sys.stderr, flush=True)


def _print(report: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(report, indent=2))
        return
    if "reason" in report:
        print(f"no GPU: {report['reason']}")
        return
    if not report["figures_count"]:
        print("on the CPU: a try of the code, not a measurement")
    print(f"{report['device']}, {report['model']}, {report['passages']} passages, {report['tokens']} tokens")
    rows = {**report["rows"], **{f"torch {name}": row for name, row in report["torch"].get("rows", {}).items()}}
    for name, row in rows.items():
        near = "" if row["near"] else "  TOO FAR"
        print(
            f"{name:24} {row['texts_per_s']:10.1f} texts/s {row['one_text_ms']:8.2f} ms one text"
            f"  cosine {row['min_cosine']:.6f}  top 10 {row['top10_overlap']:.3f}{near}"
        )
    for name, value in report["ceilings"].items():
        print(f"{name:24} {value:10.2f}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--cpu", action="store_true", help="run the same code on the CPU, to try it")
    parser.add_argument("--device-id", type=int, default=0, help="which of the visible devices")
    parser.add_argument("--model", type=Path, help=f"model folder; without it {MODEL} is pulled")
    parser.add_argument("--passages", type=int, help="passages to embed; 4096, with --cpu 12")
    parser.add_argument("--batch-tokens", type=int, help="tokens of a batch, padding included; 16384, with --cpu 512")
    parser.add_argument("--cuda-graphs", type=int, help="most graphs to capture; 64, with --cpu 2")
    parser.add_argument("--rounds", type=int, help="rounds of which the median counts; 5, with --cpu 1")
    parser.add_argument("--torch-source", type=Path, help="the model in Hugging Face's layout, to compare with PyTorch")
    options = parser.parse_args()
    defaults = {"passages": (4096, 12), "batch_tokens": (16384, 512), "cuda_graphs": (64, 2), "rounds": (5, 1)}
    for name, (on_gpu, on_cpu) in defaults.items():
        if getattr(options, name) is None:
            setattr(options, name, on_cpu if options.cpu else on_gpu)
    return options


if __name__ == "__main__":
    raise SystemExit(main())
