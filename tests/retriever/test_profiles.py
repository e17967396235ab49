"""An agent's way of asking, kept under one name: made, changed, and put under the requests that name it."""

from collections.abc import Awaitable

import grpc
import pytest
from kbmesh.retriever.v1 import profile_pb2 as pb
from kbmesh.retriever.v1 import retriever_pb2
from kbmesh.retriever.v1.profile_pb2_grpc import ProfileServiceStub
from kbmesh.retriever.v1.retriever_pb2 import KnowledgeBaseSelector, RetrieveRequest, ScoreThreshold
from kbmesh.retriever.v1.retriever_pb2_grpc import RetrieverServiceStub
from kbmesh_retriever.catalog.sql import SqlCatalog
from kbmesh_retriever.profile_defaults import defaults_from_json, defaults_to_json, with_defaults
from kbmesh_rpc.channel import open_channel
from kbmesh_rpc.errors import KbmeshError, ProfileAlreadyExists, ProfileNotFound, Reason
from kbmesh_rpc.status import from_rpc_error
from retriever.catalog_values import BOTH_DATABASES
from retriever.workshop import Clock

DEFAULTS = RetrieveRequest(
    knowledge_bases=[
        KnowledgeBaseSelector(knowledge_base="runbooks", weight=2, min_score=0.4),
        KnowledgeBaseSelector(knowledge_base="tickets", max_results=3),
    ],
    strategy=retriever_pb2.RETRIEVAL_STRATEGY_HYBRID,
    top_k=8,
    context_budget_tokens=500,
    thresholds=[
        ScoreThreshold(min_score=0.3),
        ScoreThreshold(stage=retriever_pb2.SCORE_STAGE_FINAL, min_score=0.1),
    ],
)
CALLER = (("kbmesh-tenant", "acme"),)


@BOTH_DATABASES
async def test_a_profile_is_kept_changed_and_removed(catalog: SqlCatalog, clock: Clock) -> None:
    profiles = catalog.profiles
    made = await profiles.create("acme", "on-call", description="At night.", defaults=defaults_to_json(DEFAULTS))
    assert await profiles.get("acme", "on-call") == made
    assert defaults_from_json(made.defaults) == DEFAULTS
    with pytest.raises(ProfileAlreadyExists):
        await profiles.create("acme", "on-call", description="", defaults={})
    # Each tenant has its own.
    with pytest.raises(ProfileNotFound):
        await profiles.get("globex", "on-call")
    await profiles.create("globex", "on-call", description="", defaults={})

    clock.advance(60)
    changed = await profiles.update("acme", "on-call", description="By day.")
    assert (changed.description, changed.defaults) == ("By day.", made.defaults)
    assert changed.updated_at > made.updated_at
    assert changed.created_at == made.created_at
    assert (await profiles.update("acme", "on-call", defaults={"top_k": 3})).defaults == {"top_k": 3}
    with pytest.raises(ProfileNotFound):
        await profiles.update("acme", "off-call", description="x")

    await profiles.create("acme", "a", description="", defaults={})
    assert [one.name for one in await profiles.list("acme", limit=9, after="")] == ["a", "on-call"]
    assert [one.name for one in await profiles.list("acme", limit=9, after="a")] == ["on-call"]
    await profiles.delete("acme", "on-call")
    with pytest.raises(ProfileNotFound):
        await profiles.delete("acme", "on-call")
    assert [one.tenant for one in await profiles.list("globex", limit=9, after="")] == ["globex"]


def test_a_request_wins_where_it_says_something() -> None:
    said = RetrieveRequest(
        query="why?",
        profile="on-call",
        strategy=retriever_pb2.RETRIEVAL_STRATEGY_HYBRID_RERANK,
        context_budget_tokens=0,  # said, though it is zero: no context block
        thresholds=[ScoreThreshold(stage=retriever_pb2.SCORE_STAGE_VECTOR, min_score=0.5)],
        explain=True,
    )
    merged = with_defaults(said, DEFAULTS)
    assert (merged.query, merged.profile, merged.explain) == ("why?", "", True)
    assert merged.strategy == retriever_pb2.RETRIEVAL_STRATEGY_HYBRID_RERANK
    assert merged.HasField("context_budget_tokens")
    assert (merged.context_budget_tokens, merged.top_k) == (0, 8)
    assert merged.knowledge_bases == DEFAULTS.knowledge_bases
    # A threshold on a stage takes the place of the profile's on that stage; on the others the profile's holds.
    assert [(one.stage, one.min_score) for one in merged.thresholds] == [
        (retriever_pb2.SCORE_STAGE_VECTOR, 0.5),
        (retriever_pb2.SCORE_STAGE_FINAL, 0.1),
    ]


