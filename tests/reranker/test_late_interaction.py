"""Where no cross-encoder is installed, the embedding model's token vectors rerank."""

from pathlib import Path

import numpy as np
import pytest
from kbmesh.reranker.v1 import reranker_pb2 as pb2
from kbmesh_onnx.folder import load_card
from kbmesh_onnx.padding import pad
from kbmesh_onnx.session import ModelSession
from kbmesh_onnx.tokenizer import ModelTokenizer
from kbmesh_rpc.errors import Reason
from numpy.typing import NDArray
from reranker.calls import order, reason, serving


def token_vectors(folder: Path, text: str) -> NDArray[np.float32]:
    """Unit vectors of a text's tokens without [CLS] and [SEP]."""
    card = load_card(folder)
    rows = ModelTokenizer.load(folder, card).encode([text], max_tokens=card.max_tokens)
    (hidden,) = ModelSession.open(folder, card).run(*pad(rows), outputs=("token_embeddings",))
    content = hidden[0, 1:-1]
    return content / np.linalg.norm(content, axis=1, keepdims=True)


async def test_max_sim_is_the_mean_of_the_best_cosines(models_folder: Path) -> None:
    query = "how do I rotate the key"
    documents = ["Cake recipe with lemon", "Keys are rotated with `vault rotate`.", "The port is 8443."]
    async with serving(models=models_folder) as reranker:
        response = await reranker.rerank(query, documents)
        (model,) = await reranker.models()
    assert response.method == model.method == pb2.METHOD_LATE_INTERACTION
    assert model.backend == "late_interaction"
    assert order(response)[0] == 1
    asked = token_vectors(models_folder / "all-MiniLM-L6-v2", query)
    for result in response.results:
        read = token_vectors(models_folder / "all-MiniLM-L6-v2", documents[result.index])
        assert result.max_sim == pytest.approx((asked @ read.T).max(axis=1).mean(), abs=1e-4)
        assert result.receipt.tokens == len(read)
        assert not result.HasField("logit")
        assert not result.HasField("probability")


async def test_an_answer_at_the_end_of_a_long_document_is_found(models_folder: Path) -> None:
    """RRK-06: a long document is compared in windows, taking the best of each query token."""
    documents = ["unrelated text", "pad " * 900 + "the port is 8443"]
    async with serving(models=models_folder) as reranker:
        response = await reranker.rerank("which port", documents)
    async with serving(models=models_folder, max_windows=2) as reranker:
        cut = await reranker.rerank("which port", ["pad " * 900])
    assert order(response) == [1, 0]
    receipt = response.results[0].receipt
    assert receipt.windows > 1
    assert receipt.tokens_cut == 0
    receipt = cut.results[0].receipt
    assert receipt.windows == 2
    assert receipt.tokens + receipt.tokens_cut == 900


async def test_a_query_without_any_token_is_refused(models_folder: Path) -> None:
    async with serving(models=models_folder) as reranker:
        assert (await reranker.refusal("\u200b", ["text"])).reason is Reason.EMPTY_TEXT
        response = await reranker.rerank("text", ["\u200b", "text"])
    assert order(response) == [1, 0]
    assert response.results[0].max_sim == pytest.approx(1.0, abs=1e-4)
    assert reason(response.results[1].error) is Reason.EMPTY_TEXT
