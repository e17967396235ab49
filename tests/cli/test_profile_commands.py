"""An operator keeps how an agent asks, from the command line and from the SDK, and searches by it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cli.command import Kbmesh
from cli.scripted_mesh import Script, ScriptedMesh
from kbmesh.retriever.v1 import retriever_pb2
from kbmesh.retriever.v1.profile_pb2_grpc import add_ProfileServiceServicer_to_server
from kbmesh_client import (
    AsyncKbmeshClient,
    Condition,
    Filter,
    FusionMethod,
    FusionOptions,
    KnowledgeBaseSelector,
    ProfileAlreadyExists,
    ProfileNotFound,
    RetrievalOptions,
    RetrievalStrategy,
    ScoreStage,
)
from kbmesh_retriever.catalog.sql import SqlCatalog
from kbmesh_retriever.profile_servicer import ProfileServicer
from kbmesh_retriever.retrieve.request import RetrievalLimits
from kbmesh_rpc.server import Registration, running
from kbmesh_rpc.settings import ServerSettings
from structlog.testing import capture_logs

YAML = """
description: At night.
knowledge_bases:
  - runbooks
  - knowledge_base: tickets
    weight: 0.5
    max_results: 3
    min_score: 0.4
    filter: {tags: [ops]}
strategy: hybrid
top_k: 8
thresholds: {final: 0.1}
fusion: {method: rrf, rrf_k: 20}
filter:
  none: [{field: author, any_of: [bot]}]
"""


@pytest.fixture
async def endpoint(script: Script, tmp_path: Path) -> AsyncIterator[str]:
    """The scripted mesh, with real profiles."""
    catalog = SqlCatalog(f"sqlite:///{tmp_path / 'catalog.db'}")
    await catalog.open()
    mesh = ScriptedMesh(script)
    servicer = ProfileServicer(catalog.profiles, limits=RetrievalLimits())
    mesh.registrations = (
        *mesh.registrations,
        Registration(
            name="kbmesh.retriever.v1.ProfileService",
            add=lambda server: add_ProfileServiceServicer_to_server(servicer, server),
        ),
    )
    with capture_logs():
        async with running(mesh, ServerSettings(port=0, metrics_port=0)) as target:
            yield target
    await catalog.close()


async def test_a_profile_from_a_file_is_shown_as_it_can_be_written(
    endpoint: str, kbmesh: Kbmesh, tmp_path: Path
) -> None:
    (tmp_path / "night.yaml").write_text(YAML)
    at = ("--endpoint", endpoint)
    made = await kbmesh("profile", "create", "night", "--file", tmp_path / "night.yaml", "--json", *at)
    shown = made.json()
    assert (shown.pop("name"), shown.pop("description")) == ("night", "At night.")
    assert shown.pop("created_at") == shown.pop("updated_at")
    assert shown == {
        "knowledge_bases": [
            {"knowledge_base": "runbooks"},
            {
                "knowledge_base": "tickets",
                "weight": 0.5,
                "max_results": 3,
                "min_score": 0.4,
                "min_score_stage": "vector",
                "filter": {"all": [{"field": "tags", "any_of": ["ops"]}]},
            },
        ],
        "strategy": "hybrid",
        "top_k": 8,
        "thresholds": {"final": 0.1},
        "fusion": {"method": "rrf", "rrf_k": 20},
        "filter": {"none": [{"field": "author", "any_of": ["bot"]}]},
    }
    # What is shown is a file again.
    (tmp_path / "again.json").write_text(made.out)
    again = await kbmesh("profile", "create", "again", "--file", tmp_path / "again.json", "--json", *at)
    assert {**again.json(), "name": "", "created_at": "", "updated_at": ""} == {
        **made.json(),
        "name": "",
        "created_at": "",
        "updated_at": "",
    }


async def test_flags_make_and_change_a_profile(endpoint: str, kbmesh: Kbmesh) -> None:
    at = ("--endpoint", endpoint, "--json")
    flags = ("--kb", "runbooks", "--top-k", "8", "--threshold", "vector=0.3", "--filter", "tags=ops")
    made = (await kbmesh("profile", "create", "night", *flags, *at)).json()
    changed = (await kbmesh("profile", "update", "night", "--strategy", "vector_only", "--top-k", "3", *at)).json()
    assert changed == {**made, "strategy": "vector_only", "top_k": 3, "updated_at": changed["updated_at"]}
    told = (await kbmesh("profile", "update", "night", "--description", "By day.", *at)).json()
    assert told == {**changed, "description": "By day.", "updated_at": told["updated_at"]}
    assert (await kbmesh("profile", "show", "night", *at)).json() == told
    listed = (await kbmesh("profile", "list", *at)).json()
    assert listed == {"profiles": [told]}
    assert "night" in (await kbmesh("profile", "list", *at[:2])).out
    assert (await kbmesh("profile", "delete", "night", *at)).json() == {"deleted": "night"}
    gone = await kbmesh("profile", "show", "night", *at)
    assert (gone.code, gone.json()["error"]["reason"]) == (1, "PROFILE_NOT_FOUND")


async def test_a_search_by_a_profile_says_nothing_itself(script: Script, endpoint: str, kbmesh: Kbmesh) -> None:
    """Else the profile's word would never hold."""
    await kbmesh("search", "why?", "--profile", "night", "--endpoint", endpoint)
    assert script.requests == [retriever_pb2.RetrieveRequest(query="why?", profile="night")]
    neither = await kbmesh("search", "why?", "--json", "--endpoint", endpoint)
    assert (neither.code, neither.json()["error"]["reason"]) == (2, "USAGE")


