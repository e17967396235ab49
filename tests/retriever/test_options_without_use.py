"""An option that does nothing is refused where the caller says it, and named in the answer where a profile does."""

import grpc
import pytest
from kbmesh.retriever.v1 import profile_pb2, retriever_pb2
from kbmesh.retriever.v1.profile_pb2_grpc import ProfileServiceStub
from kbmesh.retriever.v1.retriever_pb2 import FusionOptions as Fusion
from kbmesh.retriever.v1.retriever_pb2 import KnowledgeBaseSelector, RetrieveRequest, ScoreThreshold
from kbmesh.retriever.v1.retriever_pb2_grpc import RetrieverServiceStub
from kbmesh_retriever.profile_defaults import check_defaults, under_profile
from kbmesh_retriever.retrieve.request import RetrievalLimits, RetrievalRequest, check
from kbmesh_retriever.retriever_messages import read_request
from kbmesh_rpc.channel import open_channel
from kbmesh_rpc.errors import InvalidField, Reason
from kbmesh_rpc.status import from_rpc_error
from retriever.workshop import Workshop

VECTOR_ONLY = retriever_pb2.RETRIEVAL_STRATEGY_VECTOR_ONLY
HYBRID = retriever_pb2.RETRIEVAL_STRATEGY_HYBRID
HYBRID_RERANK = retriever_pb2.RETRIEVAL_STRATEGY_HYBRID_RERANK
ADVANCED = retriever_pb2.RETRIEVAL_STRATEGY_ADVANCED
BY_RERANKER = retriever_pb2.SCORE_STAGE_RERANK_PROBABILITY
BY_WORDS = retriever_pb2.SCORE_STAGE_KEYWORD
FINAL = retriever_pb2.SCORE_STAGE_FINAL
RRF = retriever_pb2.FUSION_METHOD_RRF
NOTES = [KnowledgeBaseSelector(knowledge_base="notes")]


def asked(**options: object) -> RetrievalRequest:
    return read_request(RetrieveRequest(**{"query": "why?", "knowledge_bases": NOTES, **options}))  # type: ignore[arg-type]  # options of a table


def refused(request: RetrievalRequest) -> list[str]:
    with pytest.raises(InvalidField) as caught:
        check(request, RetrievalLimits(context_tokenizers=frozenset({"gpt"})))
    return [one.field for one in caught.value.field_violations]


@pytest.mark.parametrize(
    ("options", "fields"),
    [
        ({"strategy": VECTOR_ONLY, "rerank_top_n": 50}, ["rerank_top_n"]),
        ({"strategy": HYBRID, "rerank_top_n": 20}, ["rerank_top_n"]),
        ({"strategy": HYBRID_RERANK, "hypothetical_answer": True}, ["hypothetical_answer"]),
        ({"strategy": VECTOR_ONLY, "fusion": Fusion(keyword_weight=0)}, ["fusion.keyword_weight"]),
        (
            {"strategy": VECTOR_ONLY, "fusion": Fusion(vector_weight=2, rrf_k=9)},
            ["fusion.vector_weight", "fusion.rrf_k"],
        ),
        ({"strategy": HYBRID, "fusion": Fusion(rrf_k=60)}, ["fusion.rrf_k"]),
        ({"strategy": VECTOR_ONLY, "thresholds": [ScoreThreshold(stage=BY_WORDS)]}, ["thresholds[0]"]),
        ({"strategy": HYBRID, "thresholds": [ScoreThreshold(), ScoreThreshold(stage=BY_RERANKER)]}, ["thresholds[1]"]),
        ({"context_budget_tokens": 0, "context_tokenizer": "gpt"}, ["context_tokenizer"]),
        (
            {
                "strategy": VECTOR_ONLY,
                "knowledge_bases": [
                    KnowledgeBaseSelector(knowledge_base="a", min_score=0.5, min_score_stage=BY_RERANKER),
                    KnowledgeBaseSelector(knowledge_base="b", min_score_stage=FINAL),
                ],
            },
            ["knowledge_bases[0].min_score", "knowledge_bases[1].min_score_stage"],
        ),
    ],
)
def test_what_does_nothing_is_refused_by_its_name(options: dict[str, object], fields: list[str]) -> None:
    assert refused(asked(**options)) == fields


