"""What every call to a server goes through: identity, deadline, errors, metrics, logs and a span.

Servicers are asynchronous (coroutines or asynchronous generators), raise KbmeshError and read `current_call()`.
"""

import asyncio
import contextvars
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any, TypeAlias, cast

import grpc
from google.protobuf.message import DecodeError

from kbmesh_rpc import metrics, telemetry
from kbmesh_rpc.call import DEFAULT_TENANT, CallContext, with_call
from kbmesh_rpc.caller_names import names_of
from kbmesh_rpc.deadline import Deadline
from kbmesh_rpc.drain import Drain
from kbmesh_rpc.errors import (
    DeadlineExceeded,
    FeatureUnsupported,
    InternalError,
    InvalidField,
    KbmeshError,
    ShuttingDown,
)
from kbmesh_rpc.logs import get_logger, tenant_hash
from kbmesh_rpc.metadata import REQUEST_ID_KEY, caller_of, new_request_id, request_id_of
from kbmesh_rpc.settings import ServerSettings
from kbmesh_rpc.status import CODES, abort
from kbmesh_rpc.talkers import WINDOW_SECONDS, Talkers, tell

logger = get_logger(__name__)

HEALTH_SERVICE = "grpc.health.v1.Health"
REFLECTION_SERVICES = frozenset({"grpc.reflection.v1alpha.ServerReflection", "grpc.reflection.v1.ServerReflection"})
UNATTENDED_SERVICES = REFLECTION_SERVICES | {HEALTH_SERVICE}
"""Services for machinery, not for callers: no tenant, no deadline, no metrics, and answered while draining. Health is
for everybody who gets as far as asking: a channel that watches it has to, and it tells nothing else."""

_OWN_FAULTS = {grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.DATA_LOSS}

_Context = grpc.aio.ServicerContext[Any, Any]
_Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"