@pytest.mark.parametrize(
    "said",
    ["[]", "{", '{"top-k": 3}', '{"knowledge_bases": [{"name": "x"}]}', '{"knowledge_bases": "x"}', '{"fusion": 3}'],
)
async def test_a_file_that_says_something_else_is_told(
    endpoint: str, kbmesh: Kbmesh, tmp_path: Path, said: str
) -> None:
    (tmp_path / "profile.json").write_text(said)
    done = await kbmesh("profile", "create", "x", "--file", tmp_path / "profile.json", "--json", "--endpoint", endpoint)
    assert (done.code, done.json()["error"]["reason"]) == (2, "USAGE")


async def test_the_sdk_gives_back_what_it_was_given(endpoint: str) -> None:
    async with AsyncKbmeshClient(endpoint) as client:
        made = await client.create_profile(
            "night",
            [KnowledgeBaseSelector(knowledge_base="runbooks", weight=2), "wiki"],
            strategy="HYBRID",
            expand=0,
            thresholds={"FINAL": 0.1},
            fusion=FusionOptions(method="RRF", rrf_k=20),
            filter={"author": "ann"},
        )
        assert [one.knowledge_base for one in made.knowledge_bases] == ["runbooks", "wiki"]
        assert made.options == {
            "strategy": RetrievalStrategy.HYBRID,
            "expand": 0,
            "thresholds": {ScoreStage.FINAL: 0.1},
            "fusion": FusionOptions(method=FusionMethod.RRF, rrf_k=20),
            "filter": Filter(all=(Condition(field="author", any_of=("ann",)),), any=(), none=()),
        }
        assert await client.get_profile("night") == made
        changed = await client.update_profile("night", top_k=3)
        assert (changed.knowledge_bases, changed.options) == ((), {"top_k": 3})
        with pytest.raises(ProfileAlreadyExists):
            await client.create_profile("night")
        await client.delete_profile("night")
        assert [one async for one in client.list_profiles()] == []
        with pytest.raises(ProfileNotFound):
            await client.get_profile("night")


def test_every_field_of_the_contract_is_an_option() -> None:
    names = {field.name for field in retriever_pb2.RetrieveRequest.DESCRIPTOR.fields}
    of_a_request = {"query", "knowledge_bases", "profile", "explain", "skip_cache"}
    assert set(RetrievalOptions.__annotations__) == names - of_a_request
