"""A retrieval profile's defaults: checked, kept as JSON, and put under a request that names the profile.

A request wins wherever it says something, and a profile holds wherever it does not. A field says something where it is
set: present where it has presence, else not zero and not empty. A field is taken whole, from the one or the other, but
for three of them:
- `knowledge_bases`: a request that names none searches the profile's. One that names some searches only those; what the
  profile says of one that both call by the same name or id holds where the request's selector says nothing.
- `min_score` and `min_score_stage` of a selector go together.
- `thresholds`: by stage.
What a profile says and what does nothing beside what the request says, such as candidates to rerank under a strategy
that does not rerank, falls away, and the answer names it. What the request itself says so is refused.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message import Message
from kbmesh.retriever.v1 import retriever_pb2 as pb
from kbmesh_rpc.deadline import Deadline
from kbmesh_rpc.errors import FieldViolation, InvalidField, RequestTooLarge

from kbmesh_retriever.catalog.profile_port import ProfileCatalog
from kbmesh_retriever.retrieve.request import RetrievalLimits, check, options_without_use
from kbmesh_retriever.retrieve.stage import Stage
from kbmesh_retriever.retrieve.time_budget import within
from kbmesh_retriever.retriever_messages import read_request

_OF_REQUESTS_ALONE = ("query", "profile", "explain", "skip_cache")
_FIELD = "profile.defaults"
_INDEXED = re.compile(r"(\w+)\[(\d+)\](?:\.\w+)?")
_OF_VECTORS = (pb.SCORE_STAGE_UNSPECIFIED, pb.SCORE_STAGE_VECTOR)


@dataclass(frozen=True, kw_only=True)
class UnderProfile:
    """A request as it stands under its profile."""

    request: pb.RetrieveRequest
    left_out: tuple[FieldViolation, ...] = ()
    """What the profile says and what does nothing beside what the request says, and why."""


def check_defaults(defaults: pb.RetrieveRequest, limits: RetrievalLimits) -> Sequence[FieldViolation]:
    """What is wrong with them, as far as that can be told without a question."""
    wrong = [
        FieldViolation(field=f"{_FIELD}.{name}", description="is of a request alone")
        for name in _OF_REQUESTS_ALONE
        if getattr(defaults, name)
    ]
    asked = pb.RetrieveRequest()
    asked.CopyFrom(defaults)
    for name in _OF_REQUESTS_ALONE:
        asked.ClearField(name)  # type: ignore[arg-type]  # each is a field of it
    asked.query = "?"
    if not asked.knowledge_bases:
        asked.knowledge_bases.add(knowledge_base="named by the request")
    try:
        check(read_request(asked), limits)
    except (InvalidField, RequestTooLarge) as error:
        wrong += [
            FieldViolation(field=f"{_FIELD}.{one.field}", description=one.description) for one in error.field_violations
        ]
    return wrong


def defaults_to_json(defaults: pb.RetrieveRequest) -> dict[str, Any]:
    """As the catalog keeps them: by the names of the contract's fields."""
    kept: dict[str, Any] = MessageToDict(defaults, preserving_proto_field_name=True)
    return kept


def defaults_from_json(kept: Mapping[str, Any]) -> pb.RetrieveRequest:
    """What `defaults_to_json` was given. Fields that a newer version kept are left out."""
    return ParseDict(dict(kept), pb.RetrieveRequest(), ignore_unknown_fields=True)


def with_defaults(request: pb.RetrieveRequest, defaults: pb.RetrieveRequest) -> pb.RetrieveRequest:
    """The request, with the profile's word wherever it says nothing. It names no profile any more."""
    merged = pb.RetrieveRequest()
    merged.CopyFrom(defaults)
    _take(merged, request)
    own = {selector.knowledge_base: selector for selector in defaults.knowledge_bases}
    for selector in merged.knowledge_bases if request.knowledge_bases else ():
        if selector.knowledge_base in own:
            said = pb.KnowledgeBaseSelector()
            said.CopyFrom(selector)
            selector.CopyFrom(own[selector.knowledge_base])
            if _has_threshold(said):
                selector.ClearField("min_score")
                selector.ClearField("min_score_stage")
            else:
                said.ClearField("min_score_stage")
            _take(selector, said)
    if request.thresholds:
        said_of = {_stage(threshold) for threshold in request.thresholds}
        merged.thresholds.extend(one for one in defaults.thresholds if _stage(one) not in said_of)
    merged.ClearField("profile")
    return merged


def under_profile(request: pb.RetrieveRequest, defaults: pb.RetrieveRequest) -> UnderProfile:
    """The request with the profile's word wherever it says nothing, but for what does nothing beside it. Raises
    InvalidField for an enum's value that this server does not know."""
    merged = with_defaults(request, defaults)
    left_out = [one for one in options_without_use(read_request(merged)) if not _says(request, one.field)]
    for one in reversed(left_out):  # from the last threshold on, so that the places of those before hold
        _clear(merged, one.field)
    return UnderProfile(request=merged, left_out=tuple(left_out))


def _says(request: pb.RetrieveRequest, path: str) -> bool:
    """Whether an option of the merged request is the request's own word."""
    indexed = _INDEXED.fullmatch(path)
    if indexed is None:
        return path.partition(".")[0] in {field.name for field, _ in request.ListFields()}
    index = int(indexed[2])
    if indexed[1] == "thresholds":  # the request's own stand first
        return index < len(request.thresholds)
    return bool(request.knowledge_bases) and _has_threshold(request.knowledge_bases[index])


def _has_threshold(selector: pb.KnowledgeBaseSelector) -> bool:
    return selector.HasField("min_score") or selector.min_score_stage not in _OF_VECTORS


def _clear(merged: pb.RetrieveRequest, path: str) -> None:
    indexed = _INDEXED.fullmatch(path)
    name, _, of_fusion = path.partition(".")
    if indexed is None:
        _forget(merged.fusion if of_fusion else merged, of_fusion or name)
    elif indexed[1] == "thresholds":
        del merged.thresholds[int(indexed[2])]
    else:
        for of_threshold in ("min_score", "min_score_stage"):
            _forget(merged.knowledge_bases[int(indexed[2])], of_threshold)


def _forget(message: Message, field: str) -> None:
    message.ClearField(field)


async def apply_profile(
    request: pb.RetrieveRequest, profiles: ProfileCatalog, *, tenant: str, deadline: Deadline | None
) -> UnderProfile:
    """The request as it stands under the profile that it names. Raises ProfileNotFound, DependencyUnavailable,
    DeadlineExceeded or InvalidField."""
    seconds = math.inf if deadline is None else deadline.remaining()
    profile = await within(seconds, Stage.RESOLVE, profiles.get(tenant, request.profile))
    return under_profile(request, defaults_from_json(profile.defaults))


def _stage(threshold: pb.ScoreThreshold) -> int:
    return threshold.stage or pb.SCORE_STAGE_VECTOR


def _take(into: Message, said: Message) -> None:
    """Each field that `said` sets, whole."""
    for field, _ in said.ListFields():
        into.ClearField(field.name)
    into.MergeFrom(said)
