"""Asking other replicas over gRPC."""

import asyncio
import socket
from collections.abc import Sequence

import grpc
from kbmesh.load.v1 import load_pb2 as pb2
from kbmesh.load.v1 import load_pb2_grpc

from kbmesh_rpc.certificates import Certificates
from kbmesh_rpc.channel import dial
from kbmesh_rpc.errors import KbmeshError, ShuttingDown
from kbmesh_rpc.http2 import client_options
from kbmesh_rpc.scaler.sweep import PeerLoad
from kbmesh_rpc.scaler.trigger import Peers
from kbmesh_rpc.status import from_rpc_error

MAX_ANSWER_BYTES = 64 * 1024
RECONNECT_OPTIONS = (
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
)
"""gRPC's own wait grows to two minutes, in which a replica that is back would not be asked."""
_FAMILIES = (socket.AF_INET, socket.AF_INET6)


async def resolve(peers: Peers) -> Sequence[str]:
    """Every address that the name has, each as a gRPC target. Raises OSError."""
    found = await asyncio.get_running_loop().getaddrinfo(peers.host, peers.port, type=socket.SOCK_STREAM)
    return [_target(family, str(address[0]), peers.port) for family, _, _, _, address in found if family in _FAMILIES]


def _target(family: socket.AddressFamily, host: str, port: int) -> str:
    return f"ipv6:[{host}]:{port}" if family is socket.AF_INET6 else f"ipv4:{host}:{port}"


class PeerCalls:
    """Calls GetLoad, over one channel an address that stays open between two questions."""

    def __init__(self, certificates: Certificates | None = None) -> None:
        """By TLS where there are certificates. Replicas are called by their addresses, and carry the name behind which
        they were found in their certificates."""
        self._certificates = certificates
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._names: dict[str, str] = {}

    async def resolve(self, peers: Peers) -> Sequence[str]:
        """Every address that the name has, each as a gRPC target. Raises OSError."""
        found = await resolve(peers)
        self._names.update(dict.fromkeys(found, peers.host))
        return found

    async def __call__(self, address: str, *, timeout_seconds: float) -> PeerLoad:
        """The load of the process at `address`. Raises KbmeshError.

        One that drains has none: it takes no more work, and what it still has is no reason for another replica.
        """
        try:
            response = await load_pb2_grpc.LoadServiceStub(self._channel(address)).GetLoad(
                pb2.GetLoadRequest(), timeout=timeout_seconds
            )
        except grpc.aio.AioRpcError as error:
            typed: KbmeshError = from_rpc_error(error, dependency=address)
            if isinstance(typed, ShuttingDown):
                return PeerLoad(instance=address, tokens=0)
            raise typed from error
        tokens = sum(
            model.queued_interactive_tokens + model.queued_bulk_tokens + model.running_tokens
            for model in response.models
        )
        return PeerLoad(instance=response.instance or address, tokens=tokens)

    async def forget(self, gone: Sequence[str]) -> None:
        """Closes the channels of addresses that are no longer there."""
        for address in gone:
            self._names.pop(address, None)
            channel = self._channels.pop(address, None)
            if channel is not None:
                await channel.close()

    async def close(self) -> None:
        """Closes every channel."""
        await self.forget(list(self._channels))

    def _channel(self, address: str) -> grpc.aio.Channel:
        if address not in self._channels:
            # Not `open_channel`: it leaves out who warms up or drains, and retries. Here each answer counts.
            options = [*client_options(max_message_bytes=MAX_ANSWER_BYTES), *RECONNECT_OPTIONS]
            self._channels[address] = dial(
                address, options, certificates=self._certificates, server_name=self._names.get(address, "")
            )
        return self._channels[address]
