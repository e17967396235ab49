"""Somebody who has a client of text-embeddings-inference points it at an embedder."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from kbmesh_onnx.folder import load_card
from opened_model import OpenedModel
from tei_process import TeiClient, call, generate_stubs, service_process

MINILM = "all-MiniLM-L6-v2"
QUESTION = "What is Deep Learning?"
LONG = "alpha " * 600


@pytest.fixture(scope="module")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return generate_stubs(tmp_path_factory.mktemp("stubs"))


@pytest.fixture(scope="module")
def tei(models_folder: Path, stubs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TeiClient]:
    """A client of an embedder with the real model; both are processes."""
    log = tmp_path_factory.mktemp("log") / "embedder.log"
    with service_process("kbmesh_embedder", log=log, models=models_folder) as target:
        yield TeiClient(stubs, target)


@pytest.fixture(scope="module")
def model(models_folder: Path) -> Iterator[OpenedModel]:
    """The same model, opened here."""
    folder = models_folder / MINILM
    opened = OpenedModel.open(folder, load_card(folder))
    yield opened
    opened.close()


def vector(result: dict) -> np.ndarray:
    assert result["code"] == "OK", result["details"]
    return np.array(result["responses"][0]["embeddings"], dtype=np.float32)


def test_info_and_one_vector(tei: TeiClient, model: OpenedModel) -> None:
    info, unit, plain = tei.ask(
        call("Info/Info", {}),
        call("Embed/Embed", {"inputs": QUESTION, "truncate": True, "normalize": True}),
        call("Embed/Embed", {"inputs": QUESTION}),
    )
    description = info["responses"][0]
    assert description["model_id"] == MINILM
    assert description["model_sha"] == model.card.fingerprint
    assert (description["model_type"], description["model_dtype"]) == ("MODEL_TYPE_EMBEDDING", "float32")
    assert (description["max_input_length"], description["max_batch_tokens"]) == (256, 512)
    assert description["max_client_batch_size"] == 2048
    assert description["max_concurrent_requests"] == 524_288 // 256
    assert description["version"]
    np.testing.assert_allclose(vector(unit), model.embed([QUESTION])[0], atol=1e-5)
    # Where unit length is not asked for, the mean of the tokens' vectors comes as it is.
    (row,) = model.tokenizer.encode([QUESTION], max_tokens=256)
    hidden = model.run([row], "token_embeddings")[0]
    np.testing.assert_allclose(vector(plain), hidden.mean(axis=0), atol=1e-5)
    assert np.linalg.norm(vector(plain)) > 2
    metadata = unit["responses"][0]["metadata"]
    assert (metadata["compute_chars"], metadata["compute_tokens"]) == (len(QUESTION), row.tokens)
    parts = ("tokenization_time_ns", "queue_time_ns", "inference_time_ns")
    assert all(int(metadata[part]) > 0 for part in parts)
    assert int(metadata["total_time_ns"]) >= sum(int(metadata[part]) for part in parts)


def test_a_text_over_the_limit_is_cut_where_the_caller_says_or_refused(tei: TeiClient, model: OpenedModel) -> None:
    """EMB-03: nothing is cut in silence."""
    text = f"{LONG} ENDS WITH CATS"
    refused, right, left = tei.ask(
        call("Embed/Embed", {"inputs": text, "normalize": True}),
        call("Embed/Embed", {"inputs": text, "truncate": True, "normalize": True}),
        call(
            "Embed/Embed",
            {
                "inputs": text,
                "truncate": True,
                "normalize": True,
                "truncation_direction": "TRUNCATION_DIRECTION_LEFT",
            },
        ),
    )
    assert refused["code"] == "INVALID_ARGUMENT"
    assert "256" in refused["details"]
    assert "grpc-status-details-bin" in refused["trailing"]
    for result, truncation in ((right, "end"), (left, "start")):
        rows = model.tokenizer.encode([text], max_tokens=256, truncation=truncation)
        np.testing.assert_allclose(vector(result), model.run(rows, "embeddings")[0], atol=1e-5)
        assert result["responses"][0]["metadata"]["compute_tokens"] == 256
    assert not np.allclose(vector(right), vector(left), atol=1e-3)


def test_a_vector_is_shortened_before_it_is_scaled(tei: TeiClient) -> None:
    whole, short, short_unit, *refused = tei.ask(
        call("Embed/Embed", {"inputs": QUESTION}),
        call("Embed/Embed", {"inputs": QUESTION, "dimensions": 64}),
        call("Embed/Embed", {"inputs": QUESTION, "dimensions": 64, "normalize": True}),
        call("Embed/Embed", {"inputs": QUESTION, "dimensions": 0}),
        call("Embed/Embed", {"inputs": QUESTION, "dimensions": 385}),
    )
    np.testing.assert_allclose(vector(short), vector(whole)[:64], atol=1e-6)
    np.testing.assert_allclose(vector(short_unit), vector(short) / np.linalg.norm(vector(short)), atol=1e-6)
    assert [result["code"] for result in refused] == ["INVALID_ARGUMENT"] * 2


def test_a_stream_answers_in_the_order_of_its_requests(tei: TeiClient) -> None:
    texts = [("word " * (40 - index)).strip() for index in range(40)]
    streamed, *alone = tei.ask(
        call("Embed/EmbedStream", *({"inputs": text, "normalize": True} for text in texts)),
        *(call("Embed/Embed", {"inputs": text, "normalize": True}) for text in texts[:3]),
    )
    assert streamed["code"] == "OK"
    assert [each["metadata"]["compute_tokens"] for each in streamed["responses"]] == [42 - index for index in range(40)]
    for response, result in zip(streamed["responses"], alone, strict=False):
        np.testing.assert_allclose(response["embeddings"], vector(result), atol=1e-5)


def test_the_first_text_that_fails_ends_the_stream_after_the_answers_before_it(tei: TeiClient) -> None:
    (streamed,) = tei.ask(
        call("Embed/EmbedStream", {"inputs": "one"}, {"inputs": "two"}, {"inputs": ""}, {"inputs": "four"})
    )
    assert streamed["code"] == "INVALID_ARGUMENT"
    assert len(streamed["responses"]) == 2


def test_a_vector_for_each_token(tei: TeiClient, model: OpenedModel) -> None:
    one, streamed = tei.ask(
        call("Embed/EmbedAll", {"inputs": QUESTION}),
        call("Embed/EmbedAllStream", {"inputs": QUESTION}, {"inputs": "port"}),
    )
    (row,) = model.tokenizer.encode([QUESTION], max_tokens=256)
    tokens = np.array([each["embeddings"] for each in one["responses"][0]["token_embeddings"]])
    np.testing.assert_allclose(tokens, model.run([row], "token_embeddings")[0], atol=1e-5)
    assert [len(each["token_embeddings"]) for each in streamed["responses"]] == [row.tokens, 3]


def test_tokens_of_a_text_and_back(tei: TeiClient) -> None:
    text = "héllo 東京 reranking"
    full, bare, streamed, decoded, whole, unknown, empty = tei.ask(
        call("Tokenize/Tokenize", {"inputs": text, "add_special_tokens": True}),
        call("Tokenize/Tokenize", {"inputs": text}),
        call("Tokenize/TokenizeStream", {"inputs": "one two"}, {"inputs": "three"}),
        call("Tokenize/Decode", {"ids": [101, 7592, 2088, 102], "skip_special_tokens": True}),
        call("Tokenize/DecodeStream", {"ids": [101, 7592, 102]}, {"ids": [2088]}),
        call("Tokenize/Decode", {"ids": [7592, 30522]}),
        call("Tokenize/Decode", {"ids": []}),
    )
    tokens = full["responses"][0]["tokens"]
    assert [token["id"] for token in tokens] == [101, 7592, 1879, 1755, 2128, 26763, 2075, 102]
    assert [token["text"] for token in tokens[1:-1]] == ["héllo", "東", "京", "re", "rank", "ing"]
    assert [token["special"] for token in tokens] == [True, *[False] * 6, True]
    assert tokens[0] == {"id": 101, "text": "[CLS]", "special": True}
    # Places are those of bytes, as in that server.
    encoded = text.encode()
    assert [encoded[token["start"] : token["stop"]].decode() for token in tokens[1:-1]] == [
        token["text"] for token in tokens[1:-1]
    ]
    assert bare["responses"][0]["tokens"] == tokens[1:-1]
    assert [len(each["tokens"]) for each in streamed["responses"]] == [2, 1]
    assert decoded["responses"][0]["text"] == "hello world"
    assert [each["text"] for each in whole["responses"]] == ["[CLS] hello [SEP]", "world"]
    assert (unknown["code"], empty["code"]) == ("INVALID_ARGUMENT", "INVALID_ARGUMENT")
    assert "ids[1]" in unknown["details"]


def test_what_the_model_cannot_do_is_refused_with_a_reason(tei: TeiClient) -> None:
    results = tei.ask(
        call("Embed/EmbedSparse", {"inputs": "text"}),
        call("Embed/EmbedSparseStream", {"inputs": "text"}),
        call("Predict/Predict", {"inputs": "text"}),
        call("Predict/PredictPair", {"inputs": ["one", "two"]}),
        call("Predict/PredictStream", {"inputs": "text"}),
        call("Predict/PredictPairStream", {"inputs": ["one"]}),
        call("Rerank/Rerank", {"query": "query", "texts": ["text"]}),
        call("Rerank/RerankStream", {"query": "query", "text": "text"}),
    )
    assert [result["code"] for result in results] == ["UNIMPLEMENTED"] * len(results)
    assert all("grpc-status-details-bin" in result["trailing"] for result in results)


def test_bad_input(tei: TeiClient) -> None:
    empty, prompt, direction, blank, deadline = tei.ask(
        call("Embed/Embed", {"inputs": ""}),
        call("Embed/Embed", {"inputs": "text", "prompt_name": "poem"}),
        call("Embed/Embed", {"inputs": "text", "truncation_direction": 7}),
        call("Embed/Embed", {"inputs": "   ", "normalize": True}),
        call("Embed/Embed", {"inputs": "text"}, timeout=0.0001),
    )
    assert (empty["code"], prompt["code"], direction["code"]) == ("INVALID_ARGUMENT",) * 3
    assert "prompt_name" in prompt["details"]
    assert "truncation_direction" in direction["details"]
    # As in that server, a text of blanks has the vector of no text.
    np.testing.assert_allclose(np.linalg.norm(vector(blank)), 1, atol=1e-5)
    assert deadline["code"] == "DEADLINE_EXCEEDED"


def test_short_texts_at_once_never_come_back_empty(tei: TeiClient) -> None:
    """EMB-02: very short texts under concurrency."""
    texts = ["a", "?", "1", "é", "的"]
    alone = tei.ask(*(call("Embed/Embed", {"inputs": text, "normalize": True}) for text in texts))
    together = tei.ask_at_once([call("Embed/Embed", {"inputs": text, "normalize": True}) for text in texts * 40])
    for index, result in enumerate(together):
        np.testing.assert_allclose(vector(result), vector(alone[index % len(texts)]), atol=1e-5)


def test_overload_refuses_calls_and_holds_streams_back(models_folder: Path, stubs: Path, tmp_path: Path) -> None:
    log = tmp_path / "embedder.log"
    with service_process("kbmesh_embedder", log=log, models=models_folder, queue_tokens=512) as target:
        client = TeiClient(stubs, target)
        texts = [f"{index} " + "the port of the service " * 12 for index in range(30)]
        calls = [call("Embed/Embed", {"inputs": text, "truncate": True}) for text in texts]
        codes = {result["code"] for result in client.ask_at_once(calls)}
        assert codes == {"OK", "RESOURCE_EXHAUSTED"}
        streams = [
            call("Embed/EmbedStream", *({"inputs": text, "truncate": True} for text in texts[:4]), timeout=60)
            for _ in range(3)
        ]
        results = client.ask_at_once(streams)
        assert [(result["code"], len(result["responses"])) for result in results] == [("OK", 4)] * 3
