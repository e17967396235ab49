"""A provider that is down, slow, over quota, or answers nonsense: typed errors for the texts concerned, and no more."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from embedder.remote import KEY_ENV, PROVIDERS, embed, remote_backend
from kbmesh_embedder.backends import answers
from kbmesh_embedder.backends.port import InputType, Priority, Truncation
from kbmesh_embedder.backends.remote import RemoteBackend
from kbmesh_rpc.errors import DeadlineExceeded, DependencyUnavailable, KbmeshError, Reason
from kbmesh_rpc.provider.failure import Cause
from kbmesh_rpc.provider.patience import persist
from provider_server import KEY, POISON, Asked, Fault, ProviderServer, provider_server, vector_of

OPENAI_KIND = ("openai", "litellm")


@pytest.fixture(autouse=True)
def key_in_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_ENV, KEY)
    # Pauses before further attempts are drawn as always, and passed over.
    monkeypatch.setattr("kbmesh_rpc.provider.caller.persist", partial(persist, draw=lambda: 0.0, sleep=no_pause))


async def no_pause(seconds: float) -> None:
    assert seconds >= 0


@pytest.fixture
async def server() -> AsyncIterator[ProviderServer]:
    async with provider_server() as started:
        yield started


@pytest.fixture(params=PROVIDERS)
def provider(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Calls:
    """What a model's metrics are told."""

    def __init__(self) -> None:
        self.causes: list[Cause | None] = []
        self.retries = 0

    def called(self, *, status: int | None, cause: Cause | None, seconds: float) -> None:
        self.causes.append(cause)

    def retried(self) -> None:
        self.retries += 1


async def refusal(backend: RemoteBackend, texts: list[str], **options: Any) -> KbmeshError:
    with pytest.raises(KbmeshError) as failure:
        await embed(backend, texts, **options)
    return failure.value


@pytest.mark.parametrize("status", [429, 500, 502, 503, 529])
async def test_what_may_pass_is_tried_again(provider: str, status: int, server: ProviderServer) -> None:
    server.faults.append(Fault(status=status, headers={"retry-after": "0"}, times=2))
    calls = Calls()
    async with remote_backend(provider, server, calls=calls) as backend:
        embeddings = await embed(backend, ["one", "two"])
    assert embeddings.vectors.any(axis=1).all()
    assert len(server.requests) == 3
    expected = Cause.RATE_LIMIT if status == 429 else Cause.OVERLOADED
    assert (calls.causes, calls.retries) == ([expected, expected, None], 2)


async def test_the_providers_word_on_when_to_come_back_is_kept(provider: str, server: ProviderServer) -> None:
    """And where it is later than the caller's deadline, the caller learns at once, and when to come back."""
    server.faults.append(Fault(status=429, headers={"retry-after": "30"}))
    async with remote_backend(provider, server) as backend:
        error = await refusal(backend, ["one"], deadline=time.monotonic() + 20)
    assert (error.reason, error.metadata["cause"]) == (Reason.DEPENDENCY_UNAVAILABLE, "rate_limit")
    assert error.retry_after_seconds == 30
    assert len(server.requests) == 1


async def test_attempts_are_bounded(provider: str, server: ProviderServer) -> None:
    server.faults.append(Fault(status=500, times=-1))
    async with remote_backend(provider, server, attempts=3) as backend:
        error = await refusal(backend, ["one"])
    assert (error.reason, error.metadata["cause"]) == (Reason.DEPENDENCY_UNAVAILABLE, "overloaded")
    assert len(server.requests) == 3


async def test_a_connection_that_breaks_is_tried_again(provider: str, server: ProviderServer) -> None:
    server.faults.append(Fault(half=True))
    async with remote_backend(provider, server) as backend:
        assert (await embed(backend, ["one"])).vectors.any()
    assert len(server.requests) == 2


