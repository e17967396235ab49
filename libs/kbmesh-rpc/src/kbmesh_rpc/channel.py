"""Channels to other kbmesh services."""

import json

import grpc

from kbmesh_rpc.http2 import client_options
from kbmesh_rpc.outbound import client_interceptors
from kbmesh_rpc.settings import MEBIBYTE

SERVICE_CONFIG = {
    "loadBalancingConfig": [{"round_robin": {}}],
    "healthCheckConfig": {"serviceName": ""},
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
    "retryThrottling": {"maxTokens": 100, "tokenRatio": 1},
}
"""gRPC's service config (grpc/doc/service_config.md). Calls go to each address in turn; the channel watches the health
of each, and leaves out one that is warming up or draining. A call that still meets such a one is retried. A failure
takes a token and a success gives one; with half of them gone nothing is retried: retries would add to an outage."""


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
