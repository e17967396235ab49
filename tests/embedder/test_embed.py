"""An agent platform embeds its texts with the real model."""

import asyncio

import numpy as np
from embedder.calls import Embedder, matrix, reason
from hypothesis import given, settings
from hypothesis import strategies as st
from kbmesh.embedder.v1 import embedder_pb2 as pb2
from kbmesh_embedder.encoding import Encoding, encode
from kbmesh_rpc.errors import Reason
from prometheus_client import REGISTRY


async def test_vectors_come_with_receipts_model_and_timings(embedder: Embedder) -> None:
    response = await embedder.embed(["Hello world", "How do I reset my password?"])
    vectors = matrix(response)
    assert vectors.shape == (2, 384)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert [receipt.tokens for receipt in response.receipts] == [4, 9]
    assert [receipt.tokens_cut for receipt in response.receipts] == [0, 0]
    assert response.model == "all-MiniLM-L6-v2"
    assert response.model_fingerprint
    assert response.timings.infer_ms > 0
    assert response.timings.tokenize_ms > 0


async def test_a_question_lies_nearer_to_its_answer_than_to_a_recipe(embedder: Embedder) -> None:
    """EMB-08: pooling is the model's own, so that the ranking is right."""
    (query,) = await embedder.vectors(["reset a forgotten password"], input_type=pb2.INPUT_TYPE_QUERY)
    access, cake = await embedder.vectors(["How to recover account access", "Cake recipe with lemon"])
    assert query @ access > query @ cake + 0.2


async def test_short_texts_under_concurrency_are_never_empty(embedder: Embedder) -> None:
    """EMB-02: each of many concurrent one-letter texts has the vector that it has alone."""
    texts = ["a", "?", "1", "é", "的"]
    alone = {text: (await embedder.vectors([text]))[0] for text in texts}
    asked = [texts[number % len(texts)] for number in range(500)]
    lanes = asyncio.Semaphore(32)

    async def ask(text: str) -> None:
        async with lanes:
            (vector,) = await embedder.vectors([text])
        np.testing.assert_allclose(vector, alone[text], atol=1e-5)

    async with asyncio.TaskGroup() as group:
        for text in asked:
            group.create_task(ask(text))


async def test_two_long_texts_that_differ_at_the_end_say_that_they_were_cut(embedder: Embedder) -> None:
    """EMB-03: receipts tell how much was read and cut, the metric rises, and from the start the ends do differ."""
    texts = ["alpha " * 600 + "ENDS WITH CATS", "alpha " * 600 + "ENDS WITH SHIPS"]
    before = _metric("kbmesh_embedder_truncated_texts_total")
    response = await embedder.embed(texts)
    assert [receipt.tokens for receipt in response.receipts] == [256, 256]
    counts = await embedder.stub.CountTokens(pb2.CountTokensRequest(texts=texts))
    for receipt, count in zip(response.receipts, counts.counts, strict=True):
        assert receipt.tokens + receipt.tokens_cut == count.tokens
        assert count.tokens > counts.max_tokens == 256
    assert _metric("kbmesh_embedder_truncated_texts_total") == before + 2

    cats, ships = matrix(response)
    np.testing.assert_allclose(cats, ships, atol=1e-5)
    cats, ships = await embedder.vectors(texts, truncation=pb2.TRUNCATION_START)
    assert cats @ ships < 0.99


async def test_a_text_that_may_not_be_cut_fails_alone(embedder: Embedder) -> None:
    """EMB-03: NONE refuses, per text."""
    response = await embedder.embed(["alpha " * 600, "short"], truncation=pb2.TRUNCATION_NONE)
    long, short = response.receipts
    assert reason(long.error) is Reason.TEXT_TOO_LONG
    assert long.error.metadata == {"tokens": "602", "limit": "256"}
    assert not short.HasField("error")
    vectors = matrix(response)
    assert not vectors[0].any()
    np.testing.assert_allclose(np.linalg.norm(vectors[1]), 1, atol=1e-5)