async def test_a_provider_that_is_not_there_is_unreachable(provider: str, server: ProviderServer) -> None:
    async with remote_backend(provider, server, base_url="http://127.0.0.1:9", attempts=2) as backend:
        error = await refusal(backend, ["one"])
        assert (error.reason, error.metadata["cause"]) == (Reason.DEPENDENCY_UNAVAILABLE, "unreachable")
        # It may be there the next moment: the model is served.
        await backend.warm_up()
        assert not backend.suspect


async def test_a_slow_provider_is_cut_off_at_the_deadline(provider: str, server: ProviderServer) -> None:
    server.hold = asyncio.Event()
    async with remote_backend(provider, server, timeout_seconds=60.0) as backend:
        with pytest.raises(DeadlineExceeded) as failure:
            await embed(backend, ["one"], deadline=time.monotonic() + 0.3)
        assert failure.value.metadata == {"stage": provider}
        await server.left.acquire()


async def test_a_call_that_takes_too_long_is_made_again(provider: str, server: ProviderServer) -> None:
    server.faults.append(Fault(delay_seconds=30.0))
    async with remote_backend(provider, server, timeout_seconds=0.5) as backend:
        assert (await embed(backend, ["one"])).vectors.any()
    await server.left.acquire()


async def test_a_caller_who_leaves_ends_the_http_call(provider: str, server: ProviderServer) -> None:
    server.hold = asyncio.Event()
    async with remote_backend(provider, server) as backend:
        call = asyncio.create_task(embed(backend, ["one"]))
        await server.arrived.acquire()
        call.cancel()
        await server.left.acquire()
        assert (await asyncio.gather(call, return_exceptions=True))[0].__class__ is asyncio.CancelledError
        server.hold.set()
        assert (await embed(backend, ["two"])).vectors.any()


async def test_a_key_that_is_not_taken_is_told_and_makes_the_model_suspect(
    provider: str, server: ProviderServer
) -> None:
    server.key = "another"
    async with remote_backend(provider, server) as backend:
        error = await refusal(backend, ["one"])
        assert (error.reason, error.metadata["cause"]) == (Reason.DEPENDENCY_UNAVAILABLE, "credentials")
        assert len(server.requests) == 1
        assert backend.suspect
        with pytest.raises(DependencyUnavailable):
            await backend.warm_up()
        server.key = KEY
        await backend.warm_up()
        assert not backend.suspect


async def test_a_key_that_was_changed_in_its_file_is_read_anew(
    provider: str, server: ProviderServer, tmp_path: Path
) -> None:
    file = tmp_path / "key"
    file.write_text("old\n")
    server.key = "old"
    async with remote_backend(provider, server, api_key_file=file) as backend:
        await backend.warm_up()
        server.key = "new"
        file.write_text("new\n")
        assert (await embed(backend, ["one"])).vectors.any()
        assert not backend.suspect


async def test_a_quota_that_is_used_up_is_not_tried_again(provider: str, server: ProviderServer) -> None:
    body = json.dumps({"error": {"message": "Quota", "code": "insufficient_quota"}, "message": "x"}).encode()
    server.faults.append(Fault(status=429, body=body))
    async with remote_backend(provider, server) as backend:
        error = await refusal(backend, ["one"])
    assert (error.reason, error.metadata["cause"]) == (Reason.DEPENDENCY_UNAVAILABLE, "quota")
    assert len(server.requests) == 1


async def test_a_model_that_the_provider_does_not_know_is_told(server: ProviderServer) -> None:
    async with remote_backend("openai", server, model="another") as backend:
        with pytest.raises(DependencyUnavailable) as failure:
            await backend.warm_up()
    assert failure.value.metadata == {"dependency": "openai", "cause": "not_found"}


async def test_a_text_that_is_refused_fails_alone(provider: str, server: ProviderServer) -> None:
    texts = [f"text {number}" for number in range(24)]
    texts[5] = texts[17] = f"{POISON} here"
    async with remote_backend(provider, server) as backend:
        embeddings = await embed(backend, texts)
    for index, receipt in enumerate(embeddings.receipts):
        if index in {5, 17}:
            assert receipt.error is not None
            assert receipt.error.reason is Reason.INFERENCE_FAILED
            assert not embeddings.vectors[index].any()
        else:
            assert receipt.error is None
            assert embeddings.vectors[index].any()