@pytest.mark.parametrize(
    "options",
    [
        {"strategy": HYBRID_RERANK, "rerank_top_n": 50, "thresholds": [ScoreThreshold(stage=BY_RERANKER)]},
        {"rerank_top_n": 50},  # the server's own strategy reranks
        {"strategy": HYBRID, "fusion": Fusion(method=RRF, rrf_k=10, keyword_weight=2)},
        {"strategy": ADVANCED, "fusion": Fusion(rrf_k=10), "hypothetical_answer": True},  # RRF fuses its phrasings
        {"strategy": VECTOR_ONLY, "fusion": Fusion(method=RRF, rrf_k=10)},  # the lists of two models are fused
        {"strategy": VECTOR_ONLY, "thresholds": [ScoreThreshold(stage=FINAL)], "diversity": 0.5, "expand": 1},
        {"context_tokenizer": "gpt"},
    ],
)
def test_what_does_something_passes(options: dict[str, object]) -> None:
    check(asked(**options), RetrievalLimits(context_tokenizers=frozenset({"gpt"})))


DEFAULTS = RetrieveRequest(
    knowledge_bases=[
        KnowledgeBaseSelector(knowledge_base="notes", min_score=0.5, min_score_stage=BY_RERANKER, weight=2),
        KnowledgeBaseSelector(knowledge_base="wiki", min_score=0.1, min_score_stage=FINAL),
    ],
    strategy=ADVANCED,
    hypothetical_answer=True,
    rerank_top_n=50,
    fusion=Fusion(keyword_weight=2, rrf_k=9),
    thresholds=[
        ScoreThreshold(stage=BY_WORDS, min_score=3),
        ScoreThreshold(stage=FINAL, min_score=0.2),
        ScoreThreshold(stage=BY_RERANKER, min_score=0.3),
    ],
)


def test_what_a_profile_says_of_another_strategy_falls_away_and_is_named() -> None:
    under = under_profile(RetrieveRequest(query="why?", strategy=VECTOR_ONLY), DEFAULTS)
    assert {one.field for one in under.left_out} == {
        *("rerank_top_n", "hypothetical_answer", "fusion.keyword_weight", "fusion.rrf_k"),
        *("thresholds[0]", "thresholds[2]", "knowledge_bases[0].min_score"),
    }
    assert all(one.description for one in under.left_out)
    left = under.request
    assert [(one.stage, one.min_score) for one in left.thresholds] == [(FINAL, 0.2)]
    notes, wiki = left.knowledge_bases
    assert (notes.HasField("min_score"), notes.min_score_stage, notes.weight) == (False, 0, 2)
    assert (wiki.min_score, wiki.min_score_stage) == (0.1, FINAL)
    assert not left.HasField("rerank_top_n")
    assert not left.hypothetical_answer
    assert left.fusion == Fusion()
    check(read_request(left), RetrievalLimits())


@pytest.mark.parametrize("strategy", [0, VECTOR_ONLY, HYBRID, HYBRID_RERANK, ADVANCED])
@pytest.mark.parametrize("method", [None, 0, RRF, retriever_pb2.FUSION_METHOD_WEIGHTED])
@pytest.mark.parametrize("budget", [None, 0, 100])
def test_whatever_a_request_says_of_strategy_fusion_and_block_its_profile_does_not_make_it_wrong(
    strategy: "retriever_pb2.RetrievalStrategy.ValueType",
    method: "retriever_pb2.FusionMethod.ValueType | None",
    budget: int | None,
) -> None:
    defaults = RetrieveRequest(context_tokenizer="gpt")
    defaults.MergeFrom(DEFAULTS)
    said = RetrieveRequest(
        query="why?",
        strategy=strategy,
        fusion=None if method is None else Fusion(method=method),
        context_budget_tokens=budget,
    )
    under = under_profile(said, defaults)
    check(read_request(under.request), RetrievalLimits(context_tokenizers=frozenset({"gpt"})))
    assert under_profile(RetrieveRequest(query="why?"), under.request).left_out == ()