async def test_a_vector_does_not_depend_on_its_batch_mates(embedder: Embedder) -> None:
    """EMB-06 (fp32) and EMB-07: padding is masked, whatever stands in the rest of the batch."""
    text = "rotate the key"
    (alone,) = await embedder.vectors([text])
    for padding in (16, 64, 256):
        for mates in (1, 3, 16):
            texts = [text, *(f"{number} " + "much longer sentence " * (padding // 4) for number in range(mates))]
            vectors = await embedder.vectors(texts)
            assert alone @ vectors[0] >= 0.9999
            np.testing.assert_allclose(vectors[0], alone, atol=1e-5)


async def test_blank_texts_fail_alone(embedder: Embedder) -> None:
    response = await embedder.embed(["", " \n\t", "text", "\u200b\u0000"])
    vectors = matrix(response)
    for index in (0, 1, 3):
        receipt = response.receipts[index]
        assert reason(receipt.error) is Reason.EMPTY_TEXT
        assert receipt.error.metadata == {"field": f"texts[{index}]"}
        assert receipt.tokens == 0
        assert not vectors[index].any()
    assert not response.receipts[2].HasField("error")
    assert vectors[2].any()


async def test_equal_texts_have_the_very_same_vector(embedder: Embedder) -> None:
    first, _, second = await embedder.vectors(["same text", "a longer neighbour of both", "same text"])
    assert (first == second).all()


async def test_a_caller_who_expects_another_model_is_refused(embedder: Embedder) -> None:
    """EMB-09: vectors of two models never mix, even at the same dimension."""
    (model,) = (await embedder.stub.ListModels(pb2.ListModelsRequest())).models
    await embedder.embed(["text"], expected_fingerprint=model.fingerprint)
    error = await embedder.refusal(["text"], expected_fingerprint="0" * 64)
    assert error.reason is Reason.MODEL_MISMATCH
    assert error.metadata == {
        "model": model.name,
        "expected_fingerprint": "0" * 64,
        "actual_fingerprint": model.fingerprint,
    }


async def test_smaller_encodings_say_nearly_the_same(embedder: Embedder) -> None:
    texts = ["The port is 8443.", "Cake recipe with lemon"]
    whole = await embedder.vectors(texts)
    for encoding, size, cosine in ((pb2.ENCODING_FLOAT16, 2, 0.99999), (pb2.ENCODING_INT8, 1, 0.999)):
        response = await embedder.embed(texts, encoding=encoding)
        assert len(response.vectors.data) == 2 * 384 * size
        smaller = matrix(response)
        cosines = (whole * smaller).sum(axis=1) / np.linalg.norm(smaller, axis=1)
        assert (cosines >= cosine).all()


async def test_token_offsets_are_code_points_of_the_text(embedder: Embedder) -> None:
    text = "naïve 🦄 parsing"
    response = await embedder.stub.CountTokens(pb2.CountTokensRequest(texts=[text], return_offsets=True))
    (count,) = response.counts
    pieces = [text[start:end] for start, end in zip(count.starts, count.ends, strict=True)]
    assert pieces == ["naïve", "🦄", "par", "sing"]
    assert count.tokens == len(pieces) + 2


async def test_the_model_is_listed_with_what_it_runs_on(embedder: Embedder) -> None:
    (model,) = (await embedder.stub.ListModels(pb2.ListModelsRequest())).models
    assert (model.name, model.dimension, model.max_tokens) == ("all-MiniLM-L6-v2", 384, 256)
    assert (model.device, model.precision, model.backend) == ("cpu", "fp32", "onnx")
    assert (model.pooling, model.normalized) == ("mean", True)
    assert model.ready
    assert model.is_default


# Vectors of models are of about unit length: numbers that no float32 can divide by 127 are none of theirs.
_NUMBERS = st.floats(-1e4, 1e4, width=32).map(lambda number: number if abs(number) > 1e-30 else 0.0)


@given(st.lists(st.lists(_NUMBERS, min_size=3, max_size=3), min_size=1, max_size=5))
@settings(max_examples=100, deadline=None)
def test_int8_is_off_by_half_a_step_at_most(rows: list[list[float]]) -> None:
    vectors = np.array(rows, dtype=np.float32)
    encoded = encode(vectors, Encoding.INT8)
    scales = np.array(encoded.scales)[:, np.newaxis]
    numbers = np.frombuffer(encoded.data, dtype=np.int8).reshape(vectors.shape) * scales
    assert (np.abs(numbers - vectors) <= scales * 0.5001).all()


def _metric(name: str) -> float:
    return REGISTRY.get_sample_value(name, {"model": "all-MiniLM-L6-v2"}) or 0.0