async def test_calls_to_find_what_is_refused_are_bounded(server: ProviderServer) -> None:
    async with remote_backend("openai", server) as backend:
        embeddings = await embed(backend, [f"{POISON} {number}" for number in range(128)])
    assert all(receipt.error is not None for receipt in embeddings.receipts)
    assert len(server.requests) <= 65


def changed(change: Callable[[dict[str, Any]], object]) -> Fault:
    def apply(answer: dict[str, Any]) -> dict[str, Any]:
        change(answer)
        return answer

    return Fault(change=apply, times=-1)


@pytest.mark.parametrize("provider", OPENAI_KIND)
@pytest.mark.parametrize("encoding", ["base64", "float"])
async def test_vectors_are_put_in_order_by_their_index(provider: str, encoding: str, server: ProviderServer) -> None:
    server.faults.append(changed(lambda answer: answer["data"].reverse()))
    async with remote_backend(provider, server, encoding=encoding) as backend:
        embeddings = await embed(backend, ["one", "two", "three"])
    for text, vector in zip(["one", "two", "three"], embeddings.vectors, strict=True):
        np.testing.assert_allclose(vector, vector_of(text), atol=1e-6)


def _twice(answer: dict[str, Any]) -> None:
    answer["data"][1]["index"] = 0


def _beyond(answer: dict[str, Any]) -> None:
    answer["data"][1]["index"] = 9


def _without_index(answer: dict[str, Any]) -> None:
    for item in answer["data"]:
        del item["index"]


@pytest.mark.parametrize(
    "change",
    [
        lambda answer: answer["data"].pop(),
        lambda answer: answer["data"].append(answer["data"][0]),
        lambda answer: answer.pop("data"),
        lambda answer: answer["data"][0].update(embedding={"a": 1}),
        lambda answer: answer["data"][0].update(embedding="%%%"),
        lambda answer: answer["data"][0].update(embedding=[[0.1], [0.2]]),
        lambda answer: answer["data"][0].update(embedding=["0.1", "0.2"]),
        lambda answer: answer["data"].__setitem__(0, None),
        _twice,
        _beyond,
        _without_index,
    ],
)
async def test_an_answer_that_is_not_of_these_texts_is_refused_whole(
    change: Callable[[dict[str, Any]], object], server: ProviderServer
) -> None:
    server.faults.append(changed(change))
    async with remote_backend("openai", server) as backend:
        error = await refusal(backend, ["one", "two", "three"])
    assert error.reason is Reason.DEPENDENCY_INVALID_RESPONSE
    assert error.metadata == {"dependency": "openai"}


def rows_of(provider: str, answer: Any) -> list[list[float]]:
    if provider == "cohere":
        return answer["embeddings"]["float"]
    return answer


@pytest.mark.parametrize("provider", ["cohere", "huggingface"])
@pytest.mark.parametrize("more", [False, True])
async def test_too_few_or_too_many_vectors_are_refused_whole(provider: str, more: bool, server: ProviderServer) -> None:
    def change(answer: Any) -> Any:
        rows = rows_of(provider, answer)
        _ = rows.append(rows[0]) if more else rows.pop()
        return answer

    server.faults.append(Fault(change=change))
    async with remote_backend(provider, server) as backend:
        error = await refusal(backend, ["one", "two", "three"])
    assert error.reason is Reason.DEPENDENCY_INVALID_RESPONSE


@pytest.mark.parametrize(
    "body",
    [
        b"<html><body>Please sign in</body></html>",
        b"",
        b"[",
        b"null",
        b"[]",
        b'"text"',
        b"{}",
        b"[[[1.0]]]",
        b"\xff\xfe",
    ],
)
async def test_a_success_that_is_no_answer_is_refused(provider: str, body: bytes, server: ProviderServer) -> None:
    server.faults.append(Fault(status=200, body=body, headers={"content-type": "text/html"}))
    async with remote_backend(provider, server) as backend:
        error = await refusal(backend, ["one"])
    assert error.reason is Reason.DEPENDENCY_INVALID_RESPONSE


