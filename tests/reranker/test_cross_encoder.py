"""A cross-encoder reads query and document together."""

import json
import math
import shutil
from pathlib import Path

import pytest
from kbmesh.reranker.v1 import reranker_pb2 as pb2
from kbmesh_onnx.errors import ModelFolderError
from kbmesh_onnx.folder import load_card
from kbmesh_onnx.padding import pad
from kbmesh_onnx.session import ModelSession
from kbmesh_onnx.tokenizer import ModelTokenizer
from kbmesh_reranker.application import make_application
from kbmesh_reranker.settings import RerankerSettings
from prometheus_client import REGISTRY
from reranker.calls import order, serving


def logits_of_windows(folder: Path, query: str, document: str) -> list[float]:
    """What the model gives for each window of a document, one at a time."""
    card = load_card(folder)
    (pair,) = ModelTokenizer.load(folder, card).encode_pairs(query, [document], max_tokens=card.max_tokens)
    session = ModelSession.open(folder, card)
    return [float(session.run(*pad([window]), outputs=("logits",))[0][0, 0]) for window in pair.windows]


async def test_results_carry_logit_and_probability_best_first(models_folder: Path) -> None:
    documents = ["the port is long", "a red fox", "the cat jumps over the lazy dog", "reset password"]
    async with serving(models=models_folder, model="tiny-ce") as reranker:
        response = await reranker.rerank("which port", documents)
        (model,) = await reranker.models()
    assert response.method == pb2.METHOD_CROSS_ENCODER
    assert (model.name, model.method, model.backend) == ("tiny-ce", pb2.METHOD_CROSS_ENCODER, "onnx")
    assert (response.model, response.model_fingerprint) == ("tiny-ce", model.fingerprint)
    assert sorted(order(response)) == [0, 1, 2, 3]
    logits = [result.logit for result in response.results]
    assert logits == sorted(logits, reverse=True)
    for result in response.results:
        (expected,) = logits_of_windows(models_folder / "tiny-ce", "which port", documents[result.index])
        assert result.logit == pytest.approx(expected, abs=1e-4)
        assert result.probability == pytest.approx(1 / (1 + math.exp(-result.logit)))
        assert not result.HasField("max_sim")
        assert (result.receipt.windows, result.receipt.tokens_cut) == (1, 0)
    assert response.timings.infer_ms > 0


async def test_a_long_document_takes_the_maximum_of_its_windows(models_folder: Path) -> None:
    """RRK-06: nothing of a long document is unread, and it fails no other."""
    documents = ["pad " * 900 + "the port is 8443", "unrelated text"]
    async with serving(models=models_folder, model="tiny-ce") as reranker:
        response = await reranker.rerank("which port", documents)
    results = {result.index: result for result in response.results}
    windows = logits_of_windows(models_folder / "tiny-ce", "which port", documents[0])
    assert results[0].receipt.windows == len(windows) > 1
    assert results[0].receipt.tokens_cut == 0
    assert results[0].logit == pytest.approx(max(windows), abs=1e-4)
    assert results[1].receipt.windows == 1
    assert not results[1].HasField("error")


async def test_only_the_document_is_cut_and_its_receipt_says_so(models_folder: Path) -> None:
    """RRK-05: the query stays whole beside a document that is far too long."""
    filler = "filler " * 2000
    cut_queries = REGISTRY.get_sample_value("kbmesh_reranker_truncated_queries_total", {"model": "tiny-ce"}) or 0.0
    async with serving(models=models_folder, model="tiny-ce", max_windows=2) as reranker:
        asked = await reranker.rerank("q " * 40 + "port", [filler, "short"])
        other = await reranker.rerank("q " * 40 + "cake", [filler, "short"])
    results = {result.index: result for result in asked.results}
    assert results[0].receipt.windows == 2
    assert results[0].receipt.tokens + results[0].receipt.tokens_cut == 2000
    assert results[0].receipt.tokens_cut > 0
    assert results[1].receipt.tokens_cut == 0
    # The last word of the query was read.
    assert results[0].logit != pytest.approx(next(r.logit for r in other.results if r.index == 0), abs=1e-3)
    assert REGISTRY.get_sample_value("kbmesh_reranker_truncated_queries_total", {"model": "tiny-ce"}) == cut_queries


async def test_equal_documents_keep_their_order_in_every_call(models_folder: Path) -> None:
    """RRK-07: ties break by the place in the request."""
    documents = ["same text", "other", "same text", "same text"]
    async with serving(models=models_folder, model="tiny-ce") as reranker:
        responses = [await reranker.rerank("same", documents) for _ in range(100)]
    assert len({tuple(order(response)) for response in responses}) == 1
    same = [result for result in responses[0].results if result.index != 1]
    assert [result.index for result in same] == [0, 2, 3]
    assert len({result.logit for result in same}) == 1


async def test_a_kind_of_model_that_is_not_served_is_refused_at_the_start(models_folder: Path, tmp_path: Path) -> None:
    """RRK-08: a generative reranker, whose prompt we could not keep whole, is not loaded."""
    shutil.copytree(models_folder / "tiny-ce", tmp_path / "generative")
    card = json.loads((tmp_path / "generative" / "kbmesh.json").read_text())
    (tmp_path / "generative" / "kbmesh.json").write_text(json.dumps(card | {"kind": "generative"}))
    settings = RerankerSettings(port=0, metrics_port=0, models=tmp_path, model="generative", load_retry_seconds=0)
    application = await make_application(settings)
    with pytest.raises(ModelFolderError, match="generative"):
        await application.warm_up()


@pytest.mark.parametrize(("backend", "model"), [("onnx", "all-MiniLM-L6-v2"), ("late_interaction", "tiny-ce")])
async def test_a_backend_refuses_a_model_of_the_other_kind(models_folder: Path, backend: str, model: str) -> None:
    settings = RerankerSettings(
        port=0, metrics_port=0, models=models_folder, model=model, backend=backend, load_retry_seconds=0
    )
    application = await make_application(settings)
    with pytest.raises(ModelFolderError, match="kind"):
        await application.warm_up()
