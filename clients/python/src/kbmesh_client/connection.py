"""How a client reaches the mesh: channel options, retries, and the metadata of a call."""

import ipaddress
import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

DEFAULT_ENDPOINT = "127.0.0.1:7400"
"""Where `kbmesh up` serves the retriever."""
DEFAULT_TENANT = "default"
MAX_MESSAGE_BYTES = 64 * 1024 * 1024
"""What kbmesh's servers accept by default."""
KEEPALIVE_MILLISECONDS = 30_000
MAX_DOCUMENT_BYTES = 16 * 1024 * 1024
"""What the chunker accepts by default."""

RETRIED_CALLS = (
    {"service": "kbmesh.retriever.v1.RetrieverService"},
    {"service": "kbmesh.retriever.v1.KnowledgeBaseService", "method": "GetKnowledgeBase"},
    {"service": "kbmesh.retriever.v1.KnowledgeBaseService", "method": "ListKnowledgeBases"},
    {"service": "kbmesh.retriever.v1.KnowledgeBaseService", "method": "UpdateKnowledgeBase"},
    {"service": "kbmesh.retriever.v1.IngestionService", "method": "GetDocument"},
    {"service": "kbmesh.retriever.v1.IngestionService", "method": "ListDocuments"},
    {"service": "kbmesh.chunker.v1.ChunkerService", "method": "Chunk"},
)
"""Calls that may be made twice without harm. A create or delete that was lost on its way back is not repeated:
its second answer would be ALREADY_EXISTS or NOT_FOUND."""


@dataclass(frozen=True, kw_only=True)
class Identity:
    """Who calls."""

    tenant: str
    """The tenant whose knowledge bases are meant."""
    principals: tuple[str, ...]
    """User and groups on whose behalf the call is made."""

    def __post_init__(self) -> None:
        for name in (self.tenant, *self.principals):
            # gRPC drops blanks at the ends of metadata: "ann " would ask as "ann".
            if not name or not name.isascii() or not name.isprintable() or set(name) & {",", " "}:
                raise ValueError(f"a tenant or principal is visible ASCII without commas and spaces, not {name!r}")

    def metadata(self, request_id: str) -> tuple[tuple[str, str], ...]:
        """The metadata of one call."""
        identity = [("kbmesh-request-id", request_id), ("kbmesh-tenant", self.tenant)]
        if self.principals:
            identity.append(("kbmesh-principals", ",".join(self.principals)))
        return tuple(identity)


def new_request_id() -> str:
    """32 hexadecimal digits."""
    return secrets.token_hex(16)


def require_chunker_endpoint(endpoint: str | None) -> str:
    """Gives the chunker's endpoint. Raises ValueError where it was not named: the retriever cuts nothing itself."""
    if not endpoint:
        raise ValueError(
            'chunk() asks the chunker, so the client needs its address: set chunker_endpoint="host:port" '
            "(127.0.0.1:7401 for a mesh of `kbmesh up`)"
        )
    return endpoint


def channel_options(endpoint: str, max_message_bytes: int) -> Sequence[tuple[str, str | int]]:
    """Options of a channel: both message limits, round robin over all addresses, retries of UNAVAILABLE."""
    return (
        # A proxy in the environment is for the outside world.
        ("grpc.enable_http_proxy", 0 if is_loopback(endpoint) else 1),
        # A long ingestion notices a dead peer. kbmesh's servers allow a ping every 20 s.
        ("grpc.keepalive_time_ms", KEEPALIVE_MILLISECONDS),
        ("grpc.keepalive_timeout_ms", 10_000),
        # A call that is larger than this buffer is not retried; gRPC's default is 256 KiB.
        ("grpc.per_rpc_retry_buffer_size", max_message_bytes),
        ("grpc.max_send_message_length", max_message_bytes),
        ("grpc.max_receive_message_length", max_message_bytes),
        ("grpc.enable_retries", 1),
        # A server that is just coming up is noticed within a second.
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 5000),
        ("grpc.service_config", json.dumps(service_config())),
    )


def is_loopback(endpoint: str) -> bool:
    """Tells whether a target in gRPC's name syntax is on this machine: a Unix socket, or loopback addresses alone."""
    scheme, colon, rest = endpoint.partition(":")
    if scheme in ("unix", "unix-abstract"):
        return True
    addresses = [endpoint]
    if scheme == "dns" and colon:
        addresses = [rest.rpartition("/")[2]]
    elif scheme in ("ipv4", "ipv6") and colon:
        addresses = rest.lstrip("/").split(",")
    return all(map(_is_loopback_address, addresses))


def _is_loopback_address(address: str) -> bool:
    if address.startswith("["):
        host = address[1:].partition("]")[0]
    else:
        # Two colons and no brackets: an IPv6 address without a port.
        host = address if address.count(":") > 1 else address.partition(":")[0]
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False  # a name, be it 127.0.0.1.example.org


def service_config() -> dict[str, object]:
    """The gRPC service config (https://github.com/grpc/grpc/blob/master/doc/service_config.md)."""
    return {
        "loadBalancingConfig": [{"round_robin": {}}],
        # A replica that drains or warms up is left out before a call meets it.
        "healthCheckConfig": {"serviceName": ""},
        "methodConfig": [
            {
                "name": list(RETRIED_CALLS),
                "retryPolicy": {
                    "maxAttempts": 4,
                    "initialBackoff": "0.1s",
                    "maxBackoff": "1s",
                    "backoffMultiplier": 2,
                    "retryableStatusCodes": ["UNAVAILABLE"],
                },
            }
        ],
        # A failure takes a token and a success gives one; with half of them gone nothing is retried: retries would add
        # to an outage. One replica of two that goes away must not use them up.
        "retryThrottling": {"maxTokens": 100, "tokenRatio": 1},
    }
