"""Channels to other kbmesh services."""

import json

import grpc

from kbmesh_rpc.http2 import client_options
from kbmesh_rpc.outbound import client_interceptors
from kbmesh_rpc.settings import MEBIBYTE

SERVICE_CONFIG = {
    "loadBalancingConfig": [{"round_robin": {}}],
    "methodConfig": [
        {
            "name": [{}],
            "retryPolicy": {
                "maxAttempts": 4,
                "initialBackoff": "0.05s",
                "maxBackoff": "1s",
                "backoffMultiplier": 2,
                "retryableStatusCodes": ["UNAVAILABLE"],
            },
        }
    ],
    "retryThrottling": {"maxTokens": 10, "tokenRatio": 0.1},
}
"""gRPC's service config (grpc/doc/service_config.md): one connection to each address in turn; a call that met a replica
that is starting or draining is retried, until half of the last calls fail, when retries would only add to the load."""


def open_channel(
    target: str,
    *,
    max_message_bytes: int = 64 * MEBIBYTE,
    tls: bool = False,
    root_certificates: bytes | None = None,
    private_key: bytes | None = None,
    certificate_chain: bytes | None = None,
) -> grpc.aio.Channel:
    """A channel to `target` (`host:port`, or any of gRPC's name syntax, such as `dns:///embedder-headless:7402`).

    Calls carry on the current call's request id, tenant, principals, trace and deadline (less a reserve). One that
    would begin after that deadline is not sent and fails with AioRpcError of DEADLINE_EXCEEDED. The certificates are
    PEM; any of them turns TLS on. The caller closes the channel."""
    options = [
        *client_options(max_message_bytes=max_message_bytes),
        ("grpc.service_config", json.dumps(SERVICE_CONFIG)),
    ]
    interceptors = client_interceptors()
    if tls or root_certificates or private_key or certificate_chain:
        credentials = grpc.ssl_channel_credentials(root_certificates, private_key, certificate_chain)
        return grpc.aio.secure_channel(target, credentials, options=options, interceptors=interceptors)
    return grpc.aio.insecure_channel(target, options=options, interceptors=interceptors)
