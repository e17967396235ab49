"""Requests, good and bad. No weights are needed for that."""

import asyncio
import math
import threading
from collections.abc import Sequence

import grpc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kbmesh.reranker.v1 import reranker_pb2 as pb2
from kbmesh_reranker.backends.fake import Pair
from kbmesh_reranker.backends.port import (
    DEFAULT_READING,
    DocumentScore,
    Method,
    ModelDescription,
    Reading,
    Scores,
    Timings,
)
from kbmesh_reranker.relevance import CallLimits, rerank, sigmoid
from kbmesh_rpc.errors import Reason
from kbmesh_rpc.status import from_rpc_error
from prometheus_client import REGISTRY
from reranker.calls import order, reason, serving


async def test_the_model_is_chosen_by_name_and_the_first_is_the_default() -> None:
    async with serving(backend="fake", model="first, second") as reranker:
        models = await reranker.models()
        assert [(model.name, model.is_default, model.backend) for model in models] == [
            ("first", True, "fake"),
            ("second", False, "fake"),
        ]
        assert (await reranker.rerank("query", ["document"])).model == "first"
        assert (await reranker.rerank("query", ["document"], model="second")).model == "second"
        error = await reranker.refusal("query", ["document"], model="third")
    assert error.reason is Reason.MODEL_NOT_FOUND
    assert error.metadata == {"model": "third", "available": "first,second"}


async def test_top_n_gives_the_best() -> None:
    documents = ["nothing", "which port", "port", "which port is it"]
    async with serving(backend="fake") as reranker:
        assert order(await reranker.rerank("which port", documents)) == [1, 3, 2, 0]
        assert order(await reranker.rerank("which port", documents, top_n=2)) == [1, 3]
        assert order(await reranker.rerank("which port", documents, top_n=9)) == [1, 3, 2, 0]


async def test_what_cannot_be_answered_is_refused_with_its_reason() -> None:
    async with serving(backend="fake", max_documents=2, max_query_characters=10, max_document_characters=5) as reranker:
        error = await reranker.refusal(" \n", ["text"])
        assert (error.reason, error.metadata) == (Reason.EMPTY_TEXT, {"field": "query"})
        error = await reranker.refusal("query", [])
        assert (error.reason, error.metadata) == (Reason.INVALID_FIELD, {"field": "documents"})
        error = await reranker.refusal("query", ["text"], top_n=0)
        assert (error.reason, error.metadata) == (Reason.INVALID_FIELD, {"field": "top_n"})
        for query, documents, metadata in (
            ("query", ["text"] * 3, {"field": "documents", "limit": "2", "actual": "3"}),
            ("01234567890", ["text"], {"field": "query", "limit": "10", "actual": "11"}),
        ):
            error = await reranker.refusal(query, documents)
            assert (error.reason, error.metadata) == (Reason.REQUEST_TOO_LARGE, metadata)


async def test_a_document_that_is_too_long_fails_alone_and_comes_last() -> None:
    async with serving(backend="fake", max_document_characters=5) as reranker:
        response = await reranker.rerank("port", ["ports!", "port", "none"])
    assert order(response) == [1, 2, 0]
    failed = response.results[2]
    assert reason(failed.error) is Reason.REQUEST_TOO_LARGE
    assert failed.error.metadata == {"field": "documents[0]", "limit": "5", "actual": "6"}
    assert not failed.HasField("logit")


async def test_a_blank_document_fails_alone_and_comes_last() -> None:
    async with serving(backend="fake") as reranker:
        response = await reranker.rerank("port", ["", "nothing", " ", "port"])
    assert order(response) == [3, 1, 0, 2]
    for result in response.results[2:]:
        assert reason(result.error) is Reason.EMPTY_TEXT
        assert result.error.metadata == {"field": f"documents[{result.index}]"}
        assert not result.HasField("logit")
        assert not result.HasField("probability")


