"""HTTP/2 settings of both ends, which must agree: a client that pings more often than its server allows is
disconnected with GOAWAY too_many_pings, and its calls break."""

from typing import Any

KEEPALIVE_MILLISECONDS = 30_000
"""How often a client asks an idle connection whether it still lives. Load balancers forget one after 60 s or more."""
KEEPALIVE_TIMEOUT_MILLISECONDS = 10_000
MIN_PING_INTERVAL_MILLISECONDS = 5_000
"""How often a server lets a client ping. Well below KEEPALIVE_MILLISECONDS, since timers are not exact, and below the
10 s that gRPC lets clients choose at least."""

RECONNECT_MILLISECONDS = 200
MAX_RECONNECT_MILLISECONDS = 5_000
"""How long a channel waits at most before it tries an address again. gRPC's default is two minutes, for which a
service that has long been back would get no call."""

MAX_METADATA_BYTES = 64 * 1024
"""What metadata may come to: a caller may be in hundreds of groups."""

Options = list[tuple[str, Any]]


def client_options(*, max_message_bytes: int, keepalive_milliseconds: int = KEEPALIVE_MILLISECONDS) -> Options:
    """Channel arguments of a client."""
    return [
        ("grpc.max_send_message_length", max_message_bytes),
        ("grpc.max_receive_message_length", max_message_bytes),
        ("grpc.max_metadata_size", MAX_METADATA_BYTES),
        ("grpc.keepalive_time_ms", keepalive_milliseconds),
        ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MILLISECONDS),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.initial_reconnect_backoff_ms", RECONNECT_MILLISECONDS),
        ("grpc.max_reconnect_backoff_ms", MAX_RECONNECT_MILLISECONDS),
        # A call that is larger than this buffer is not retried; the default is 256 KiB.
        ("grpc.per_rpc_retry_buffer_size", max_message_bytes),
        # The mesh is one network: a proxy in the environment is for the outside world.
        ("grpc.enable_http_proxy", 0),
    ]


def server_options(
    *,
    max_message_bytes: int,
    max_connection_age_seconds: int = 0,
    grace_seconds: float = 0.0,
    min_ping_interval_milliseconds: int = MIN_PING_INTERVAL_MILLISECONDS,
) -> Options:
    """Channel arguments of a server."""
    options: Options = [
        ("grpc.max_send_message_length", max_message_bytes),
        ("grpc.max_receive_message_length", max_message_bytes),
        ("grpc.max_metadata_size", MAX_METADATA_BYTES),
        ("grpc.http2.min_ping_interval_without_data_ms", min_ping_interval_milliseconds),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", min_ping_interval_milliseconds),
        ("grpc.keepalive_permit_without_calls", 1),
        # Two servers on one port would share its callers in silence; the second one is to fail.
        ("grpc.so_reuseport", 0),
    ]
    if max_connection_age_seconds:
        options.append(("grpc.max_connection_age_ms", max_connection_age_seconds * 1000))
        options.append(("grpc.max_connection_age_grace_ms", round(max(grace_seconds, 1.0) * 1000)))
    return options


HEALTH_MESSAGE_BYTES = 4096
HEALTH_STREAMS = 32


def health_server_options() -> Options:
    """Channel arguments of the plain health port, which anybody may reach: small messages, few calls a connection."""
    return [
        ("grpc.max_receive_message_length", HEALTH_MESSAGE_BYTES),
        ("grpc.max_metadata_size", HEALTH_MESSAGE_BYTES),
        ("grpc.max_concurrent_streams", HEALTH_STREAMS),
        ("grpc.so_reuseport", 0),
    ]
