"""Somebody who has a client of text-embeddings-inference points it at a reranker."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from kbmesh_onnx.folder import load_card
from kbmesh_onnx.tokenizer import TokenizedText
from opened_model import OpenedModel
from tei_process import TeiClient, call, generate_stubs, service_process

MINILM = "all-MiniLM-L6-v2"
CROSS_ENCODER = "tiny-ce"
QUERY = "which port"
TEXTS = ["the cake is lazy", "the port of the server is red", "rotate the key", "which port", "lemon"]
LONG = "fox jumps over the lazy dog " * 60


@pytest.fixture(scope="module")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return generate_stubs(tmp_path_factory.mktemp("stubs"))


@pytest.fixture(scope="module")
def tei(models_folder: Path, stubs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TeiClient]:
    """A client of a reranker with a cross-encoder of random weights; both are processes."""
    log = tmp_path_factory.mktemp("log") / "reranker.log"
    with service_process("kbmesh_reranker", log=log, models=models_folder, model=CROSS_ENCODER) as target:
        yield TeiClient(stubs, target)


@pytest.fixture(scope="module")
def model(models_folder: Path) -> Iterator[OpenedModel]:
    """The same model, opened here."""
    folder = models_folder / CROSS_ENCODER
    opened = OpenedModel.open(folder, load_card(folder))
    yield opened
    opened.close()


def logits(model: OpenedModel, query: str, texts: list[str]) -> np.ndarray:
    """Of pairs as `tokenizers` encodes them, cut by it at the end."""
    return cut_logits(model, query, texts, "right")


def cut_logits(model: OpenedModel, query: str, texts: list[str], direction: str) -> np.ndarray:
    library = model.tokenizer.library_tokenizer
    library.enable_truncation(128, strategy="longest_first", direction=direction)
    try:
        encodings = [library.encode(query, text) for text in texts]
    finally:
        library.no_truncation()
    rows = [
        TokenizedText(
            ids=np.array(encoding.ids), type_ids=np.array(encoding.type_ids), tokens=len(encoding), tokens_cut=0
        )
        for encoding in encodings
    ]
    return np.concatenate([model.run([row], "logits")[:, 0] for row in rows])


def ranks(result: dict) -> list[tuple[int, float]]:
    assert result["code"] == "OK", result["details"]
    return [(rank["index"], rank["score"]) for rank in result["responses"][0]["ranks"]]


def test_info(tei: TeiClient) -> None:
    (info,) = tei.ask(call("Info/Info", {}))
    assert info["responses"][0]["model_type"] == "MODEL_TYPE_RERANKER"
    assert info["responses"][0]["model_id"] == CROSS_ENCODER
    assert info["responses"][0]["max_client_batch_size"] == 1000
    assert info["responses"][0]["max_input_length"] == 128


def test_texts_come_best_first_with_probabilities_or_logits(tei: TeiClient, model: OpenedModel) -> None:
    request = {"query": QUERY, "texts": TEXTS}
    plain, raw, with_text = tei.ask(
        call("Rerank/Rerank", request),
        call("Rerank/Rerank", {**request, "raw_scores": True}),
        call("Rerank/Rerank", {**request, "return_text": True}),
    )
    expected = logits(model, QUERY, TEXTS)
    best_first = np.argsort(-expected).tolist()
    assert [index for index, _ in ranks(raw)] == best_first
    np.testing.assert_allclose([score for _, score in ranks(raw)], expected[best_first], atol=1e-4)
    np.testing.assert_allclose([score for _, score in ranks(plain)], 1 / (1 + np.exp(-expected[best_first])), atol=1e-4)
    assert [index for index, _ in ranks(plain)] == best_first
    assert all("text" not in rank for rank in plain["responses"][0]["ranks"])
    assert [rank["text"] for rank in with_text["responses"][0]["ranks"]] == [TEXTS[index] for index in best_first]
    metadata = plain["responses"][0]["metadata"]
    assert metadata["compute_chars"] == len(QUERY) * len(TEXTS) + sum(map(len, TEXTS))
    assert metadata["compute_tokens"] == sum(
        len(model.tokenizer.library_tokenizer.encode(QUERY, text)) for text in TEXTS
    )
    assert int(metadata["inference_time_ns"]) > 0


def test_of_equal_texts_the_later_one_goes_first(tei: TeiClient) -> None:
    """That server sorts upwards, keeping the order of equals, and turns the list round."""
    (result,) = tei.ask(call("Rerank/Rerank", {"query": QUERY, "texts": ["port", "port", "port"]}))
    assert [index for index, _ in ranks(result)] == [2, 1, 0]
    assert len({score for _, score in ranks(result)}) == 1


@pytest.mark.parametrize("query", [QUERY, "which port is the port of the server " * 20])
def test_a_text_over_the_limit_is_cut_where_the_caller_says_or_refused(
    tei: TeiClient, model: OpenedModel, query: str
) -> None:
    request = {"query": query, "texts": [f"{LONG} port", "lemon"], "raw_scores": True}
    refused, right, left = tei.ask(
        call("Rerank/Rerank", request),
        call("Rerank/Rerank", {**request, "truncate": True}),
        call("Rerank/Rerank", {**request, "truncate": True, "truncation_direction": "TRUNCATION_DIRECTION_LEFT"}),
    )
    assert refused["code"] == "INVALID_ARGUMENT"
    assert "128" in refused["details"]
    for result, direction in ((right, "right"), (left, "left")):
        expected = cut_logits(model, query, request["texts"], direction)
        scores = dict(ranks(result))
        np.testing.assert_allclose([scores[0], scores[1]], expected, atol=1e-4)


def test_a_blank_text_is_scored_and_a_blank_query_refused(tei: TeiClient, model: OpenedModel) -> None:
    blank_text, blank_query, no_text, too_many = tei.ask(
        call("Rerank/Rerank", {"query": QUERY, "texts": ["port", " "], "raw_scores": True}),
        call("Rerank/Rerank", {"query": " ", "texts": ["port"]}),
        call("Rerank/Rerank", {"query": QUERY, "texts": []}),
        call("Rerank/Rerank", {"query": QUERY, "texts": ["port"] * 1001}),
    )
    scores = dict(ranks(blank_text))
    np.testing.assert_allclose([scores[0], scores[1]], logits(model, QUERY, ["port", " "]), atol=1e-4)
    assert [each["code"] for each in (blank_query, no_text, too_many)] == ["INVALID_ARGUMENT"] * 3


def test_a_stream_is_ranked_as_one_list(tei: TeiClient, model: OpenedModel) -> None:
    first, *others = TEXTS
    streamed, unary, empty, two_queries = tei.ask(
        call(
            "Rerank/RerankStream",
            {"query": QUERY, "text": first, "raw_scores": True, "return_text": True},
            # The server considers the first message's options only.
            *({"query": QUERY, "text": text} for text in others),
        ),
        call("Rerank/Rerank", {"query": QUERY, "texts": TEXTS, "raw_scores": True, "return_text": True}),
        call("Rerank/RerankStream"),
        call(
            "Rerank/RerankStream",
            {"query": QUERY, "text": "port", "raw_scores": True},
            {"query": "cake recipe", "text": "port"},
            {"query": QUERY, "text": "lemon", "truncate": True},
        ),
    )
    assert streamed["responses"][0]["ranks"] == unary["responses"][0]["ranks"]
    assert empty["code"] == "INVALID_ARGUMENT"
    scores = dict(ranks(two_queries))
    expected = np.concatenate(
        [logits(model, QUERY, ["port"]), logits(model, "cake recipe", ["port"]), logits(model, QUERY, ["lemon"])]
    )
    np.testing.assert_allclose([scores[index] for index in range(3)], expected, atol=1e-4)


def test_tokens(tei: TeiClient) -> None:
    tokens, prompt, decoded = tei.ask(
        call("Tokenize/Tokenize", {"inputs": "port key", "add_special_tokens": True}),
        call("Tokenize/Tokenize", {"inputs": "port", "prompt_name": "query"}),
        call("Tokenize/Decode", {"ids": [2, 5], "skip_special_tokens": True}),
    )
    assert [token["text"] for token in tokens["responses"][0]["tokens"]] == ["[CLS]", "port", "key", "[SEP]"]
    assert prompt["code"] == "INVALID_ARGUMENT"
    assert decoded["responses"][0]["text"] == "a"


def test_what_it_does_not_serve_is_refused_with_a_reason(tei: TeiClient) -> None:
    results = tei.ask(
        call("Embed/Embed", {"inputs": "text"}),
        call("Embed/EmbedStream", {"inputs": "text"}),
        call("Predict/Predict", {"inputs": "text"}),
    )
    assert [result["code"] for result in results] == ["UNIMPLEMENTED"] * 3
    assert all("grpc-status-details-bin" in result["trailing"] for result in results)


def test_late_interaction_has_raw_scores_only(models_folder: Path, stubs: Path, tmp_path: Path) -> None:
    """A similarity is no probability, and is not passed off as one."""
    log = tmp_path / "reranker.log"
    texts = ["The service listens on port 7402.", "A recipe for lemon cake."]
    with service_process("kbmesh_reranker", log=log, models=models_folder, model=MINILM) as target:
        probability, raw, refused, cut = TeiClient(stubs, target).ask(
            call("Rerank/Rerank", {"query": "Which port?", "texts": texts}),
            call("Rerank/Rerank", {"query": "Which port?", "texts": texts[::-1], "raw_scores": True}),
            call("Rerank/Rerank", {"query": "Which port?", "texts": [LONG], "raw_scores": True}),
            call("Rerank/Rerank", {"query": "Which port?", "texts": [LONG], "raw_scores": True, "truncate": True}),
        )
    assert probability["code"] == "UNIMPLEMENTED"
    assert "raw_scores" in probability["details"]
    assert [index for index, _ in ranks(raw)] == [1, 0]
    assert refused["code"] == "INVALID_ARGUMENT"
    assert len(ranks(cut)) == 1
