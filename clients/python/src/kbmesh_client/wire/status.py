"""Reads google.rpc.Status out of a failed call."""

import grpc
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]  # ships no py.typed

from kbmesh_client.errors import BY_CODE, BY_REASON, ErrorDetails, FieldViolation, KbmeshError, ServerFault

DOMAIN = "kbmesh"
REASON_PREFIX = "ERROR_REASON_"
STATUS_KEY = "grpc-status-details-bin"
LOST_STATUS = "Internal error from Core"
"""What grpc.aio puts in the place of a server's status where a write fails as the call ends (grpc/grpc#36066)."""
_TLS_FAILURES = {
    "certificate has expired": "the server's certificate has expired",
    "certificate is not yet valid": "the server's certificate is not valid yet; are the clocks right?",
    "CERTIFICATE_VERIFY_FAILED": "the server's certificate comes from no authority that is trusted here; `ca` has them",
    "Hostname Verification": "the server's certificate carries another name; `server_name` says which is meant",
    "WRONG_VERSION_NUMBER": "the server speaks plain text",
}
"""What gRPC writes where a handshake fails, the more special before the more general."""
_CLOSED_AT_ONCE = "Socket closed"
"""With "last error" before it where it was while connecting, and not in the middle of a call."""


def error_from_call(error: grpc.RpcError, *, endpoint: str, request_id: str) -> KbmeshError:
    """Gives the typed error of a failed call, synchronous or asynchronous."""
    code: grpc.StatusCode = error.code()
    text: str = error.details() or ""
    info, violations, retry_after_seconds = _read_details(error.trailing_metadata() or ())
    if info is not None and info.domain == DOMAIN:
        reason = info.reason.removeprefix(REASON_PREFIX)
        kind = BY_REASON.get(reason) or BY_CODE.get(code, (ServerFault, ""))[0]
        metadata = dict(info.metadata)
    else:
        kind, reason = BY_CODE.get(code, (ServerFault, "INTERNAL"))
        metadata = {}
        if code is grpc.StatusCode.UNAVAILABLE:
            metadata = {"dependency": endpoint}
            text = _unavailable(text, endpoint)
        elif code is grpc.StatusCode.DEADLINE_EXCEEDED:
            metadata = {"stage": "client"}
            text = f"no answer from {endpoint} within the deadline"
        elif code is grpc.StatusCode.UNIMPLEMENTED:
            text = f"the server at {endpoint} does not serve this call ({text})"
        elif code is grpc.StatusCode.INTERNAL and text == LOST_STATUS:
            kind, reason = BY_CODE[grpc.StatusCode.UNAVAILABLE]
            metadata = {"dependency": endpoint}
            text = f"{endpoint} ended the call while it was still being written, and gRPC lost the reason"
        elif code is grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in text:
            kind, reason = BY_REASON["REQUEST_TOO_LARGE"], "REQUEST_TOO_LARGE"
    details = ErrorDetails(
        reason=reason,
        code=code,
        metadata=metadata,
        field_violations=violations,
        retry_after_seconds=retry_after_seconds,
        request_id=metadata.get("request_id", request_id),
    )
    return kind(text or reason, details)


def _unavailable(text: str, endpoint: str) -> str:
    """What gRPC's text of a connection that could not be made means."""
    for mark, meaning in _TLS_FAILURES.items():
        if mark in text:
            return f"no TLS connection to {endpoint}: {meaning}"
    if _CLOSED_AT_ONCE in text and "last error" in text:
        return (
            f"{endpoint} closed the connection before any call: it wants TLS, or a client certificate, or another one "
            "than it was shown"
        )
    # The text ends with the cause, as in "…: Failed to connect to remote host: Connection refused". Where a name has no
    # address, brackets that were opened before it close there.
    cause = text.rpartition(": ")[2].rstrip("]) ")
    return f"no kbmesh server answers at {endpoint} ({cause}); is it running there?"


def _read_details(
    trailing: object,
) -> tuple[error_details_pb2.ErrorInfo | None, tuple[FieldViolation, ...], float | None]:
    info: error_details_pb2.ErrorInfo | None = None
    violations: tuple[FieldViolation, ...] = ()
    retry_after_seconds: float | None = None
    for detail in _status(trailing).details:
        if detail.Is(error_details_pb2.ErrorInfo.DESCRIPTOR):
            info = error_details_pb2.ErrorInfo.FromString(detail.value)
        elif detail.Is(error_details_pb2.BadRequest.DESCRIPTOR):
            bad_request = error_details_pb2.BadRequest.FromString(detail.value)
            violations = tuple(
                FieldViolation(field=violation.field, description=violation.description)
                for violation in bad_request.field_violations
            )
        elif detail.Is(error_details_pb2.RetryInfo.DESCRIPTOR):
            delay = error_details_pb2.RetryInfo.FromString(detail.value).retry_delay
            retry_after_seconds = delay.seconds + delay.nanos / 1e9
    return info, violations, retry_after_seconds


def _status(trailing: object) -> status_pb2.Status:
    for key, value in trailing:  # type: ignore[attr-defined]  # pairs in both clients, of types without a name
        if key == STATUS_KEY:
            return status_pb2.Status.FromString(value)
    return status_pb2.Status()
