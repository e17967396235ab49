"""Channels to other kbmesh services."""

import json
from collections.abc import Sequence

import grpc

from kbmesh_rpc.certificates import CertificateFiles, Certificates, Pems, certificates_at
from kbmesh_rpc.http2 import Options, client_options
from kbmesh_rpc.outbound import client_interceptors
from kbmesh_rpc.renewing_channel import RenewingChannel
from kbmesh_rpc.settings import MEBIBYTE, ServerSettings

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
    certificates: Certificates | None = None,
    server_name: str = "",
) -> grpc.aio.Channel:
    """A channel to `target` (`host:port`, or any of gRPC's name syntax, such as `dns:///embedder-headless:7402`).

    Calls carry on the current call's request id, tenant, principals, trace and deadline (less a reserve). One that
    would begin after that deadline is not sent and fails with AioRpcError of DEADLINE_EXCEEDED. With certificates it
    speaks TLS, by what they hold at the time; the server's must carry `server_name`, or else the host in `target`. The
    caller closes the channel."""
    options = [
        *client_options(max_message_bytes=max_message_bytes),
        ("grpc.service_config", json.dumps(SERVICE_CONFIG)),
    ]
    return dial(target, options, certificates=certificates, server_name=server_name, interceptors=client_interceptors())


def dial(
    target: str,
    options: Options,
    *,
    certificates: Certificates | None,
    server_name: str = "",
    interceptors: Sequence[grpc.aio.ClientInterceptor] = (),
) -> grpc.aio.Channel:
    """A bare channel: by TLS where there are certificates, which may change meanwhile, else in plain text."""
    if certificates is None:
        return grpc.aio.insecure_channel(target, options=options, interceptors=interceptors)
    named = [*options, ("grpc.ssl_target_name_override", server_name)] if server_name else options

    def open_with(pems: Pems) -> grpc.aio.Channel:
        return grpc.aio.secure_channel(target, pems.channel_credentials(), options=named, interceptors=interceptors)

    return RenewingChannel(open_with, certificates)


def calling_certificates(settings: ServerSettings) -> Certificates | None:
    """What other services of the mesh are called with; None for plain text. Raises CertificateFilesError."""
    if settings.tls_ca is None:
        return None
    return certificates_at(certificate_files(settings))


def certificate_files(settings: ServerSettings) -> CertificateFiles:
    """The files that the settings name. Server and channels of a process share them."""
    return CertificateFiles(certificate=settings.tls_cert, key=settings.tls_key, authorities=settings.tls_ca)
