"""An answer as bytes, for the cache."""

from collections.abc import Mapping

from kbmesh.retriever.v1 import retriever_pb2 as pb

from kbmesh_retriever.cache.answers import Origin, Served
from kbmesh_retriever.retrieve.answer import Answer
from kbmesh_retriever.retriever_messages import write_answer

_CACHE_STATES: Mapping[Origin, "pb.CacheState.ValueType"] = {
    Origin.UNASKED: pb.CACHE_STATE_UNSPECIFIED,
    Origin.MISS: pb.CACHE_STATE_MISS,
    Origin.HIT: pb.CACHE_STATE_HIT,
    Origin.SHARED: pb.CACHE_STATE_SHARED,
}


def encode_answer(answer: Answer) -> bytes:
    """Equal answers give equal bytes: they hold no time that something took, no request's id, and no presigned link."""
    message = write_answer(answer, request_id="")
    message.ClearField("timings")
    for report in message.knowledge_bases:
        report.milliseconds = 0
    return message.SerializeToString(deterministic=True)


def write_served(served: Served, *, request_id: str) -> pb.RetrieveResponse:
    """The message for one caller, with its own request id and times."""
    if isinstance(served.answer, Answer):
        message = write_answer(served.answer, request_id=request_id)
    else:
        message = pb.RetrieveResponse.FromString(served.answer)
        message.request_id = request_id
    message.timings.clear()
    message.timings.update(served.timings)
    message.cache = _CACHE_STATES[served.origin]
    return message