async def test_a_redirect_is_not_followed(provider: str, server: ProviderServer) -> None:
    async with provider_server() as elsewhere:
        location = {"location": elsewhere.url}
        for status in (302, 307, 308):
            server.faults.append(Fault(status=status, headers=location))
            async with remote_backend(provider, server) as backend:
                error = await refusal(backend, ["one"])
            assert error.reason is Reason.DEPENDENCY_INVALID_RESPONSE
        assert elsewhere.requests == []


def spoiled(provider: str, vector: list[Any]) -> Fault:
    """The second vector is another one."""

    def change(answer: Any) -> Any:
        if provider in OPENAI_KIND:
            answer["data"][1]["embedding"] = vector
        else:
            rows_of(provider, answer)[1] = vector
        return answer

    return Fault(change=change)


@pytest.mark.parametrize("vector", [[float("nan")] * 8, [float("inf")] + [0.0] * 7, [0.0] * 8])
async def test_a_vector_that_is_none_fails_alone(provider: str, vector: list[float], server: ProviderServer) -> None:
    server.faults.append(spoiled(provider, vector))
    async with remote_backend(provider, server) as backend:
        embeddings = await embed(backend, ["one", "two", "three"])
    errors = [receipt.error for receipt in embeddings.receipts]
    assert errors[1] is not None
    assert errors[1].reason is Reason.INFERENCE_FAILED
    assert errors[0] is errors[2] is None
    assert embeddings.vectors.any(axis=1).tolist() == [True, False, True]


@pytest.mark.parametrize("provider", ["openai", "litellm", "cohere"])
async def test_null_in_place_of_numbers_fails_alone(provider: str, server: ProviderServer) -> None:
    server.faults.append(spoiled(provider, [None] * 8))
    async with remote_backend(provider, server) as backend:
        embeddings = await embed(backend, ["one", "two", "three"])
    assert [receipt.error is None for receipt in embeddings.receipts] == [True, False, True]


@pytest.mark.parametrize("provider", ["openai", "litellm", "cohere"])
async def test_one_vector_of_another_size_fails_alone(provider: str, server: ProviderServer) -> None:
    server.faults.append(spoiled(provider, [0.5] * 7))
    async with remote_backend(provider, server) as backend:
        embeddings = await embed(backend, ["one", "two", "three"])
    error = embeddings.receipts[1].error
    assert error is not None
    assert error.reason is Reason.DEPENDENCY_INVALID_RESPONSE
    assert embeddings.receipts[0].error is embeddings.receipts[2].error is None


async def test_a_model_of_another_size_is_not_served(provider: str, server: ProviderServer) -> None:
    async with remote_backend(provider, server, dimension=9, matryoshka_dimensions=()) as backend:
        with pytest.raises(KbmeshError) as failure:
            await backend.warm_up()
    assert failure.value.reason is Reason.DEPENDENCY_INVALID_RESPONSE


async def test_texts_are_sent_in_calls_of_the_providers_size_and_no_more_than_five_at_once(
    provider: str, server: ProviderServer
) -> None:
    server.hold = asyncio.Event()
    texts = [f"text {number}" for number in range(24)]
    async with remote_backend(provider, server, batch_items=3) as backend:
        call = asyncio.create_task(embed(backend, texts))
        for _ in range(5):
            await server.arrived.acquire()
        assert server.in_flight == 5
        server.hold.set()
        embeddings = await call
    assert server.most_in_flight == 5
    assert [len(asked.texts) for asked in server.requests] == [3] * 8
    for text, vector in zip(texts, embeddings.vectors, strict=True):
        role = "search_document" if provider == "cohere" else ""
        np.testing.assert_allclose(vector, vector_of(text, role=role), atol=1e-6)


