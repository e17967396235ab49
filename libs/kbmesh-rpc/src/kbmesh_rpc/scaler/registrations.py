"""The scaler and what it asks for, in a server."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import grpc
from externalscaler.externalscaler_pb2_grpc import add_ExternalScalerServicer_to_server
from kbmesh.load.v1.load_pb2_grpc import add_LoadServiceServicer_to_server

from kbmesh_rpc.certificates import Certificates
from kbmesh_rpc.scaler.load_servicer import Load, LoadServicer
from kbmesh_rpc.scaler.peer_calls import PeerCalls
from kbmesh_rpc.scaler.scaler_servicer import ScalerServicer
from kbmesh_rpc.scaler.sweep import Sweep
from kbmesh_rpc.scaler.trigger import AllowedPeers, parse_peers_list
from kbmesh_rpc.server import Registration

LOAD_SERVICE = "kbmesh.load.v1.LoadService"
SCALER_SERVICE = "externalscaler.ExternalScaler"
FRESH_SECONDS = 1.0
"""How long a sum serves: KEDA asks for the metric and for IsActive one after the other."""
STREAM_SECONDS = 2.0
"""How often a stream looks."""


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """A process's part in scaling: it tells its own load, and KEDA the load of all."""

    registrations: Sequence[Registration]
    peer_calls: PeerCalls

    async def close(self) -> None:
        """Closes the channels to other replicas."""
        await self.peer_calls.close()


def make_scaling(
    loads: Callable[[], Mapping[str, Load]],
    *,
    peers: str,
    any_name: bool,
    timeout_seconds: float,
    certificates: Certificates | None = None,
) -> Scaling:
    """`peers` are the names that triggers may ask for, comma separated; with `any_name` they may ask for others.
    Replicas are asked by TLS where there are `certificates`."""
    calls = PeerCalls(certificates)
    sweep = Sweep(calls.resolve, calls, timeout_seconds=timeout_seconds, fresh_seconds=FRESH_SECONDS)
    load = LoadServicer(loads)
    allowed = AllowedPeers(listed=parse_peers_list(peers), any_name=any_name)
    scaler = ScalerServicer(sweep, allowed, stream_seconds=STREAM_SECONDS)

    def add_load(server: grpc.aio.Server) -> None:
        add_LoadServiceServicer_to_server(load, server)

    def add_scaler(server: grpc.aio.Server) -> None:
        add_ExternalScalerServicer_to_server(scaler, server)

    return Scaling(
        registrations=(
            Registration(name=LOAD_SERVICE, add=add_load),
            # KEDA keeps StreamIsActive open for ever.
            Registration(name=SCALER_SERVICE, add=add_scaler, endless=True),
        ),
        peer_calls=calls,
    )
