"""A reranker at a vendor's: the same contract as one in this process, and typed errors where the vendor fails."""

import asyncio
import json
import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from importlib.util import find_spec
from typing import Any

import pytest
from kbmesh_onnx.batcher import QueueLimits
from kbmesh_reranker.backends.fake import FakeBackend
from kbmesh_reranker.backends.port import Priority, Reading, RerankBackend
from kbmesh_reranker.backends.remote import RemoteBackend, logit_of
from kbmesh_reranker.backends.remote_opening import describe, open_remote
from kbmesh_reranker.relevance import CallLimits, rerank, sigmoid
from kbmesh_reranker.remote_settings import RemoteRerankModel
from kbmesh_rpc.errors import DeadlineExceeded, DependencyUnavailable, EmptyText, KbmeshError, Reason, ShuttingDown
from kbmesh_rpc.provider.patience import persist
from provider_server import KEY, MODEL, POISON, Fault, ProviderServer, provider_server, relevance

KEY_ENV = "KBMESH_TEST_PROVIDER_KEY"
DOCUMENTS = ["nothing at all", "red apples", "red", "green apples and red apples"]
LIMITS = CallLimits(query_characters=10_000, documents=1000, document_characters=1_000_000)


async def no_pause(seconds: float) -> None:
    assert seconds >= 0


@pytest.fixture(autouse=True)
def key_in_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_ENV, KEY)
    # Pauses before further attempts are drawn as always, and passed over.
    monkeypatch.setattr("kbmesh_rpc.provider.caller.persist", partial(persist, draw=lambda: 0.0, sleep=no_pause))


@pytest.fixture
async def server() -> AsyncIterator[ProviderServer]:
    async with provider_server() as started:
        yield started


@asynccontextmanager
async def remote_backend(
    server: ProviderServer, *, max_windows: int = 8, max_call_windows: int = 64, **changes: object
) -> AsyncIterator[RemoteBackend]:
    if find_spec("cohere") is None:
        pytest.skip("needs cohere, which is not installed; `make test` installs it")
    told: dict[str, object] = {
        "provider": "cohere",
        "model": MODEL,
        "base_url": server.url,
        "api_key_env": KEY_ENV,
        "max_tokens": 256,
        "timeout_seconds": 5.0,
    }
    backend = open_remote(
        "remote",
        RemoteRerankModel.model_validate(told | changes),
        max_windows=max_windows,
        max_call_windows=max_call_windows,
        limits=QueueLimits(),
    )
    try:
        yield backend
    finally:
        await backend.close()


@pytest.fixture(params=["fake", "cohere"])
async def backend(request: pytest.FixtureRequest, server: ProviderServer) -> AsyncIterator[RerankBackend]:
    async with AsyncExitStack() as stack:
        if request.param == "fake":
            opened: RerankBackend = FakeBackend("fake", max_windows=8, limits=QueueLimits())
            stack.push_async_callback(opened.close)
        else:
            opened = await stack.enter_async_context(remote_backend(server))
        await opened.warm_up()
        yield opened


async def test_scores_come_in_the_order_of_the_documents(backend: RerankBackend) -> None:
    scores = await backend.score("red apples", DOCUMENTS, deadline=None)
    numbers = [document.score for document in scores.documents]
    assert all(number is not None and math.isfinite(number) for number in numbers)
    assert numbers[1] == numbers[3] > numbers[2] > numbers[0]
    turned = await backend.score("red apples", DOCUMENTS[::-1], deadline=None)
    assert [document.score for document in turned.documents] == pytest.approx(numbers[::-1])


async def test_each_document_has_a_receipt(backend: RerankBackend) -> None:
    scores = await backend.score("red", ["red", " ".join(["word"] * 1000)], deadline=None)
    short, long = scores.documents
    assert (short.windows, short.tokens_cut) == (1, 0)
    assert long.windows > 1
    assert 0 < short.tokens < long.tokens


async def test_a_long_document_is_read_in_windows_or_cut_or_refused(backend: RerankBackend) -> None:
    late = " ".join(["word"] * 300 + ["red"])
    whole, cut, refused = [
        (await backend.score("red", [late], deadline=None, reading=reading)).documents[0]
        for reading in (Reading(), Reading(max_windows=1), Reading(max_windows=1, may_cut=False))
    ]
    assert whole.score is not None
    assert cut.score is not None
    assert whole.score > cut.score
    assert whole.tokens_cut == 0 < cut.tokens_cut
    assert refused.error is not None
    assert refused.error.reason is Reason.TEXT_TOO_LONG


