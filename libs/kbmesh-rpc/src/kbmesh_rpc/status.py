"""Between kbmesh's errors and gRPC's statuses."""

import math
import re
from typing import Any, NoReturn, cast

import grpc
from google.protobuf.message import DecodeError
from google.rpc import (  # type: ignore[import-untyped]  # googleapis-common-protos has no py.typed
    code_pb2,
    error_details_pb2,
    status_pb2,
)
from kbmesh.errors.v1 import errors_pb2

from kbmesh_rpc.errors import (
    Cancelled,
    DeadlineExceeded,
    DependencyInvalidResponse,
    DependencyUnavailable,
    FieldViolation,
    KbmeshError,
    Reason,
    RequestTooLarge,
    error_for,
    rebuild,
)

ERROR_DOMAIN = "kbmesh"
STATUS_DETAILS_KEY = "grpc-status-details-bin"
TEXT_CHARACTERS = 256
STATUS_BYTES = 2048
GAVE_UP = "Locally cancelled"
"""How gRPC's details begin where it was the caller who cancelled."""
LOST_STATUS = "Internal error from Core"
"""What grpc.aio puts in the place of a server's status where a write fails as the call ends (grpc/grpc#36066)."""
"""What a status may hold before its last field violation. Base64 and the message beside it make some 6 KiB of this."""

CODES: dict[Reason, grpc.StatusCode] = {
    Reason.INVALID_FIELD: grpc.StatusCode.INVALID_ARGUMENT,
    Reason.REQUEST_TOO_LARGE: grpc.StatusCode.INVALID_ARGUMENT,
    Reason.UNAUTHENTICATED: grpc.StatusCode.UNAUTHENTICATED,
    Reason.PERMISSION_DENIED: grpc.StatusCode.PERMISSION_DENIED,
    Reason.KNOWLEDGE_BASE_NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    Reason.KNOWLEDGE_BASE_ALREADY_EXISTS: grpc.StatusCode.ALREADY_EXISTS,
    Reason.DOCUMENT_NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    Reason.MODEL_NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    Reason.MODEL_MISMATCH: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.MODEL_NOT_READY: grpc.StatusCode.UNAVAILABLE,
    Reason.EMPTY_TEXT: grpc.StatusCode.INVALID_ARGUMENT,
    Reason.TEXT_TOO_LONG: grpc.StatusCode.INVALID_ARGUMENT,
    Reason.INFERENCE_FAILED: grpc.StatusCode.INTERNAL,
    Reason.QUEUE_FULL: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Reason.DEADLINE_EXCEEDED: grpc.StatusCode.DEADLINE_EXCEEDED,
    Reason.CANCELLED: grpc.StatusCode.CANCELLED,
    Reason.SHUTTING_DOWN: grpc.StatusCode.UNAVAILABLE,
    Reason.DEPENDENCY_UNAVAILABLE: grpc.StatusCode.UNAVAILABLE,
    Reason.DEPENDENCY_INVALID_RESPONSE: grpc.StatusCode.INTERNAL,
    Reason.UNSUPPORTED_MEDIA_TYPE: grpc.StatusCode.INVALID_ARGUMENT,
    Reason.DOCUMENT_UNREADABLE: grpc.StatusCode.INVALID_ARGUMENT,
    Reason.DOCUMENT_EMPTY: grpc.StatusCode.INVALID_ARGUMENT,
    Reason.DOCUMENT_TOO_LARGE: grpc.StatusCode.INVALID_ARGUMENT,
    Reason.CONFLICT: grpc.StatusCode.ABORTED,
    Reason.FEATURE_UNSUPPORTED: grpc.StatusCode.UNIMPLEMENTED,
    Reason.INTERNAL: grpc.StatusCode.INTERNAL,
    Reason.CONTENT_LEFT_OUT: grpc.StatusCode.INVALID_ARGUMENT,
    Reason.DOCUMENT_SHRUNK: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.JOB_NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    Reason.REBUILD_NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    Reason.REBUILD_INCOMPLETE: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.PROFILE_NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    Reason.PROFILE_ALREADY_EXISTS: grpc.StatusCode.ALREADY_EXISTS,
}
"""The status code that each reason travels with, as `errors.proto` has it."""


def to_status(error: KbmeshError) -> status_pb2.Status:
    """The status of `error`: ErrorInfo, BadRequest for its wrong fields, RetryInfo where it knows when to come back.

    It travels in HTTP/2 headers, of which a peer may take no more than 8 KiB: a text is cut at 256 characters, and
    fields after the first few are left out. Else a name of a megabyte, repeated in an error, would break the answer."""
    status = status_pb2.Status(code=code_pb2.Code.Value(CODES[error.reason].name), message=_short(error.message))
    metadata = {key: _short(value) for key, value in error.metadata.items()}
    status.details.add().Pack(
        error_details_pb2.ErrorInfo(reason=error.reason.value, domain=ERROR_DOMAIN, metadata=metadata)
    )
    if error.retry_after_seconds is not None:
        retry_info = error_details_pb2.RetryInfo()
        retry_info.retry_delay.FromNanoseconds(round(error.retry_after_seconds * 1e9))
        status.details.add().Pack(retry_info)
    bad_request = error_details_pb2.BadRequest()
    for violation in error.field_violations:
        if status.ByteSize() + bad_request.ByteSize() > STATUS_BYTES:
            break
        bad_request.field_violations.add(field=_short(violation.field), description=_short(violation.description))
    if bad_request.field_violations:
        status.details.add().Pack(bad_request)
    return status


def _short(text: str) -> str:
    return text if len(text) <= TEXT_CHARACTERS else text[: TEXT_CHARACTERS - 1] + "…"


