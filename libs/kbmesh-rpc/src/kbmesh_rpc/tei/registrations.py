"""The services of `tei.v1` in a server: those that it serves, and typed refusals for the rest of the contract."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import grpc
from tei.v1 import tei_pb2_grpc

from kbmesh_rpc.server import Registration

PACKAGE = "tei.v1"

_SERVICES: Mapping[str, tuple[Callable[[], Any], Callable[[Any, grpc.aio.Server], None]]] = {
    "Info": (tei_pb2_grpc.InfoServicer, tei_pb2_grpc.add_InfoServicer_to_server),
    "Embed": (tei_pb2_grpc.EmbedServicer, tei_pb2_grpc.add_EmbedServicer_to_server),
    "Predict": (tei_pb2_grpc.PredictServicer, tei_pb2_grpc.add_PredictServicer_to_server),
    "Rerank": (tei_pb2_grpc.RerankServicer, tei_pb2_grpc.add_RerankServicer_to_server),
    "Tokenize": (tei_pb2_grpc.TokenizeServicer, tei_pb2_grpc.add_TokenizeServicer_to_server),
}


def tei_registrations(servicers: Mapping[str, Any]) -> Sequence[Registration]:
    """A registration for each of `servicers`, by the service's short name such as `Embed`.

    The contract's other services answer every call with FeatureUnsupported. Health and reflection do not know them, so
    that nobody takes them for served.
    """
    names = list(servicers)
    return [_registration(name, servicers[name], refused=index == 0, served=names) for index, name in enumerate(names)]


def _registration(name: str, servicer: Any, *, refused: bool, served: Sequence[str]) -> Registration:
    def add(server: grpc.aio.Server) -> None:
        _SERVICES[name][1](servicer, server)
        if refused:
            for other, (make, add_to_server) in _SERVICES.items():
                if other not in served:
                    # The generated servicer refuses, and the server's interceptor makes a typed error of that.
                    add_to_server(make(), server)

    return Registration(name=f"{PACKAGE}.{name}", add=add)
