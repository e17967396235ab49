"""What callers of a busy embedder meet: queries beside bulk work, four times what it can take, a very long text."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeAlias

import grpc
import numpy as np
from kbmesh.embedder.v1 import embedder_pb2 as pb2
from kbmesh.embedder.v1 import embedder_pb2_grpc
from kbmesh_onnx.tokenizer import ModelTokenizer
from kbmesh_rpc.status import from_rpc_error

from benchmarks.encoders import order
from benchmarks.passages import passage_of
from benchmarks.served import Service, quantile

LONG_TOKENS = 100_000
OFFERED = 4.0
"""Times the capacity."""
CALL_TEXTS = 8
_QUERY_TOKENS = 12
_BULK_TEXTS = 64
_CAPACITY_SHARE = 0.25
"""How long the capacity is measured before and after the overload, as a part of it."""
_DEADLINE_SECONDS = 10.0
_REFUSAL = "kbmesh_server_refusal_seconds_bucket"
_BATCH = "kbmesh_embedder_batch_seconds"

Stub: TypeAlias = "embedder_pb2_grpc.EmbedderServiceAsyncStub"


async def measure_load(
    service: Service,
    tokenizer: ModelTokenizer,
    texts: Sequence[str],
    *,
    seconds: float,
    count_queries: int,
    progress: Callable[[str], None],
) -> dict[str, Any]:
    """The keys `interactive`, `overload` and `long_document` of the report."""
    queries = [text[: int(tokenizer.offsets(text)[1][_QUERY_TOKENS - 1])] for text in texts if len(text) > 100]
    queries = list(dict.fromkeys(queries))
    async with service.channel() as channel:
        stub: Stub = embedder_pb2_grpc.EmbedderServiceStub(channel)
        progress("queries, alone and beside a stream of bulk work")
        interactive = await _interactive(service, stub, texts, queries, count_queries)
        progress(f"a text of {LONG_TOKENS} tokens")
        long_document = await _long_document(service, stub, passage_of(tokenizer, texts, LONG_TOKENS), queries)
        overload = await _overload(service, stub, texts, seconds=seconds, progress=progress)
    return {"interactive": interactive, "overload": overload, "long_document": long_document}


async def _interactive(
    service: Service, stub: Stub, texts: Sequence[str], queries: Sequence[str], count_queries: int
) -> dict[str, Any]:
    idle = await _query_seconds(stub, queries, count_queries)
    before = service.samples()
    async with _bulk_stream(stub, texts) as answered:
        await answered.first.wait()
        began, texts_before = time.perf_counter(), answered.texts
        busy = await _query_seconds(stub, queries, count_queries)
        bulk_texts_per_second = (answered.texts - texts_before) / (time.perf_counter() - began)
    after = service.samples()
    sub_batch = _mean_seconds(before, after, lane="bulk")
    bound = sub_batch + 2 * _p(idle, 95)
    return {
        "queries": count_queries,
        "idle_ms": _milliseconds(idle),
        "beside_bulk_ms": _milliseconds(busy),
        "sub_batch_ms": round(sub_batch * 1000, 2),
        "bound_ms": round(bound * 1000, 2),
        "held": _p(busy, 95) <= bound,
        "bulk_texts_per_s": round(bulk_texts_per_second, 2),
    }


async def _long_document(service: Service, stub: Stub, text: str, queries: Sequence[str]) -> dict[str, Any]:
    idle = await _query_seconds(stub, queries, 20)
    resident = service.resident_bytes()
    began = time.perf_counter()
    long = stub.Embed(order([text], pb2.PRIORITY_INTERACTIVE), timeout=60)
    beside: list[float] = []
    while not long.done():
        beside += await _query_seconds(stub, queries, 1)
    answer = await long
    seconds = time.perf_counter() - began
    beside += await _query_seconds(stub, queries, 1)
    receipt = answer.receipts[0]
    return {
        "characters": len(text),
        "tokens_read": receipt.tokens,
        "tokens_cut": receipt.tokens_cut,
        "seconds": round(seconds, 3),
        "idle_query_ms": _milliseconds(idle),
        "slowest_query_beside_it_ms": round(max(beside) * 1000, 2),
        "resident_bytes_before": resident,
        "resident_bytes_after": service.resident_bytes(),
        "peak_bytes": service.peak_bytes(),
    }


@dataclass(kw_only=True)
class _Calls:
    """What became of the calls of an overload."""

    served_texts: int = 0
    served_in_time: int = 0
    """Texts answered before the load ended."""
    codes: Counter[str] = field(default_factory=Counter)
    without_retry_info: int = 0
    refused_seconds: list[float] = field(default_factory=list)
    served_seconds: list[float] = field(default_factory=list)


async def _overload(
    service: Service, stub: Stub, texts: Sequence[str], *, seconds: float, progress: Callable[[str], None]
) -> dict[str, Any]:
    numbers = count()

    def take() -> list[str]:
        start = next(numbers) * CALL_TEXTS
        return [texts[(start + place) % len(texts)] for place in range(CALL_TEXTS)]

    progress("capacity before the overload")
    capacity_before = await _capacity(stub, take, seconds * _CAPACITY_SHARE)
    progress(f"{OFFERED:g} times {capacity_before:.1f} texts/s for {seconds:g} s")
    before = service.samples()
    calls = _Calls()
    resident: list[int] = []
    interval = CALL_TEXTS / (capacity_before * OFFERED)
    began = time.perf_counter()
    ends = began + seconds
    async with asyncio.TaskGroup() as tasks:
        sent = 0
        while (now := time.perf_counter()) < ends:
            while began + sent * interval <= now:
                tasks.create_task(_offer(stub, take(), calls, ends))
                sent += 1
            if now - began >= len(resident):
                resident.append(service.resident_bytes())
            await asyncio.sleep(interval / 2)
    after = service.samples()
    progress("capacity after the overload")
    capacity_after = await _capacity(stub, take, seconds * _CAPACITY_SHARE)
    inferred = _total(after, "kbmesh_embedder_batch_texts_sum") - _total(before, "kbmesh_embedder_batch_texts_sum")
    capacity = (capacity_before + capacity_after) / 2
    settled = resident[len(resident) // 6 :] or resident
    refusal = quantile(before.get(_REFUSAL, {}), after.get(_REFUSAL, {}), 0.95)
    return {
        "capacity_texts_per_s": {"before": round(capacity_before, 2), "after": round(capacity_after, 2)},
        "offered_texts_per_s": round(sent * CALL_TEXTS / seconds, 2),
        "served_texts_per_s": round(calls.served_in_time / seconds, 2),
        "share_of_capacity": round(calls.served_in_time / seconds / capacity, 4),
        "calls_by_code": dict(calls.codes),
        "refused_without_retry_info": calls.without_retry_info,
        "refusal_p95_ms_at_most": None if refusal is None else refusal * 1000,
        "refusal_ms_as_seen_by_the_caller": _milliseconds(calls.refused_seconds),
        "served_ms": _milliseconds(calls.served_seconds),
        "texts_inferred": int(inferred),
        "texts_inferred_in_vain": int(inferred) - calls.served_texts,
        "resident_bytes": {"settled": settled[0], "last": settled[-1], "most": max(settled)},
        "resident_growth": round(settled[-1] / settled[0] - 1, 4),
    }


async def _offer(stub: Stub, texts: Sequence[str], calls: _Calls, ends: float) -> None:
    began = time.perf_counter()
    try:
        answer = await stub.Embed(order(texts, pb2.PRIORITY_INTERACTIVE), timeout=_DEADLINE_SECONDS)
    except grpc.aio.AioRpcError as error:
        calls.codes[error.code().name] += 1
        if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED:
            calls.refused_seconds.append(time.perf_counter() - began)
            calls.without_retry_info += not from_rpc_error(error, dependency="embedder").retry_after_seconds
        return
    now = time.perf_counter()
    calls.codes["OK"] += 1
    calls.served_seconds.append(now - began)
    calls.served_texts += answer.vectors.count
    calls.served_in_time += answer.vectors.count if now <= ends else 0


async def _capacity(stub: Stub, take: Callable[[], list[str]], seconds: float) -> float:
    """Texts a second that callers get who wait for their answers, as many as keep the model busy."""
    ends = time.perf_counter() + seconds
    answered = 0

    async def caller() -> None:
        nonlocal answered
        while time.perf_counter() < ends:
            answer = await stub.Embed(order(take(), pb2.PRIORITY_INTERACTIVE), timeout=60)
            if time.perf_counter() <= ends:
                answered += answer.vectors.count

    async with asyncio.TaskGroup() as tasks:
        for _ in range(16):
            tasks.create_task(caller())
    return answered / seconds


class _Answered:
    """What a stream was answered so far."""

    def __init__(self) -> None:
        self.texts = 0
        self.first = asyncio.Event()


@asynccontextmanager
async def _bulk_stream(stub: Stub, texts: Sequence[str]) -> AsyncIterator[_Answered]:
    """A stream that sends as fast as it is read."""
    answered = _Answered()

    async def sent() -> AsyncIterator[pb2.EmbedStreamRequest]:
        for number in count():
            start = number * _BULK_TEXTS
            part = [texts[(start + place) % len(texts)] for place in range(_BULK_TEXTS)]
            yield pb2.EmbedStreamRequest(sequence=number, request=order(part, pb2.PRIORITY_BULK))

    call = stub.EmbedStream(sent(), timeout=3600)

    async def read() -> None:
        async for answer in call:
            answered.texts += answer.response.vectors.count
            answered.first.set()

    reading = asyncio.create_task(read())
    try:
        yield answered
    finally:
        call.cancel()
        await asyncio.gather(reading, return_exceptions=True)


async def _query_seconds(stub: Stub, queries: Sequence[str], number: int) -> list[float]:
    seconds = []
    for place in range(number):
        query = pb2.EmbedRequest(
            texts=[queries[place % len(queries)]], input_type=pb2.INPUT_TYPE_QUERY, priority=pb2.PRIORITY_INTERACTIVE
        )
        began = time.perf_counter()
        await stub.Embed(query, timeout=60)
        seconds.append(time.perf_counter() - began)
    return seconds


def _total(samples: dict[str, dict[tuple[tuple[str, str], ...], float]], name: str, **labels: str) -> float:
    return sum(
        value
        for key, value in samples.get(name, {}).items()
        if all(dict(key).get(label) == wanted for label, wanted in labels.items())
    )


def _mean_seconds(
    before: dict[str, dict[tuple[tuple[str, str], ...], float]],
    after: dict[str, dict[tuple[tuple[str, str], ...], float]],
    **labels: str,
) -> float:
    """Of one run of the model."""
    seconds = _total(after, f"{_BATCH}_sum", **labels) - _total(before, f"{_BATCH}_sum", **labels)
    runs = _total(after, f"{_BATCH}_count", **labels) - _total(before, f"{_BATCH}_count", **labels)
    return seconds / runs if runs else 0.0


def _p(seconds: Sequence[float], percentile: float) -> float:
    return float(np.percentile(seconds, percentile)) if seconds else 0.0


def _milliseconds(seconds: Sequence[float]) -> dict[str, float]:
    return {f"p{percentile}": round(_p(seconds, percentile) * 1000, 2) for percentile in (50, 95, 99)}