async def test_blank_ones_fail_alone_and_a_blank_query_fails_the_call(backend: RerankBackend) -> None:
    scores = await backend.score("red", ["red", " ", "apples"], deadline=None)
    errors = [document.error for document in scores.documents]
    assert errors[1] is not None
    assert errors[1].reason is Reason.EMPTY_TEXT
    assert errors[0] is errors[2] is None
    with pytest.raises(EmptyText):
        await backend.score("  ", ["red"], deadline=None)


async def test_deadline_cancellation_and_closing(backend: RerankBackend) -> None:
    with pytest.raises(DeadlineExceeded):
        await backend.score("red", ["red"], deadline=time.monotonic() - 1)
    leaver = asyncio.create_task(backend.score("red", ["red"], deadline=None))
    await asyncio.sleep(0)
    leaver.cancel()
    await asyncio.gather(leaver, return_exceptions=True)
    bulk = Reading(priority=Priority.BULK)
    assert (await backend.score("red", ["red"], deadline=None, reading=bulk)).documents[0].score is not None
    await backend.close()
    with pytest.raises(ShuttingDown):
        await backend.score("red", ["red"], deadline=None)


async def test_the_vendors_relevance_is_the_probability(server: ProviderServer) -> None:
    async with remote_backend(server) as backend:
        reranked = await rerank(backend, "red apples", DOCUMENTS, top_n=None, limits=LIMITS, deadline=None)
    assert [result.index for result in reranked.results] == [1, 3, 2, 0]
    for result in reranked.results:
        assert result.probability == pytest.approx(relevance("red apples", DOCUMENTS[result.index]))
    assert all(result.score.tokens_estimated for result in reranked.results)


def test_a_relevance_of_nothing_and_of_one_has_a_logit() -> None:
    assert logit_of(0.5) == 0
    assert logit_of(0.0) == pytest.approx(-logit_of(1.0))
    for number in (0.0, 1e-6, 0.3, 0.999, 1.0):
        assert sigmoid(logit_of(number)) == pytest.approx(number, abs=2e-9)


async def refusal(backend: RemoteBackend, documents: list[str], **options: Any) -> KbmeshError:
    with pytest.raises(KbmeshError) as failure:
        await backend.score("red", documents, **({"deadline": None} | options))
    return failure.value


async def test_what_may_pass_is_tried_again(server: ProviderServer) -> None:
    for status in (429, 503):
        server.faults.append(Fault(status=status, headers={"retry-after": "0"}))
        server.faults.append(Fault(half=True))
        async with remote_backend(server) as backend:
            assert (await backend.score("red", ["red"], deadline=None)).documents[0].score is not None
    assert len(server.requests) == 6


@pytest.mark.parametrize(
    ("status", "body", "cause"),
    [
        (401, b"{}", "credentials"),
        (403, b"<html>", "credentials"),
        (404, b"{}", "not_found"),
        (402, b"{}", "quota"),
        (429, json.dumps({"message": "exceeded your current quota"}).encode(), "quota"),
        (429, b"{}", "rate_limit"),
        (500, b"", "overloaded"),
    ],
)
async def test_failures_are_told_apart(status: int, body: bytes, cause: str, server: ProviderServer) -> None:
    server.faults.append(Fault(status=status, body=body, times=-1))
    async with remote_backend(server, attempts=2) as backend:
        error = await refusal(backend, ["red"])
        assert error.reason is Reason.DEPENDENCY_UNAVAILABLE
        assert error.metadata == {"dependency": "cohere", "cause": cause}
        assert backend.suspect == (cause in {"credentials", "not_found"})


async def test_a_key_that_is_not_taken_fails_the_warm_up_and_a_hiccup_does_not(server: ProviderServer) -> None:
    server.faults.append(Fault(status=503, times=6))
    async with remote_backend(server) as backend:
        await backend.warm_up()
        server.key = "another"
        with pytest.raises(DependencyUnavailable):
            await backend.warm_up()


async def test_a_slow_vendor_is_cut_off_at_the_deadline(server: ProviderServer) -> None:
    server.hold = asyncio.Event()
    async with remote_backend(server, timeout_seconds=60.0) as backend:
        error = await refusal(backend, ["red"], deadline=time.monotonic() + 0.3)
        assert error.reason is Reason.DEADLINE_EXCEEDED
        await server.left.acquire()


