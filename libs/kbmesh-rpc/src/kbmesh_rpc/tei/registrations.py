"""The services of `tei.v1` in a server: those that it serves, and typed refusals for the rest of the contract."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, NoReturn

import grpc
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message_factory import GetMessageClass
from tei.v1 import tei_pb2, tei_pb2_grpc

from kbmesh_rpc.errors import FeatureUnsupported
from kbmesh_rpc.server import Registration

PACKAGE = "tei.v1"

_ADDERS: Mapping[str, Callable[[Any, grpc.aio.Server], None]] = {
    "Info": tei_pb2_grpc.add_InfoServicer_to_server,
    "Embed": tei_pb2_grpc.add_EmbedServicer_to_server,
    "Rerank": tei_pb2_grpc.add_RerankServicer_to_server,
    "Tokenize": tei_pb2_grpc.add_TokenizeServicer_to_server,
}


def tei_registrations(servicers: Mapping[str, Any]) -> Sequence[Registration]:
    """A registration for each of `servicers`, by the service's short name such as `Embed`.

    The contract's other services answer every call with FeatureUnsupported. Health and reflection do not know them, so
    that nobody takes them for served.
    """
    refused = [name for name in tei_pb2.DESCRIPTOR.services_by_name if name not in servicers]
    first = next(iter(servicers))
    return [
        _registration(name, servicer, refused=refused if name == first else ()) for name, servicer in servicers.items()
    ]


async def refuse_stream(requests: AsyncIterator[Any], feature: str) -> NoReturn:
    """Raises FeatureUnsupported, once the caller has begun to send.

    Python's client takes a stream that ends while it sends its first message for a fault of its own.
    """
    await anext(requests, None)
    raise FeatureUnsupported(feature)


def _registration(name: str, servicer: Any, *, refused: Sequence[str]) -> Registration:
    def add(server: grpc.aio.Server) -> None:
        _ADDERS[name](servicer, server)
        for other in refused:
            methods = tei_pb2.DESCRIPTOR.services_by_name[other].methods
            handlers = {method.name: _refusal(method) for method in methods}
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(f"{PACKAGE}.{other}", handlers),))

    return Registration(name=f"{PACKAGE}.{name}", add=add)


def _refusal(method: MethodDescriptor) -> "grpc.RpcMethodHandler[Any, Any]":
    feature = f"{PACKAGE}.{method.containing_service.name}/{method.name}"

    async def unary(request: Any, context: Any) -> NoReturn:
        raise FeatureUnsupported(feature)

    async def client_stream(requests: AsyncIterator[Any], context: Any) -> NoReturn:
        await refuse_stream(requests, feature)

    async def bidi_stream(requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        await refuse_stream(requests, feature)
        yield  # an asynchronous generator, as a stream of answers has to be

    make: Callable[..., grpc.RpcMethodHandler[Any, Any]]
    behaviour: Callable[..., Any]
    if not method.client_streaming:
        make, behaviour = grpc.unary_unary_rpc_method_handler, unary
    elif method.server_streaming:
        make, behaviour = grpc.stream_stream_rpc_method_handler, bidi_stream
    else:
        make, behaviour = grpc.stream_unary_rpc_method_handler, client_stream
    return make(
        behaviour,
        request_deserializer=GetMessageClass(method.input_type).FromString,
        response_serializer=GetMessageClass(method.output_type).SerializeToString,
    )