async def abort(
    context: grpc.aio.ServicerContext[Any, Any], error: KbmeshError, *, code: grpc.StatusCode | None = None
) -> NoReturn:
    """Ends the call with `error`. Servicers need not: what they raise, the server's interceptor ends the call with.

    Trailing metadata that was set before is kept. `code` is for contracts of others, whose clients know another code
    for the same thing."""
    status = to_status(error)
    if code is not None:
        status.code = code_pb2.Code.Value(code.name)
    trailing = [(key, value) for key, value in context.trailing_metadata() or () if key != STATUS_DETAILS_KEY]
    details = (STATUS_DETAILS_KEY, status.SerializeToString())
    await context.abort(code or CODES[error.reason], _short(error.message), (*trailing, details))


def from_rpc_error(error: grpc.RpcError | grpc.aio.AioRpcError, *, dependency: str) -> KbmeshError:
    """The typed error of a failed call to `dependency`.

    A kbmesh ErrorInfo becomes its own class again. A status that gRPC itself or a stranger made is mapped by its code:

    - UNAVAILABLE: DependencyUnavailable;
    - DEADLINE_EXCEEDED: DeadlineExceeded with `dependency` as the stage;
    - CANCELLED: Cancelled where we gave up ourselves, else DependencyUnavailable: a server that stops says so of what
      it has not begun;
    - RESOURCE_EXHAUSTED: RequestTooLarge where our message was over a size limit, DependencyInvalidResponse where the
      answer was, else DependencyUnavailable;
    - INTERNAL where a write failed as the call ended: DependencyUnavailable, for gRPC lost the server's own status;
    - the rest: DependencyInvalidResponse.
    """
    call = cast(grpc.aio.AioRpcError, error)  # a synchronous RpcError has the same methods, undeclared
    rebuilt = _rebuild(call)
    if rebuilt is not None:
        return rebuilt
    code = call.code()
    details = call.details() or ""
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return DeadlineExceeded(dependency)
    if code is grpc.StatusCode.CANCELLED:
        if details.startswith(GAVE_UP):
            return Cancelled()
        return DependencyUnavailable(dependency, f"{dependency} ended the call before it had begun")
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return _over_message_limit(details, dependency) or DependencyUnavailable(
            dependency, f"{dependency} is overloaded: {details}"
        )
    if code is grpc.StatusCode.UNAVAILABLE:
        return DependencyUnavailable(dependency, f"{dependency} did not answer: {details}")
    if code is grpc.StatusCode.INTERNAL and details == LOST_STATUS:
        return DependencyUnavailable(dependency, f"{dependency} ended the call while it was still being written")
    return DependencyInvalidResponse(dependency, f"{dependency} answered {code.name}: {details}")


def to_item_error(error: KbmeshError) -> errors_pb2.ItemError:
    """`error` as the failure of one item."""
    item = errors_pb2.ItemError(
        reason=errors_pb2.ErrorReason.Value(error.reason.value), message=error.message, metadata=error.metadata
    )
    if error.retry_after_seconds is not None:
        item.retry_after_ms = math.ceil(error.retry_after_seconds * 1000)
    return item


def from_item_error(item: errors_pb2.ItemError, *, dependency: str = "peer") -> KbmeshError:
    """The typed error of one item. A reason that this version does not know becomes DependencyInvalidResponse."""
    try:
        reason = Reason(errors_pb2.ErrorReason.Name(item.reason))
    except ValueError:
        return DependencyInvalidResponse(dependency, item.message or f"unknown reason {item.reason}")
    error = error_for(reason, item.message, item.metadata)
    if item.HasField("retry_after_ms"):
        error.retry_after_seconds = item.retry_after_ms / 1000
    return error


_MESSAGE_LIMIT = re.compile(r"(?:(CLIENT|SERVER): )?(Sent|Received) message larger than max \((\d+) vs\. (\d+)\)")


def _over_message_limit(details: str, dependency: str) -> KbmeshError | None:
    found = _MESSAGE_LIMIT.search(details)
    if found is None:
        return None
    side, direction, actual, limit = found.groups()
    if (side, direction) in {("SERVER", "Received"), ("CLIENT", "Sent")}:
        return RequestTooLarge(field="message", limit=int(limit), actual=int(actual))
    return DependencyInvalidResponse(
        dependency, f"the answer of {dependency} has {actual} bytes, the limit of a message is {limit}"
    )


def _rebuild(error: grpc.aio.AioRpcError) -> KbmeshError | None:
    status = _status_of(error)
    if status is None:
        return None
    info = error_details_pb2.ErrorInfo()
    bad_request = error_details_pb2.BadRequest()
    retry_info = error_details_pb2.RetryInfo()
    retry_after_seconds: float | None = None
    for detail in status.details:
        if detail.Is(info.DESCRIPTOR):
            detail.Unpack(info)
        elif detail.Is(bad_request.DESCRIPTOR):
            detail.Unpack(bad_request)
        elif detail.Is(retry_info.DESCRIPTOR):
            detail.Unpack(retry_info)
            retry_after_seconds = retry_info.retry_delay.ToNanoseconds() / 1e9
    if info.domain != ERROR_DOMAIN or info.reason not in set(Reason):
        return None
    violations = [FieldViolation(field=v.field, description=v.description) for v in bad_request.field_violations]
    return rebuild(Reason(info.reason), status.message, info.metadata, violations, retry_after_seconds)


def _status_of(error: grpc.aio.AioRpcError) -> status_pb2.Status | None:
    for key, value in error.trailing_metadata() or ():
        if key == STATUS_DETAILS_KEY and isinstance(value, bytes):
            try:
                return status_pb2.Status.FromString(value)
            except DecodeError:  # a proxy may have mangled it
                return None
    return None