async def test_a_document_that_breaks_the_model_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def strange(pair: Pair) -> float:
        if pair[1][0] == "poison":
            raise ValueError("the model chokes")
        return math.nan if pair[1][0] == "nan" else 1.0

    monkeypatch.setattr("kbmesh_reranker.backends.fake.logit", strange)
    async with serving(backend="fake") as reranker:
        response = await reranker.rerank("query", ["poison", "good", "nan", "fine"])
    assert order(response) == [1, 3, 0, 2]
    for result in response.results[2:]:
        assert reason(result.error) is Reason.INFERENCE_FAILED
        assert not result.HasField("logit")


async def test_the_sigmoid_is_applied_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """RRK-02: probabilities of a calibrated model arrive as they are, spread over nearly 0 to 1."""
    calibrated = {"a": 0.0029, "b": 0.0003, "c": 0.97}
    monkeypatch.setattr(
        "kbmesh_reranker.backends.fake.logit",
        lambda pair: math.log(calibrated.get(pair[1][0], 0.5) / (1 - calibrated.get(pair[1][0], 0.5))),
    )
    async with serving(backend="fake") as reranker:
        response = await reranker.rerank("query", list(calibrated))
    assert response.method == pb2.METHOD_CROSS_ENCODER
    assert order(response) == [2, 0, 1]
    probabilities = {list(calibrated)[result.index]: result.probability for result in response.results}
    assert probabilities == pytest.approx(calibrated)
    assert max(probabilities.values()) - min(probabilities.values()) > 0.9


QUEUES = [{"model": "all-MiniLM-L6-v2", "lane": lane} for lane in ("interactive", "bulk")]

LIMITS = CallLimits(query_characters=100, documents=100, document_characters=100)


class Table:
    """A backend that looks scores up."""

    description = ModelDescription(
        name="table",
        fingerprint="table",
        method=Method.CROSS_ENCODER,
        max_tokens=256,
        device="cpu",
        precision="fp32",
        backend="table",
    )

    def __init__(self, scores: dict[str, float | None]) -> None:
        self._scores = scores

    async def warm_up(self) -> None:
        return

    async def score(
        self, query: str, documents: Sequence[str], *, deadline: float | None, reading: Reading = DEFAULT_READING
    ) -> Scores:
        return Scores(
            documents=tuple(DocumentScore(score=self._scores[document]) for document in documents),
            query_tokens_cut=0,
            timings=Timings(),
        )

    async def close(self) -> None:
        return


@given(
    st.lists(st.sampled_from("abcdefgh "), min_size=1, max_size=20),
    st.fixed_dictionaries({name: st.none() | st.floats() for name in "abcdefgh"}),
    st.none() | st.integers(1, 25),
)
@settings(max_examples=200, deadline=None)
def test_reranking_is_a_permutation_in_one_order(
    documents: list[str], scores: dict[str, float | None], top_n: int | None
) -> None:
    whole = asyncio.run(rerank(Table(scores), "query", documents, top_n=None, limits=LIMITS, deadline=None)).results
    assert sorted(result.index for result in whole) == list(range(len(documents)))
    keys = [
        (result.logit is None, -(result.logit if result.logit is not None else 0.0), result.index) for result in whole
    ]
    assert keys == sorted(keys)
    best = asyncio.run(rerank(Table(scores), "query", documents, top_n=top_n, limits=LIMITS, deadline=None)).results
    assert [result.index for result in best] == [result.index for result in whole[:top_n]]


@given(st.floats(allow_nan=False))
def test_a_probability_lies_between_0_and_1(logit: float) -> None:
    assert 0 <= sigmoid(logit) <= 1
    assert sigmoid(logit) + sigmoid(-logit) == pytest.approx(1)