class CallInterceptor(grpc.aio.ServerInterceptor):
    """Wraps every registered method, of all four kinds.

    - The request id is the caller's (`kbmesh-request-id`) or a new one, and returns in the trailing metadata. It is not
      sent ahead: a call whose initial metadata has been sent cannot be retried by gRPC.
    - A unary call without deadline gets `default_deadline_seconds`.
    - KbmeshError becomes its status. Any other exception is logged in full and leaves as INTERNAL with the request id.
    - A request that cannot be decoded is refused with InvalidField. On a stream the servicer gets the messages before
      it, and reading on raises the error.
    - While draining, calls are refused with ShuttingDown. One that outlasts the grace ends with it too.
    """

    def __init__(
        self,
        settings: ServerSettings,
        drain: Drain,
        *,
        make_request_id: Callable[[], str] = new_request_id,
        endless_services: frozenset[str] = frozenset(),
    ) -> None:
        """`endless_services` are the ones whose calls a drain does not wait for."""
        self._settings = settings
        self._drain = drain
        self._make_request_id = make_request_id
        self._endless = endless_services
        self._policy = settings.caller_policy
        self._talkers = Talkers()

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], "Awaitable[_Handler | None]"],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> "_Handler | None":
        """Gives the method's handler, wrapped."""
        path = handler_call_details.method
        service, _, name = path.removeprefix("/").partition("/")
        handler = await continuation(handler_call_details)
        if handler is None:
            metrics.began(metrics.OTHER)
            metrics.ended(metrics.OTHER, grpc.StatusCode.UNIMPLEMENTED, 0.0)
            return None
        if service in UNATTENDED_SERVICES:
            return self._for_allowed(handler) if service in REFLECTION_SERVICES and self._policy.asks else handler
        kind = metrics.call_type(
            request_streaming=handler.request_streaming, response_streaming=handler.response_streaming
        )
        return self._wrapped(handler, path, metrics.Method(type=kind, service=service, name=name))

    def _for_allowed(self, handler: _Handler) -> _Handler:
        """Reflection, for callers who may call."""
        inner = cast(Callable[[Any, _Context], AsyncIterator[Any]], handler.stream_stream)

        async def responses(requests: Any, context: _Context) -> AsyncIterator[Any]:
            if refusal := self._policy.refusal(self._caller_names(context)):
                await abort(context, refusal)
            async for response in inner(requests, context):
                yield response

        return grpc.stream_stream_rpc_method_handler(
            cast(Any, responses),  # grpc's annotation knows handlers of its synchronous server only
            request_deserializer=handler.request_deserializer,
            response_serializer=handler.response_serializer,
        )

    def _caller_names(self, context: _Context) -> tuple[str, ...]:
        """The names in the caller's certificate, where they matter."""
        return names_of(context.auth_context()) if self._policy.asks else ()

    def _wrapped(self, handler: _Handler, path: str, method: metrics.Method) -> _Handler:
        functions = (handler.unary_unary, handler.unary_stream, handler.stream_unary, handler.stream_stream)
        # grpc's annotation knows handlers of its synchronous server only.
        inner = cast(Callable[[Any, _Context], Any], next(each for each in functions if each is not None))

        async def unary_response(request: Any, context: _Context) -> Any:
            async with self._served(path, method, context):
                _check_decoded(request)
                return await inner(request, context)

        async def stream_response(request: Any, context: _Context) -> None:
            async with self._served(path, method, context):
                _check_decoded(request)
                responses = inner(request, context)
                if not hasattr(responses, "__aiter__"):
                    await responses  # a coroutine that writes to the context
                    return
                async with aclosing(responses):
                    async for response in responses:
                        await context.write(response)

        make: Callable[..., _Handler] = {
            "unary": grpc.unary_unary_rpc_method_handler,
            "server_stream": grpc.unary_stream_rpc_method_handler,
            "client_stream": grpc.stream_unary_rpc_method_handler,
            "bidi_stream": grpc.stream_stream_rpc_method_handler,
        }[method.type]
        return make(
            stream_response if handler.response_streaming else unary_response,
            request_deserializer=_deserializer(handler),
            response_serializer=handler.response_serializer,
        )

    @asynccontextmanager
    async def _served(self, path: str, method: metrics.Method, context: _Context) -> AsyncIterator[None]:
        """Around the servicer's part of one call. Whatever it raises ends the call here."""
        started = time.perf_counter()
        metadata = list(context.invocation_metadata() or ())
        call, refusal = self._identify(method, context, metadata)
        context.set_trailing_metadata(((REQUEST_ID_KEY, call.request_id),))
        code = grpc.StatusCode.UNKNOWN
        metrics.began(method)
        with telemetry.server_span(path, metadata) as span, with_call(call):
            telemetry.set_caller(span, request_id=call.request_id, tenant=call.tenant)
            try:
                if refusal is not None:
                    raise refusal
                async with self._admitted(path, method, context):
                    yield
                _keep_request_id(context, call.request_id)
                code = _code_set(context)
            except grpc.aio.AbortError:
                code = _code_set(context)
                raise
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is not None and self._drain.cuts_off(task):
                    task.uncancel()
                    code = CODES[ShuttingDown.reason]
                    metrics.failed(ShuttingDown.reason)
                    await abort(context, ShuttingDown())
                if task is not None and task.cancelling() > 0:
                    code = _code_of_leaving(context)
                    raise
                # Somebody's cancelled task was awaited. gRPC would take it for the caller's leaving and never answer.
                code = grpc.StatusCode.INTERNAL
                logger.exception("a cancelled task ended a call", method=path)
                metrics.failed(InternalError.reason)
                await abort(context, InternalError(call.request_id))
            except Exception as error:
                answer = _known(error)
                if isinstance(error, NotImplementedError) and context.code() is grpc.StatusCode.UNIMPLEMENTED:
                    # From the generated servicer: the contract has the method, this server does not.
                    answer = FeatureUnsupported(path.removeprefix("/"))
                if answer is None:
                    logger.exception("unknown exception in a call", method=path)
                    answer = InternalError(call.request_id)
                code = CODES[answer.reason]
                metrics.failed(answer.reason)
                telemetry.set_reason(span, answer.reason.name)
                await abort(context, answer)
            finally:
                seconds = time.perf_counter() - started
                metrics.ended(method, code, seconds)
                telemetry.set_code(span, code, server=True)
                self._talked(call.tenant, code, seconds)
                _log(path, code, seconds)

    def _talked(self, tenant: str, code: grpc.StatusCode, seconds: float) -> None:
        if self._talkers.empty:
            # A window begins with its first call: where nobody calls, nothing wakes up.
            asyncio.get_running_loop().call_later(
                WINDOW_SECONDS, tell, self._talkers, tenant_hash, logger.info, context=contextvars.Context()
            )
        self._talkers.add(tenant, failed=code is not grpc.StatusCode.OK, seconds=seconds)

    def _identify(
        self, method: metrics.Method, context: _Context, metadata: Sequence[tuple[str, str | bytes]]
    ) -> tuple[CallContext, KbmeshError | None]:
        """Who calls and until when, and why that is refused where it is."""
        names = self._caller_names(context)
        refusal: KbmeshError | None = self._policy.refusal(names)
        tenant, principals = DEFAULT_TENANT, tuple[str, ...]()
        try:
            tenant, principals = caller_of(metadata, trusted=self._policy.trusts(names))
        except KbmeshError as error:
            refusal = refusal or error
        # grpc's annotation forgets that a call may have no deadline.
        seconds: float | None = context.time_remaining()
        if seconds is not None:
            seconds = max(0.0, seconds - _rounding(seconds))
        elif method.type == "unary":
            seconds = self._settings.default_deadline_seconds
        call = CallContext(
            request_id=request_id_of(metadata) or self._make_request_id(),
            tenant=tenant,
            principals=principals,
            deadline=None if seconds is None else Deadline.after(seconds),
        )
        return call, refusal

    @asynccontextmanager
    async def _admitted(self, path: str, method: metrics.Method, context: _Context) -> AsyncIterator[None]:
        """Lets the call in, within the default deadline."""
        self._drain.arrived()
        if self._drain.draining:
            raise ShuttingDown
        if method.service not in self._endless:
            self._drain.enter()
            # grpc's annotation wants a class that exists in its stubs only.
            context.add_done_callback(cast(Any, lambda _: self._drain.leave()))
        # gRPC itself sees to a deadline that the caller set.
        has_deadline = method.type != "unary" or context.time_remaining() is not None
        timeout = asyncio.timeout(None if has_deadline else self._settings.default_deadline_seconds)
        try:
            async with timeout:
                with self._drain.running():
                    yield
        except grpc.aio.AbortError:
            raise
        except Exception as error:
            if timeout.expired():
                raise DeadlineExceeded(path.removeprefix("/")) from error
            raise


