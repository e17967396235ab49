"""Asks grpc.health.v1 whether a service serves.

The protocol's two messages are a string and an enum; they are read here by hand, so that the command needs no further
package (https://github.com/grpc/grpc/blob/master/doc/health-checking.md).
"""

from enum import StrEnum

import grpc
from kbmesh_client import TlsFiles
from kbmesh_client.tls import read_files

CHECK = "/grpc.health.v1.Health/Check"
CHANNEL_OPTIONS = (
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 200),
    ("grpc.enable_retries", 0),
    # Checks of one address from several places must not share a connection that is backing off.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
)


class Health(StrEnum):
    """What a health check found."""

    SERVING = "SERVING"
    NOT_SERVING = "NOT_SERVING"
    UNREACHABLE = "UNREACHABLE"
    """Nobody answers there."""
    UNKNOWN = "UNKNOWN"
    """Somebody answers, and not as kbmesh would."""


def _status(answer: bytes) -> Health:
    # HealthCheckResponse: field 1, a varint; left out when 0 (UNKNOWN).
    return {b"\x08\x01": Health.SERVING, b"\x08\x02": Health.NOT_SERVING}.get(answer, Health.UNKNOWN)


def check_health(endpoint: str, *, tls: TlsFiles | None = None, timeout_seconds: float = 2.0) -> Health:
    """Asks a server about itself as a whole. Never raises for a server that does not answer; TlsFilesError for files
    that cannot be used."""
    with _channel(endpoint, tls) as channel:
        check = channel.unary_unary(CHECK, request_serializer=bytes, response_deserializer=_status)
        try:
            return check(b"", timeout=timeout_seconds)
        except grpc.RpcError as error:
            if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                return Health.UNREACHABLE
            return Health.UNKNOWN


def _channel(endpoint: str, tls: TlsFiles | None) -> grpc.Channel:
    if tls is None:
        return grpc.insecure_channel(endpoint, CHANNEL_OPTIONS)
    return grpc.secure_channel(endpoint, read_files(tls).credentials(), _named(tls))


def health_channel(endpoint: str, tls: TlsFiles | None) -> grpc.aio.Channel:
    """A channel for `check_health_async`. Raises TlsFilesError."""
    if tls is None:
        return grpc.aio.insecure_channel(endpoint, CHANNEL_OPTIONS)
    return grpc.aio.secure_channel(endpoint, read_files(tls).credentials(), _named(tls))


def _named(tls: TlsFiles) -> list[tuple[str, str | int]]:
    return [*CHANNEL_OPTIONS, *([("grpc.ssl_target_name_override", tls.server_name)] if tls.server_name else [])]


async def check_health_async(channel: grpc.aio.Channel, *, timeout_seconds: float = 2.0) -> Health:
    """Like `check_health`, over an open channel."""
    check = channel.unary_unary(CHECK, request_serializer=bytes, response_deserializer=_status)
    try:
        return await check(b"", timeout=timeout_seconds)
    except grpc.aio.AioRpcError as error:
        if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
            return Health.UNREACHABLE
        return Health.UNKNOWN