async def test_a_flood_of_calls_is_refused_at_once_and_nothing_of_it_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    may_run, entered = threading.Event(), threading.Event()
    may_run.set()

    def slow(pair: Pair) -> float:
        entered.set()
        may_run.wait()
        return 1.0

    monkeypatch.setattr("kbmesh_reranker.backends.fake.logit", slow)
    async with serving(backend="fake", queue_tokens=1000) as reranker:
        may_run.clear()
        entered.clear()
        running = asyncio.create_task(reranker.rerank("query", ["running"]))
        await asyncio.to_thread(entered.wait)
        calls = [asyncio.create_task(reranker.rerank("query", ["word " * 100])) for _ in range(30)]
        done, waiting = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        assert waiting
        for call in done:
            error = call.exception()
            assert isinstance(error, grpc.aio.AioRpcError)
            refusal = from_rpc_error(error, dependency="reranker")
            assert refusal.reason is Reason.QUEUE_FULL
            assert refusal.retry_after_seconds is not None
            assert refusal.retry_after_seconds > 0
        may_run.set()
        await running
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert any(isinstance(answer, pb2.RerankResponse) for answer in answers)
        # All of the room is there again.
        assert order(await reranker.rerank("query", ["word " * 100] * 3)) == [0, 1, 2]
    assert sum(REGISTRY.get_sample_value("kbmesh_reranker_queue_tokens", labels) or 0.0 for labels in QUEUES) == 0


async def test_long_documents_are_read_as_the_caller_wants_them() -> None:
    """RRK-06: windows for all of it, a cut that the receipt tells, or a refusal of that document alone."""
    documents = ["pad " * 900 + "port", "port"]
    async with serving(backend="fake") as reranker:
        whole = await reranker.rerank("which port", documents)
        assert order(whole) == [0, 1]
        cut = await reranker.rerank("which port", documents, max_windows=1)
        assert order(cut) == [1, 0]
        receipt = cut.results[1].receipt
        assert (receipt.windows, receipt.tokens + receipt.tokens_cut) == (1, 901)
        refused = await reranker.rerank("which port", documents, max_windows=1, truncation=pb2.TRUNCATION_NONE)
        assert order(refused) == [1, 0]
        assert reason(refused.results[1].error) is Reason.TEXT_TOO_LONG
        assert refused.results[1].error.metadata["tokens"] == "901"
        for options, field in (({"max_windows": 0}, "max_windows"), ({"truncation": 9}, "truncation")):
            error = await reranker.refusal("query", ["text"], **options)
            assert (error.reason, error.metadata) == (Reason.INVALID_FIELD, {"field": field})
        error = await reranker.refusal("query", ["text"], priority=9)
        assert error.metadata == {"field": "priority"}


async def test_a_call_has_so_many_windows_and_no_more() -> None:
    """RRK-06: documents without end are refused one by one, and take no memory."""
    documents = ["port " + "pad " * 1000, "cake " + "pad " * 2500, "port"]
    async with serving(backend="fake", max_call_windows=8) as reranker:
        response = await reranker.rerank("port", documents)
    assert order(response) == [0, 2, 1]
    error = response.results[2].error
    assert reason(error) is Reason.REQUEST_TOO_LARGE
    assert error.metadata == {"field": "documents[1]", "limit": "8", "actual": "14"}


async def test_a_query_that_was_cut_is_told() -> None:
    """RRK-05: the query keeps half of what the model reads, and what it loses beyond that is in the answer."""
    async with serving(backend="fake") as reranker:
        assert (await reranker.rerank("q " * 128, ["text"])).query_tokens_cut == 0
        assert (await reranker.rerank("q " * 150, ["text"])).query_tokens_cut == 22


async def test_bulk_calls_wait_in_a_lane_of_their_own() -> None:
    before = REGISTRY.get_sample_value("kbmesh_reranker_tokens_total", {"model": "bulky", "lane": "bulk"}) or 0.0
    async with serving(backend="fake", model="bulky") as reranker:
        assert order(await reranker.rerank("port", ["port"], priority=pb2.PRIORITY_BULK)) == [0]
    assert REGISTRY.get_sample_value("kbmesh_reranker_tokens_total", {"model": "bulky", "lane": "bulk"}) == before + 2
