"""ProfileService: Protobuf to domain and back."""

import re
from typing import Any

import grpc
from google.protobuf.timestamp_pb2 import Timestamp
from kbmesh.retriever.v1 import profile_pb2 as pb
from kbmesh.retriever.v1.profile_pb2_grpc import ProfileServiceServicer
from kbmesh_rpc.call import current_call
from kbmesh_rpc.errors import FieldViolation, InvalidField, shown

from kbmesh_retriever.catalog.profile_port import Profile, ProfileCatalog
from kbmesh_retriever.page_token import cut_page, page_limit, read_page_token
from kbmesh_retriever.profile_defaults import check_defaults, defaults_from_json, defaults_to_json
from kbmesh_retriever.retrieve.request import RetrievalLimits

_Context = grpc.aio.ServicerContext[Any, Any]

_LIST = "profiles"
_UPDATABLE = ("description", "defaults")
_NAME = re.compile(r"[A-Za-z0-9._-]{1,63}")
_MAX_DESCRIPTION = 2000


class ProfileServicer(ProfileServiceServicer):
    """Serves the tenant of the call."""

    def __init__(self, profiles: ProfileCatalog, *, limits: RetrievalLimits) -> None:
        self._profiles = profiles
        self._limits = limits

    async def CreateProfile(self, request: pb.CreateProfileRequest, context: _Context) -> pb.CreateProfileResponse:
        wanted = request.profile
        wrong = self._wrong(wanted, _UPDATABLE)
        if not _NAME.fullmatch(wanted.name):
            wrong.insert(0, _violation("name", 'must be 1 to 63 letters, digits, "-", "_" or "."'))
        if wrong:
            raise InvalidField.of(wrong)
        made = await self._profiles.create(
            current_call().tenant,
            wanted.name,
            description=wanted.description,
            defaults=defaults_to_json(wanted.defaults),
        )
        return pb.CreateProfileResponse(profile=_message(made))

    async def GetProfile(self, request: pb.GetProfileRequest, context: _Context) -> pb.GetProfileResponse:
        _check_named(request.name, "name")
        return pb.GetProfileResponse(profile=_message(await self._profiles.get(current_call().tenant, request.name)))

    async def ListProfiles(self, request: pb.ListProfilesRequest, context: _Context) -> pb.ListProfilesResponse:
        tenant, limit = current_call().tenant, page_limit(request.page_size)
        after = read_page_token(request.page_token, _LIST, tenant)
        found = await self._profiles.list(tenant, limit=limit + 1, after=after)
        page, token = cut_page(found, limit, lambda profile: profile.name, _LIST, tenant)
        return pb.ListProfilesResponse(profiles=map(_message, page), next_page_token=token)

    async def UpdateProfile(self, request: pb.UpdateProfileRequest, context: _Context) -> pb.UpdateProfileResponse:
        wanted = request.profile
        _check_named(wanted.name, "profile.name")
        paths = tuple(request.update_mask.paths) or _UPDATABLE
        wrong = [
            FieldViolation(field="update_mask", description=f"{shown(path)} is none of {', '.join(_UPDATABLE)}")
            for path in paths
            if path not in _UPDATABLE
        ]
        wrong += self._wrong(wanted, paths)
        if wrong:
            raise InvalidField.of(wrong)
        updated = await self._profiles.update(
            current_call().tenant,
            wanted.name,
            description=wanted.description if "description" in paths else None,
            defaults=defaults_to_json(wanted.defaults) if "defaults" in paths else None,
        )
        return pb.UpdateProfileResponse(profile=_message(updated))

    async def DeleteProfile(self, request: pb.DeleteProfileRequest, context: _Context) -> pb.DeleteProfileResponse:
        _check_named(request.name, "name")
        await self._profiles.delete(current_call().tenant, request.name)
        return pb.DeleteProfileResponse()

    def _wrong(self, wanted: pb.Profile, paths: tuple[str, ...]) -> list[FieldViolation]:
        wrong: list[FieldViolation] = []
        if "description" in paths and len(wanted.description) > _MAX_DESCRIPTION:
            wrong.append(_violation("description", f"has over {_MAX_DESCRIPTION} characters"))
        if "defaults" in paths:
            wrong += check_defaults(wanted.defaults, self._limits)
        return wrong


def _violation(field: str, description: str) -> FieldViolation:
    return FieldViolation(field=f"profile.{field}", description=description)


def _check_named(name: str, field: str) -> None:
    if not name:
        raise InvalidField(field, "must name a profile")


def _message(profile: Profile) -> pb.Profile:
    message = pb.Profile(
        name=profile.name, description=profile.description, defaults=defaults_from_json(profile.defaults)
    )
    for stamp, moment in ((message.created_at, profile.created_at), (message.updated_at, profile.updated_at)):
        timestamp = Timestamp()
        timestamp.FromDatetime(moment)
        stamp.CopyFrom(timestamp)
    return message