async def test_tokens_of_a_call_are_bounded(server: ProviderServer) -> None:
    async with remote_backend("openai", server, batch_tokens=16) as backend:
        await embed(backend, ["one two three"] * 4)
    assert [len(asked.texts) for asked in server.requests] == [2, 2]


async def test_interactive_calls_go_before_bulk_ones(server: ProviderServer) -> None:
    async with remote_backend("openai", server, concurrency=1) as backend:
        server.hold = asyncio.Event()
        first = asyncio.create_task(embed(backend, ["first"], priority=Priority.BULK))
        await server.arrived.acquire()
        bulk = [asyncio.create_task(embed(backend, [f"bulk {n}"], priority=Priority.BULK)) for n in range(3)]
        await asyncio.sleep(0.05)
        query = asyncio.create_task(embed(backend, ["query"]))
        await asyncio.sleep(0.05)
        server.hold.set()
        await asyncio.gather(first, query, *bulk)
    assert [asked.texts[0] for asked in server.requests][:2] == ["first", "query"]


async def test_bulk_work_leaves_a_slot_for_a_query(server: ProviderServer) -> None:
    server.hold = asyncio.Event()
    async with remote_backend("openai", server, concurrency=3, batch_items=1) as backend:
        bulk = asyncio.create_task(embed(backend, ["a", "b", "c", "d"], priority=Priority.BULK))
        await server.arrived.acquire()
        await server.arrived.acquire()
        query = asyncio.create_task(embed(backend, ["query"]))
        await server.arrived.acquire()
        assert server.requests[2].texts == ["query"]
        server.hold.set()
        await asyncio.gather(bulk, query)


async def test_one_batch_that_fails_costs_the_others_nothing(provider: str, server: ProviderServer) -> None:
    def is_second(asked: Asked) -> bool:
        return "text 3" in asked.texts

    server.faults.append(Fault(status=503, when=is_second, times=-1))
    async with remote_backend(provider, server, batch_items=2, attempts=2) as backend:
        embeddings = await embed(backend, [f"text {number}" for number in range(6)])
    failed = [receipt.error is not None for receipt in embeddings.receipts]
    assert failed == [False, False, True, True, False, False]
    error = embeddings.receipts[2].error
    assert error is not None
    assert (error.reason, error.metadata["cause"]) == (Reason.DEPENDENCY_UNAVAILABLE, "overloaded")


async def test_a_server_that_cuts_in_silence_is_not_sent_what_may_not_be_cut(server: ProviderServer) -> None:
    server.cuts_silently = True
    long = " ".join(["words"] * 30)
    async with remote_backend("openai", server, overlong="cut") as backend:
        embeddings = await embed(backend, ["short one", long], truncation=Truncation.NONE)
        error = embeddings.receipts[1].error
        assert error is not None
        assert error.reason is Reason.TEXT_TOO_LONG
        assert embeddings.receipts[0].error is None
        assert [asked.texts for asked in server.requests] == [["short one"]]
        cut = await embed(backend, [long], truncation=Truncation.END)
        assert cut.receipts[0].tokens_cut > 0
        assert cut.receipts[0].tokens_estimated
        start = await embed(backend, [" ".join(f"w{n}" for n in range(40))], truncation=Truncation.START)
        assert start.receipts[0].tokens_cut > 0
        assert server.requests[-1].texts[0].endswith("w39")


async def test_what_the_provider_tells_of_one_text_is_the_receipt(server: ProviderServer) -> None:
    async with remote_backend("openai", server) as backend:
        (alone,) = (await embed(backend, ["one two three"])).receipts
        assert (alone.tokens, alone.tokens_cut, alone.tokens_estimated) == (3, 0, False)
        several = (await embed(backend, ["one two three four five six", "seven"])).receipts
        assert sum(receipt.tokens for receipt in several) == 7
        assert all(receipt.tokens_estimated for receipt in several)
        (cut,) = (await embed(backend, [" ".join(["word"] * 40)])).receipts
        assert (cut.tokens + cut.tokens_cut, cut.tokens_estimated) == (40, False)


