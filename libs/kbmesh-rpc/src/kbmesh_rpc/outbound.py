"""What every call to another service carries on from the call that is being served."""

import time
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable
from typing import Any, TypeVar

import grpc
from grpc.aio import ClientCallDetails
from opentelemetry import trace

from kbmesh_rpc import metrics, telemetry
from kbmesh_rpc.call import CallContext, optional_call
from kbmesh_rpc.metadata import PRINCIPALS_KEY, REQUEST_ID_KEY, TENANT_KEY

RESERVE_SECONDS = 0.05
"""What a call to another service leaves of the caller's deadline, to make an answer of what comes back."""

_Requests = AsyncIterable[Any] | Iterable[Any]
_Call = TypeVar("_Call", bound=grpc.aio.Call)


def client_interceptors() -> list[grpc.aio.ClientInterceptor]:
    """One interceptor for each kind of call: grpc.aio takes an object for one kind only."""
    return [_UnaryUnary(), _UnaryStream(), _StreamUnary(), _StreamStream()]


class _UnaryUnary(grpc.aio.UnaryUnaryClientInterceptor):
    async def intercept_unary_unary(
        self,
        continuation: Callable[[ClientCallDetails, Any], Awaitable[grpc.aio.UnaryUnaryCall[Any, Any]]],
        client_call_details: ClientCallDetails,
        request: Any,
    ) -> grpc.aio.UnaryUnaryCall[Any, Any]:
        return await _carry_on(continuation, client_call_details, request, "unary")


class _UnaryStream(grpc.aio.UnaryStreamClientInterceptor):
    async def intercept_unary_stream(
        self,
        continuation: Callable[[ClientCallDetails, Any], Awaitable[grpc.aio.UnaryStreamCall[Any, Any]]],
        client_call_details: ClientCallDetails,
        request: Any,
    ) -> grpc.aio.UnaryStreamCall[Any, Any]:
        return await _carry_on(continuation, client_call_details, request, "server_stream")


class _StreamUnary(grpc.aio.StreamUnaryClientInterceptor):
    async def intercept_stream_unary(
        self,
        continuation: Callable[[ClientCallDetails, _Requests], Awaitable[grpc.aio.StreamUnaryCall[Any, Any]]],
        client_call_details: ClientCallDetails,
        request_iterator: _Requests,
    ) -> grpc.aio.StreamUnaryCall[Any, Any]:
        return await _carry_on(continuation, client_call_details, request_iterator, "client_stream")


class _StreamStream(grpc.aio.StreamStreamClientInterceptor):
    async def intercept_stream_stream(
        self,
        continuation: Callable[[ClientCallDetails, _Requests], Awaitable[grpc.aio.StreamStreamCall[Any, Any]]],
        client_call_details: ClientCallDetails,
        request_iterator: _Requests,
    ) -> grpc.aio.StreamStreamCall[Any, Any]:
        return await _carry_on(continuation, client_call_details, request_iterator, "bidi_stream")


async def _carry_on(
    continuation: Callable[[ClientCallDetails, Any], Awaitable[_Call]],
    details: ClientCallDetails,
    request: Any,
    kind: str,
) -> _Call:
    method = details.method.decode() if isinstance(details.method, bytes) else details.method
    service, _, name = method.removeprefix("/").partition("/")
    called = metrics.Method(type=kind, service=service, name=name)
    started = time.perf_counter()
    metrics.client_began(called)
    call = optional_call()
    timeout = _timeout(details.timeout, call)
    span, carrier = telemetry.client_span(method)
    if timeout is not None and timeout <= 0:
        metrics.client_ended(called, grpc.StatusCode.DEADLINE_EXCEEDED, 0.0)
        telemetry.set_code(span, grpc.StatusCode.DEADLINE_EXCEEDED, server=False)
        span.end()
        raise grpc.aio.AioRpcError(
            grpc.StatusCode.DEADLINE_EXCEEDED,
            grpc.aio.Metadata(),
            grpc.aio.Metadata(),
            details="the caller's deadline leaves no time for this call",
        )
    made = await continuation(
        ClientCallDetails(
            method=details.method,
            timeout=timeout,
            metadata=_metadata(details.metadata, call, carrier),
            credentials=details.credentials,
            wait_for_ready=details.wait_for_ready,
        ),
        request,
    )
    made.add_done_callback(lambda ended: _end(span, called, started, ended))
    return made


def _timeout(asked: float | None, call: CallContext | None) -> float | None:
    """The caller's deadline less the reserve, or what the code asks for if that is less."""
    if call is None or call.deadline is None:
        return asked
    left = call.deadline.with_reserve(RESERVE_SECONDS).remaining()
    return left if asked is None else min(asked, left)


def _metadata(given: grpc.aio.Metadata | None, call: CallContext | None, carrier: dict[str, str]) -> grpc.aio.Metadata:
    """`given`, and what it does not say of the current call."""
    metadata = grpc.aio.Metadata(*(given or ()))
    carried = dict(carrier)
    if call is not None:
        carried[REQUEST_ID_KEY] = call.request_id
        carried[TENANT_KEY] = call.tenant
        if call.principals:
            carried[PRINCIPALS_KEY] = ",".join(call.principals)
    for key, value in carried.items():
        if metadata.get(key) is None:
            metadata.add(key, value)
    return metadata


def _end(span: trace.Span, called: metrics.Method, started: float, call: grpc.aio.Call) -> None:
    coroutine = call.code()
    try:
        coroutine.send(None)  # the call is done, so its code is there without waiting
    except StopIteration as result:
        metrics.client_ended(called, result.value, time.perf_counter() - started)
        telemetry.set_code(span, result.value, server=False)
    finally:
        coroutine.close()
    span.end()