class _Undecodable:
    """Stands for a single request that is no message of its type."""


def _deserializer(handler: _Handler) -> Callable[[bytes], Any] | None:
    """The handler's own, which does not end a call as gRPC does: with UNKNOWN or INTERNAL, and no reason."""
    # grpc's annotation forgets that a handler of bytes has none.
    inner: Callable[[bytes], Any] | None = handler.request_deserializer
    if inner is None:
        return None

    def deserialize(data: bytes) -> Any:
        try:
            return inner(data)
        except DecodeError:
            if handler.request_streaming:
                # Raised where the servicer reads.
                raise _invalid_request() from None
            # gRPC decodes a single request before it calls anything that could answer.
            return _Undecodable()

    return deserialize


def _check_decoded(request: object) -> None:
    if isinstance(request, _Undecodable):
        raise _invalid_request()


def _invalid_request() -> InvalidField:
    return InvalidField("request", "the bytes are no message of the method's request, or hold text that is not UTF-8")


def _known(error: BaseException) -> KbmeshError | None:
    """The kbmesh error that `error` is, or that a TaskGroup wrapped; None where there is any other in it."""
    if isinstance(error, KbmeshError):
        return error
    if isinstance(error, BaseExceptionGroup):
        inner = [_known(each) for each in error.exceptions]
        return inner[0] if all(each is not None for each in inner) else None
    return None


def _code_set(context: _Context) -> grpc.StatusCode:
    """What the servicer set or aborted with; OK where it did neither."""
    code = context.code()
    return code if isinstance(code, grpc.StatusCode) else grpc.StatusCode.OK


def _code_of_leaving(context: _Context) -> grpc.StatusCode:
    return grpc.StatusCode.DEADLINE_EXCEEDED if context.time_remaining() == 0 else grpc.StatusCode.CANCELLED


def _keep_request_id(context: _Context, request_id: str) -> None:
    """Puts the request id back where the servicer set trailing metadata of its own."""
    trailing = tuple(context.trailing_metadata() or ())
    if all(key != REQUEST_ID_KEY for key, _ in trailing):
        context.set_trailing_metadata((*trailing, (REQUEST_ID_KEY, request_id)))


def _log(path: str, code: grpc.StatusCode, seconds: float) -> None:
    event = {"method": path, "code": code.name, "milliseconds": round(seconds * 1000, 3)}
    if code is grpc.StatusCode.OK:
        logger.debug("call", **event)
    elif code in _OWN_FAULTS:
        logger.warning("call", **event)
    else:
        logger.info("call", **event)


def _rounding(seconds: float) -> float:
    """By how much gRPC may have rounded a caller's timeout up: the header has few digits. An answer later than the
    caller's own clock allows reaches nobody."""
    if seconds < 10:
        return 0.01
    return 0.1 if seconds < 101 else 1.0
