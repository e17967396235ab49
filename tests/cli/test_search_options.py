"""Every option of a question on the command line, and the answer that comes twice."""

import pytest
from cli.command import Kbmesh
from cli.scripted_mesh import Script
from kbmesh.retriever.v1 import retriever_pb2

OPTIONS = (
    *("--fusion", "rrf", "--vector-weight", "0.5", "--keyword-weight", "0", "--rrf-k", "10"),
    *("--threshold", "vector=0.3", "--threshold", "final=0.1", "--max-per-document", "2", "--diversity", "0.5"),
    *("--expand", "2", "--rerank-top-n", "30", "--hypothetical-answer", "--context-tokenizer", "gpt", "--no-cache"),
)


async def test_every_option_is_sent_as_it_was_meant(script: Script, endpoint: str, kbmesh: Kbmesh) -> None:
    done = await kbmesh("--endpoint", endpoint, "search", "who?", "--kb", "ops", *OPTIONS)
    assert done.code == 0
    (request,) = script.requests
    fusion = request.fusion
    assert (fusion.method, fusion.vector_weight, fusion.rrf_k) == (retriever_pb2.FUSION_METHOD_RRF, 0.5, 10)
    assert fusion.HasField("keyword_weight")
    assert {one.stage: one.min_score for one in request.thresholds} == {
        retriever_pb2.SCORE_STAGE_VECTOR: 0.3,
        retriever_pb2.SCORE_STAGE_FINAL: 0.1,
    }
    assert (request.max_results_per_document, request.diversity, request.expand) == (2, 0.5, 2)
    assert (request.rerank_top_n, request.hypothetical_answer, request.context_tokenizer) == (30, True, "gpt")
    assert request.skip_cache


async def test_what_is_not_said_is_left_to_profile_and_mesh(script: Script, endpoint: str, kbmesh: Kbmesh) -> None:
    await kbmesh("--endpoint", endpoint, "search", "who?", "--kb", "ops")
    assert {field.name for field, _ in script.requests[0].ListFields()} == {"query", "knowledge_bases"}


@pytest.mark.parametrize("threshold", ["vector", "vector=", "vector=high", "vector=nan", "mood=0.5", "=0.5"])
async def test_a_threshold_of_no_stage_or_no_number_is_refused(
    script: Script, endpoint: str, kbmesh: Kbmesh, threshold: str
) -> None:
    done = await kbmesh("--endpoint", endpoint, "search", "?", "--kb", "ops", "--threshold", threshold, "--json")
    assert (done.code, done.json()["error"]["reason"]) == (2, "USAGE")
    assert script.requests == []


async def test_a_stage_has_one_threshold(script: Script, endpoint: str, kbmesh: Kbmesh) -> None:
    twice = ("--threshold", "vector=0.3", "--threshold", "VECTOR=0.4")
    done = await kbmesh("--endpoint", endpoint, "search", "?", "--kb", "ops", *twice, "--json")
    assert done.json()["error"]["reason"] == "USAGE"


def answer_of(*names: str, milliseconds: float, reranked: bool = True) -> retriever_pb2.RetrieveResponse:
    """Documents in this order."""
    late = retriever_pb2.RERANK_METHOD_LATE_INTERACTION
    return retriever_pb2.RetrieveResponse(
        rerank_method=late if reranked else retriever_pb2.RERANK_METHOD_UNSPECIFIED,
        results=[
            retriever_pb2.RetrieveResult(
                rank=rank,
                chunk_id=name,
                heading_path=[name, "Restore"] if name == "five" else [],
                document=retriever_pb2.DocumentSource(title=name, external_id=name),
            )
            for rank, name in enumerate(names, 1)
        ],
        timings={"total": milliseconds},
    )


async def test_a_stream_shows_the_fused_order_and_then_what_reranking_changed(
    script: Script, endpoint: str, kbmesh: Kbmesh
) -> None:
    script.fused = answer_of("one", "two", "three", "four", milliseconds=12)
    script.retrieval = answer_of("two", "one", "three", "five", milliseconds=80)
    arguments = ("--endpoint", endpoint, "search", "who?", "--kb", "ops", "--stream")
    printed = (await kbmesh(*arguments)).out
    order, _, rest = printed.partition("reranked after 80 ms")
    assert "fused order after 12 ms" in order
    assert [line.strip().split()[1] for line in order.splitlines()[1:5]] == ["one", "two", "three", "four"]
    for move in ("two: 2 → 1", "one: 1 → 2", "five › Restore: new at 4", "four: 4, now left out"):
        assert move in rest
    assert "three: " not in rest
    first, last = (await kbmesh(*arguments, "--json")).lines()
    assert (first["is_final"], last["is_final"]) == (False, True)
    assert [result["chunk_id"] for result in last["results"]] == ["two", "one", "three", "five"]


async def test_a_reranking_that_changes_nothing_says_so(script: Script, endpoint: str, kbmesh: Kbmesh) -> None:
    script.retrieval = answer_of("one", milliseconds=5)
    done = await kbmesh("--endpoint", endpoint, "search", "who?", "--kb", "ops", "--stream")
    assert "the order is the same" in done.out
    assert "not reranked" not in done.out


async def test_a_stream_that_fell_back_does_not_say_that_it_was_reranked(
    script: Script, endpoint: str, kbmesh: Kbmesh
) -> None:
    script.retrieval = answer_of("one", milliseconds=5000, reranked=False)
    done = await kbmesh("--endpoint", endpoint, "search", "who?", "--kb", "ops", "--stream")
    assert "not reranked after 5000 ms" in done.out


async def test_a_card_shows_the_neighbours_and_what_to_open(script: Script, endpoint: str, kbmesh: Kbmesh) -> None:
    script.retrieval = answer_of("one", milliseconds=5)
    (result,) = script.retrieval.results
    result.text, result.expanded_text, result.link = "it", "before, it, after", "https://there/"
    printed = (await kbmesh("--endpoint", endpoint, "search", "who?", "--kb", "ops")).out
    assert "before, it, after" in printed
    assert "https://there/" in printed