@pytest.mark.parametrize("provider", ["openai", "litellm", "cohere"])
async def test_a_shorter_vector_is_asked_for_where_the_model_gives_one(provider: str, server: ProviderServer) -> None:
    changes = {"dimension": 4, "matryoshka_dimensions": ()}
    role = "search_document" if provider == "cohere" else ""
    async with remote_backend(provider, server, dimensions="ask", **changes) as backend:
        embeddings = await embed(backend, ["one"])
    name = "output_dimension" if provider == "cohere" else "dimensions"
    assert server.requests[0].body[name] == 4
    np.testing.assert_allclose(embeddings.vectors[0], vector_of("one", dimension=4, role=role), atol=1e-6)


async def test_a_longer_vector_is_cut_and_renormalised_where_that_is_allowed(
    provider: str, server: ProviderServer
) -> None:
    async with remote_backend(provider, server, dimension=4, dimensions="cut", matryoshka_dimensions=()) as backend:
        embeddings = await embed(backend, ["one"])
    role = "search_document" if provider == "cohere" else ""
    first = vector_of("one", role=role)[:4]
    np.testing.assert_allclose(embeddings.vectors[0], first / np.linalg.norm(first), atol=1e-6)


async def test_prefixes_and_input_types_are_sent(server: ProviderServer) -> None:
    changes = {"query_prefix": "query: ", "document_prefix": "passage: ", "query_input_type": "query"}
    async with remote_backend("openai", server, **changes) as backend:
        await backend.warm_up()
        assert server.requests[0].body["input"] == ["passage: warm"]
        assert "input_type" not in server.requests[0].body
        await embed(backend, ["one"], input_type=InputType.QUERY)
        assert server.requests[1].body["input"] == ["query: one"]
        assert server.requests[1].body["input_type"] == "query"


async def test_long_answers_are_read_off_the_loop(server: ProviderServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "LONG_BODY", 0)
    monkeypatch.setattr("kbmesh_embedder.backends.openai.LONG_BODY", 0)
    async with remote_backend("openai", server) as backend:
        assert (await embed(backend, ["one", "two"])).vectors.any(axis=1).all()


async def test_with_the_models_tokenizer_texts_are_counted_and_cut_exactly(
    provider: str, server: ProviderServer, models_folder: Path
) -> None:
    """Words of one token each: 14 fit beside the two special ones."""
    words = ["one", "two", "three", "four", "five"] * 8
    tokenizer = models_folder / "all-MiniLM-L6-v2" / "tokenizer.json"
    async with remote_backend(provider, server, tokenizer=tokenizer) as backend:
        (count,) = await backend.count_tokens([" ".join(words)], input_type=InputType.DOCUMENT, with_offsets=True)
        assert (count.tokens, len(count.starts), count.estimated) == (42, 40, False)
        for truncation, kept in ((Truncation.END, words[:14]), (Truncation.START, words[-14:])):
            (receipt,) = (await embed(backend, [" ".join(words)], truncation=truncation)).receipts
            assert (receipt.tokens, receipt.tokens_cut, receipt.tokens_estimated) == (16, 26, False)
            assert server.requests[-1].texts == [" ".join(kept)]
        asked = len(server.requests)
        (refused,) = (await embed(backend, [" ".join(words)], truncation=Truncation.NONE)).receipts
        assert refused.error is not None
        assert refused.error.metadata == {"tokens": "42", "limit": "16"}
        assert len(server.requests) == asked


async def test_a_prefix_is_never_cut_off(server: ProviderServer, models_folder: Path) -> None:
    tokenizer = models_folder / "all-MiniLM-L6-v2" / "tokenizer.json"
    for changes in ({"tokenizer": tokenizer}, {}):
        async with remote_backend("openai", server, document_prefix="passage: ", **changes) as backend:
            for truncation in (Truncation.END, Truncation.START):
                await embed(backend, [" ".join(f"w{number}" for number in range(60))], truncation=truncation)
                assert server.requests[-1].texts[0].startswith("passage: ")
                assert server.requests[-1].texts[0].endswith("w59") == (truncation is Truncation.START)