def test_a_request_that_names_knowledge_bases_searches_no_others() -> None:
    said = RetrieveRequest(
        query="why?",
        knowledge_bases=[
            KnowledgeBaseSelector(
                knowledge_base="runbooks", min_score=0.9, min_score_stage=retriever_pb2.SCORE_STAGE_FINAL
            ),
            KnowledgeBaseSelector(knowledge_base="wiki"),
        ],
    )
    merged = with_defaults(said, DEFAULTS)
    runbooks, wiki = merged.knowledge_bases
    assert (runbooks.knowledge_base, runbooks.weight) == ("runbooks", 2)  # what the profile says of it holds
    assert (runbooks.min_score, runbooks.min_score_stage) == (0.9, retriever_pb2.SCORE_STAGE_FINAL)
    assert wiki == KnowledgeBaseSelector(knowledge_base="wiki")


def test_a_threshold_goes_with_its_stage() -> None:
    """The profile's number on the request's scale would be nonsense, and so the other way round."""
    defaults = RetrieveRequest(
        knowledge_bases=[
            KnowledgeBaseSelector(
                knowledge_base="x", min_score=0.8, min_score_stage=retriever_pb2.SCORE_STAGE_RERANK_PROBABILITY
            )
        ]
    )
    said = RetrieveRequest(knowledge_bases=[KnowledgeBaseSelector(knowledge_base="x", min_score=0.2)])
    (merged,) = with_defaults(said, defaults).knowledge_bases
    assert (merged.min_score, merged.min_score_stage) == (0.2, retriever_pb2.SCORE_STAGE_UNSPECIFIED)


async def refused(call: Awaitable[object]) -> KbmeshError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return from_rpc_error(caught.value, dependency="retriever")


async def test_over_grpc_a_profile_is_made_listed_used_and_deleted(retriever_address: str) -> None:
    async with open_channel(retriever_address) as channel:
        profiles, retriever = ProfileServiceStub(channel), RetrieverServiceStub(channel)
        made = await profiles.CreateProfile(
            pb.CreateProfileRequest(profile=pb.Profile(name="on-call", description="At night.", defaults=DEFAULTS)),
            metadata=CALLER,
        )
        assert made.profile.defaults == DEFAULTS
        await profiles.CreateProfile(pb.CreateProfileRequest(profile=pb.Profile(name="a")), metadata=CALLER)
        page = await profiles.ListProfiles(pb.ListProfilesRequest(page_size=1), metadata=CALLER)
        rest = await profiles.ListProfiles(
            pb.ListProfilesRequest(page_size=1, page_token=page.next_page_token), metadata=CALLER
        )
        assert [one.name for one in (*page.profiles, *rest.profiles)] == ["a", "on-call"]

        # It is searched with: neither of its knowledge bases exists, and the answer says which they were.
        error = await refused(retriever.Retrieve(RetrieveRequest(query="q", profile="on-call"), metadata=CALLER))
        assert error.reason is Reason.KNOWLEDGE_BASE_NOT_FOUND
        assert error.metadata["knowledge_base"] == "runbooks, tickets"
        assert "'runbooks' or 'tickets'" in error.message

        update = pb.UpdateProfileRequest(profile=pb.Profile(name="on-call", description="By day."))
        update.update_mask.paths.append("description")
        changed = (await profiles.UpdateProfile(update, metadata=CALLER)).profile
        assert (changed.description, changed.defaults) == ("By day.", DEFAULTS)
        await profiles.DeleteProfile(pb.DeleteProfileRequest(name="on-call"), metadata=CALLER)
        for call in (
            profiles.GetProfile(pb.GetProfileRequest(name="on-call"), metadata=CALLER),
            retriever.Retrieve(RetrieveRequest(query="q", profile="on-call"), metadata=CALLER),
        ):
            assert (await refused(call)).reason is Reason.PROFILE_NOT_FOUND


async def test_every_wrong_field_of_a_profile_is_named(retriever_address: str) -> None:
    wrong = pb.Profile(
        name="on call",
        description="x" * 2001,
        defaults=RetrieveRequest(query="q", top_k=0, knowledge_bases=[KnowledgeBaseSelector()]),
    )
    async with open_channel(retriever_address) as channel:
        profiles = ProfileServiceStub(channel)
        error = await refused(profiles.CreateProfile(pb.CreateProfileRequest(profile=wrong), metadata=CALLER))
        assert [one.field for one in error.field_violations] == [
            "profile.name",
            "profile.description",
            "profile.defaults.query",
            "profile.defaults.top_k",
            "profile.defaults.knowledge_bases[0].knowledge_base",
        ]
        update = pb.UpdateProfileRequest(profile=pb.Profile(name="x"))
        update.update_mask.paths.append("name")
        error = await refused(profiles.UpdateProfile(update, metadata=CALLER))
        assert [one.field for one in error.field_violations] == ["update_mask"]