async def test_a_caller_who_leaves_ends_the_http_call(server: ProviderServer) -> None:
    server.hold = asyncio.Event()
    async with remote_backend(server) as backend:
        call = asyncio.create_task(backend.score("red", ["red"], deadline=None))
        await server.arrived.acquire()
        call.cancel()
        await server.left.acquire()
        await asyncio.gather(call, return_exceptions=True)


async def test_a_document_that_is_refused_fails_alone(server: ProviderServer) -> None:
    async with remote_backend(server) as backend:
        scores = await backend.score("red", ["red", f"{POISON} red", "apples"], deadline=None)
    assert [document.error is None for document in scores.documents] == [True, False, True]
    error = scores.documents[1].error
    assert error is not None
    assert error.reason is Reason.INFERENCE_FAILED


def _same_twice(answer: dict[str, Any]) -> None:
    answer["results"][1]["index"] = answer["results"][0]["index"]


@pytest.mark.parametrize(
    "change",
    [
        lambda answer: answer["results"].pop(),
        lambda answer: answer["results"].append(answer["results"][0]),
        lambda answer: answer.pop("results"),
        lambda answer: answer["results"][0].pop("index"),
        lambda answer: answer["results"][0].update(index=7),
        lambda answer: answer["results"][0].update(index=-1),
        _same_twice,
    ],
)
async def test_an_answer_that_is_not_of_these_documents_is_refused_whole(
    change: Callable[[dict[str, Any]], object], server: ProviderServer
) -> None:
    def apply(answer: dict[str, Any]) -> dict[str, Any]:
        change(answer)
        return answer

    server.faults.append(Fault(change=apply))
    async with remote_backend(server) as backend:
        error = await refusal(backend, DOCUMENTS)
    assert error.reason is Reason.DEPENDENCY_INVALID_RESPONSE


@pytest.mark.parametrize("body", [b"<html></html>", b"", b"[", b"[]", b"null", b"{}"])
async def test_a_success_that_is_no_answer_is_refused(body: bytes, server: ProviderServer) -> None:
    server.faults.append(Fault(status=200, body=body))
    async with remote_backend(server) as backend:
        assert (await refusal(backend, ["red"])).reason is Reason.DEPENDENCY_INVALID_RESPONSE


@pytest.mark.parametrize("score", [float("nan"), None, 1.5, -0.1, "0.5"])
async def test_a_relevance_that_is_none_fails_alone(score: object, server: ProviderServer) -> None:
    def change(answer: dict[str, Any]) -> dict[str, Any]:
        next(result for result in answer["results"] if result["index"] == 1)["relevance_score"] = score
        return answer

    server.faults.append(Fault(change=change))
    async with remote_backend(server) as backend:
        scores = await backend.score("red apples", DOCUMENTS, deadline=None)
    assert [document.error is None for document in scores.documents] == [True, False, True, True]


async def test_many_documents_are_sent_in_several_calls_five_at_once(server: ProviderServer) -> None:
    server.hold = asyncio.Event()
    documents = [f"red {number}" for number in range(20)]
    async with remote_backend(server, batch_items=2) as backend:
        call = asyncio.create_task(backend.score("red", documents, deadline=None))
        for _ in range(5):
            await server.arrived.acquire()
        server.hold.set()
        scores = await call
    assert server.most_in_flight == 5
    assert [len(asked.texts) for asked in server.requests] == [2] * 10
    assert all(document.score is not None for document in scores.documents)


async def test_the_query_has_its_part_of_what_the_vendor_reads(server: ProviderServer) -> None:
    """What the vendor would cut in silence is not sent: with a long query, windows are shorter."""
    document = " ".join(["word"] * 600)
    async with remote_backend(server, max_windows=64) as backend:
        short = await backend.score("red", [document], deadline=None)
        long = await backend.score(" ".join(["red"] * 100), [document], deadline=None)
    assert long.documents[0].windows > short.documents[0].windows


async def test_a_fingerprint_names_the_model_and_where_it_is() -> None:
    def of(**changes: object) -> str:
        told = {"provider": "cohere", "model": "rerank-v3.5"} | changes
        return describe("name", RemoteRerankModel.model_validate(told)).fingerprint

    assert of() == of(concurrency=2, timeout_seconds=3.0)
    assert (
        len({of(), of(model="other"), of(base_url="https://proxy.example"), of(revision="2"), of(max_tokens=64)}) == 5
    )
    assert of(base_url="https://proxy.example", identity="api.cohere.com") == of()