def test_a_profile_that_applies_as_a_whole_leaves_nothing_out() -> None:
    assert under_profile(RetrieveRequest(query="why?"), DEFAULTS).left_out == ()
    assert check_defaults(DEFAULTS, RetrievalLimits()) == []


def test_what_the_request_itself_says_is_refused_under_a_profile_too() -> None:
    said = RetrieveRequest(
        query="why?",
        strategy=HYBRID,
        rerank_top_n=10,
        thresholds=[ScoreThreshold(stage=BY_RERANKER, min_score=0.9)],
        knowledge_bases=[KnowledgeBaseSelector(knowledge_base="notes")],
    )
    under = under_profile(said, DEFAULTS)
    # The threshold of the profile on that knowledge base is the profile's word, and falls away.
    assert {one.field for one in under.left_out} == {
        *("hypothetical_answer", "fusion.rrf_k", "knowledge_bases[0].min_score"),
    }
    assert refused(read_request(under.request)) == ["rerank_top_n", "thresholds[0]"]


def test_a_stage_without_a_threshold_does_not_change_the_scale_of_the_profiles() -> None:
    """The SDK of before names the stage VECTOR with each knowledge base, whether or not there is a threshold."""
    defaults = RetrieveRequest(
        knowledge_bases=[KnowledgeBaseSelector(knowledge_base="x", min_score=0.8, min_score_stage=BY_RERANKER)]
    )
    by_vectors = KnowledgeBaseSelector(knowledge_base="x", min_score_stage=retriever_pb2.SCORE_STAGE_VECTOR)
    under = under_profile(RetrieveRequest(query="q", knowledge_bases=[by_vectors]), defaults)
    assert under.request.knowledge_bases == defaults.knowledge_bases
    alone = KnowledgeBaseSelector(knowledge_base="x", min_score_stage=FINAL)
    under = under_profile(RetrieveRequest(query="q", knowledge_bases=[alone]), defaults)
    assert refused(read_request(under.request)) == ["knowledge_bases[0].min_score_stage"]


def test_a_profile_cannot_be_made_of_options_that_never_apply() -> None:
    wrong = check_defaults(RetrieveRequest(strategy=HYBRID, rerank_top_n=10), RetrievalLimits())
    assert [one.field for one in wrong] == ["profile.defaults.rerank_top_n"]


async def test_over_grpc_the_answer_names_what_was_left_out_and_a_caller_is_told_what_is_wrong(
    workshop: Workshop, retriever_address: str
) -> None:
    kb = await workshop.make()
    await workshop.ingest(kb, "a", "The turbine is switched off at night.")
    caller = (("kbmesh-tenant", kb.tenant),)
    thorough = RetrieveRequest(
        rerank_top_n=50, context_budget_tokens=0, knowledge_bases=[KnowledgeBaseSelector(knowledge_base=kb.name)]
    )
    async with open_channel(retriever_address) as channel:
        profiles, retriever = ProfileServiceStub(channel), RetrieverServiceStub(channel)
        made = profile_pb2.Profile(name="thorough", defaults=thorough)
        await profiles.CreateProfile(profile_pb2.CreateProfileRequest(profile=made), metadata=caller)
        quick = RetrieveRequest(query="turbine", strategy=HYBRID, profile="thorough")
        for _ in range(2):  # computed, and kept
            answer = await retriever.Retrieve(quick, metadata=caller)
            assert [one.field for one in answer.not_applied] == ["rerank_top_n"]
            assert "HYBRID" in answer.not_applied[0].message
            assert len(answer.results) == 1
            assert not answer.degraded
        stream = retriever.RetrieveStream(retriever_pb2.RetrieveStreamRequest(request=quick), metadata=caller)
        assert [[one.field for one in part.final.not_applied] async for part in stream] == [["rerank_top_n"]]

        quick.rerank_top_n = 9
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await retriever.Retrieve(quick, metadata=caller)
        error = from_rpc_error(caught.value, dependency="retriever")
        assert (error.reason, error.field_violations[0].field) == (Reason.INVALID_FIELD, "rerank_top_n")
