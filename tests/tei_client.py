"""A client of text-embeddings-inference, as one would write it: stubs of the public proto, and nothing of kbmesh.

It runs as a process of its own, since two copies of one Protobuf package cannot live in one process. It reads groups of
calls from standard input, makes those of a group at once, and writes what became of each to standard output.

    python tei_client.py STUBS TARGET < calls.json
"""

import asyncio
import json
import sys
from typing import Any

import grpc
from google.protobuf.json_format import MessageToDict, ParseDict

Call = dict[str, Any]


async def make(pb2: Any, service: Any, channel: grpc.aio.Channel, call: Call) -> Call:
    """Makes one call, given by `method` (`Embed/EmbedStream`), `requests` and `timeout` (none: no deadline)."""
    service_name, method_name = call["method"].split("/")
    descriptor = pb2.DESCRIPTOR.services_by_name[service_name].methods_by_name[method_name]
    request_type = getattr(pb2, descriptor.input_type.name)
    requests = [ParseDict(request, request_type()) for request in call["requests"]]
    method = getattr(getattr(service, f"{service_name}Stub")(channel), method_name)
    responses: list[Any] = []
    result: Call = {"code": "OK", "details": "", "trailing": [], "responses": responses}
    try:
        made = method(iter(requests) if descriptor.client_streaming else requests[0], timeout=call.get("timeout"))
        if descriptor.server_streaming:
            while (response := await made.read()) is not grpc.aio.EOF:
                responses.append(response)
        else:
            responses.append(await made)
    except grpc.aio.AioRpcError as error:
        result["code"], result["details"] = error.code().name, error.details()
        result["trailing"] = [key for key, _ in error.trailing_metadata()]
    result["responses"] = [
        MessageToDict(response, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
        for response in responses
    ]
    return result


async def main(target: str) -> None:
    """Makes the calls of standard input."""
    from tei.v1 import tei_pb2, tei_pb2_grpc  # from STUBS, which is on the path by now

    groups: list[list[Call]] = json.load(sys.stdin)
    async with grpc.aio.insecure_channel(target) as channel:
        await asyncio.wait_for(channel.channel_ready(), 60)
        results = [
            await asyncio.gather(*(make(tei_pb2, tei_pb2_grpc, channel, call) for call in group)) for group in groups
        ]
    json.dump({"stubs": tei_pb2.__file__, "results": results}, sys.stdout)


if __name__ == "__main__":
    sys.path.insert(0, sys.argv[1])
    asyncio.run(main(sys.argv[2]))
