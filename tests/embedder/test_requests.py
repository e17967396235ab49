"""Requests that cannot be served say why; those beside them are served. No weights are needed for that."""

import asyncio
from collections.abc import AsyncIterator

import grpc
import numpy as np
import pytest
from embedder.calls import Embedder, matrix, reason
from kbmesh.embedder.v1 import embedder_pb2 as pb2
from kbmesh_embedder.application import make_application
from kbmesh_embedder.settings import EmbedderSettings
from kbmesh_rpc.channel import open_channel
from kbmesh_rpc.errors import Reason
from kbmesh_rpc.server import running
from kbmesh_rpc.status import from_rpc_error


async def test_the_model_is_chosen_by_name_and_the_first_is_the_default(fake_embedder: Embedder) -> None:
    models = (await fake_embedder.stub.ListModels(pb2.ListModelsRequest())).models
    assert [(model.name, model.is_default, model.backend) for model in models] == [
        ("first", True, "fake"),
        ("second", False, "fake"),
    ]
    default = await fake_embedder.embed(["text"])
    named = await fake_embedder.embed(["text"], model="second")
    assert (default.model, named.model) == ("first", "second")
    assert default.model_fingerprint != named.model_fingerprint
    assert (matrix(default) != matrix(named)).any()


async def test_an_unknown_model_is_answered_with_the_known_ones(fake_embedder: Embedder) -> None:
    error = await fake_embedder.refusal(["text"], model="third")
    assert error.reason is Reason.MODEL_NOT_FOUND
    assert error.metadata == {"model": "third", "available": "first,second"}


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"texts": []}, "texts"),
        ({"input_type": pb2.INPUT_TYPE_UNSPECIFIED}, "input_type"),
        ({"input_type": 99}, "input_type"),
        ({"truncation": 99}, "truncation"),
        ({"priority": 99}, "priority"),
        ({"encoding": 99}, "encoding"),
        ({"dimensions": 100}, "dimensions"),
        ({"dimensions": 0}, "dimensions"),
    ],
)
async def test_a_wrong_field_is_named(fake_embedder: Embedder, options: dict[str, object], field: str) -> None:
    error = await fake_embedder.refusal(**{"texts": ["text"], **options})
    assert error.reason is Reason.INVALID_FIELD
    assert [violation.field for violation in error.field_violations] == [field]


async def test_an_answer_that_could_not_be_sent_is_refused_with_the_reason_and_no_stream_ends_for_it() -> None:
    settings = EmbedderSettings(port=0, metrics_port=0, backend="fake", max_message_bytes=20_000)
    many = [f"text {number}" for number in range(100)]
    async with running(await make_application(settings), settings) as target, open_channel(target) as channel:
        embedder = Embedder(channel)
        error = await embedder.refusal(many)
        assert error.reason is Reason.REQUEST_TOO_LARGE
        assert (error.metadata["field"], error.metadata["limit"]) == ("texts", "20000")
        answers = await embedder.stream(
            [
                pb2.EmbedStreamRequest(
                    sequence=number, request=pb2.EmbedRequest(texts=texts, input_type=pb2.INPUT_TYPE_DOCUMENT)
                )
                for number, texts in enumerate((["one"], many, ["two"]))
            ]
        )
        assert [answers[number].WhichOneof("outcome") for number in range(3)] == ["response", "error", "response"]
        assert reason(answers[1].error) is Reason.REQUEST_TOO_LARGE
        with pytest.raises(grpc.aio.AioRpcError) as refusal:
            await embedder.stub.CountTokens(pb2.CountTokensRequest(texts=["a " * 5_000], return_offsets=True))
        assert from_rpc_error(refusal.value, dependency="embedder").reason is Reason.REQUEST_TOO_LARGE


async def test_too_many_texts_are_refused_and_one_too_large_fails_alone() -> None:
    settings = EmbedderSettings(port=0, metrics_port=0, backend="fake", max_texts=3, max_text_characters=10)
    async with running(await make_application(settings), settings) as target, open_channel(target) as channel:
        embedder = Embedder(channel)
        await embedder.embed(["0123456789"] * 3)
        error = await embedder.refusal(["text"] * 4)
        assert error.reason is Reason.REQUEST_TOO_LARGE
        assert error.metadata == {"field": "texts", "limit": "3", "actual": "4"}
        response = await embedder.embed(["text", "0123456789!", "other"])
        failed = response.receipts[1].error
        assert reason(failed) is Reason.REQUEST_TOO_LARGE
        assert failed.metadata == {"field": "texts[1]", "limit": "10", "actual": "11"}
        assert matrix(response).any(axis=1).tolist() == [True, False, True]
        counts = (await embedder.stub.CountTokens(pb2.CountTokensRequest(texts=["a text", "0123456789!"]))).counts
        assert (counts[0].tokens, counts[0].HasField("error")) == (4, False)
        assert reason(counts[1].error) is Reason.REQUEST_TOO_LARGE
        assert counts[1].error.metadata == {"field": "texts[1]", "limit": "10", "actual": "11"}
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await embedder.stub.CountTokens(pb2.CountTokensRequest(texts=["text"] * 4))
        assert from_rpc_error(failure.value, dependency="embedder").reason is Reason.REQUEST_TOO_LARGE


async def test_a_matryoshka_size_shortens_and_renormalises(fake_embedder: Embedder) -> None:
    whole = await fake_embedder.vectors(["some words"])
    shortened = await fake_embedder.vectors(["some words"], dimensions=64)
    assert shortened.shape == (1, 64)
    np.testing.assert_allclose(shortened[0], whole[0, :64] / np.linalg.norm(whole[0, :64]), atol=1e-6)
    assert (await fake_embedder.vectors(["some words"], dimensions=384)).shape == (1, 384)


async def test_a_stream_answers_each_request_and_survives_a_bad_one(fake_embedder: Embedder) -> None:
    requests = [
        pb2.EmbedStreamRequest(
            sequence=number,
            request=pb2.EmbedRequest(
                texts=[f"text {number}"] * (number % 5),
                input_type=pb2.INPUT_TYPE_DOCUMENT,
                priority=pb2.PRIORITY_BULK,
            ),
        )
        for number in range(50)
    ]
    answers = await fake_embedder.stream(requests)
    assert answers.keys() == set(range(50))
    for number, answer in answers.items():
        if number % 5 == 0:
            assert reason(answer.error) is Reason.INVALID_FIELD
        else:
            expected = await fake_embedder.vectors([f"text {number}"])
            assert (matrix(answer.response) == expected).all()
            assert len(answer.response.receipts) == number % 5


async def test_a_stream_reads_no_further_than_it_answers(fake_embedder: Embedder) -> None:
    sent = 0

    async def send() -> AsyncIterator[pb2.EmbedStreamRequest]:
        nonlocal sent
        text = "word " * 5000
        for number in range(3000):
            sent += 1
            yield pb2.EmbedStreamRequest(
                sequence=number, request=pb2.EmbedRequest(texts=[text] * 4, input_type=pb2.INPUT_TYPE_DOCUMENT)
            )

    call = fake_embedder.stub.EmbedStream(send())
    assert (await call.read()).HasField("response")
    # Nothing is read any more: what was sent settles far below what there is to send.
    settled = -1
    while settled != sent:
        settled = sent
        await asyncio.sleep(0.3)
    assert sent < 1000
    call.cancel()
