"""`kbmesh search --explain`: the order of stages, and each candidate's way through them."""

from cli.command import Kbmesh
from cli.scripted_mesh import Script
from kbmesh.errors.v1 import errors_pb2
from kbmesh.retriever.v1 import retriever_pb2
from kbmesh_cli.waterfall import BAR_COLUMNS, bar_of, journeys_of, spans_of
from kbmesh_client import Retrieval
from kbmesh_client.wire.retrieval import retrieval_from_wire

Trace = retriever_pb2.StageTrace
Candidate = retriever_pb2.CandidateTrace


def candidate(name: str, rank: int, score: float, dropped: str = "") -> Candidate:
    """A chunk at a place of a list."""
    return Candidate(
        chunk_id=f"chunk-{name}",
        external_id=f"{name}.md",
        title={"a": "Title [a]", "b": "Title [b]"}.get(name, ""),
        knowledge_base="ops",
        rank=rank,
        score=score,
        dropped=dropped,
    )


ANSWER = retriever_pb2.RetrieveResponse(
    results=[
        retriever_pb2.RetrieveResult(
            rank=1,
            score=0.9,
            chunk_id="chunk-b",
            knowledge_base="ops",
            document=retriever_pb2.DocumentSource(external_id="b.md", title="Title [b]"),
        )
    ],
    knowledge_bases=[
        retriever_pb2.KnowledgeBaseReport(
            knowledge_base="ops", status=retriever_pb2.KNOWLEDGE_BASE_STATUS_OK, hits=4, milliseconds=6
        ),
        retriever_pb2.KnowledgeBaseReport(
            knowledge_base="hr",
            status=retriever_pb2.KNOWLEDGE_BASE_STATUS_TIMEOUT,
            milliseconds=50,
            error=errors_pb2.ItemError(reason=errors_pb2.ERROR_REASON_DEADLINE_EXCEEDED, message="too slow"),
        ),
    ],
    degraded=[
        retriever_pb2.Degradation(
            stage=retriever_pb2.STAGE_SEARCH,
            reason=errors_pb2.ERROR_REASON_DEADLINE_EXCEEDED,
            message="1 knowledge base could not be searched",
        )
    ],
    timings={"total": 100.0},
    explanation=[
        Trace(stage=retriever_pb2.STAGE_RESOLVE, started_milliseconds=0, milliseconds=2),
        Trace(stage=retriever_pb2.STAGE_EMBED, started_milliseconds=2, milliseconds=8),
        Trace(
            stage=retriever_pb2.STAGE_SEARCH,
            label="vector ops",
            started_milliseconds=10,
            milliseconds=50,
            candidates=[
                candidate("a", 1, 0.8),
                candidate("b", 2, 0.7),
                candidate("c", 3, 0.1, "below the vector threshold 0.2"),
                candidate("d", 4, 0.05, "below the vector threshold 0.2"),
            ],
        ),
        Trace(
            stage=retriever_pb2.STAGE_SEARCH,
            label="keyword ops",
            started_milliseconds=10,
            milliseconds=50,
            candidates=[candidate("c", 1, 12.5), candidate("b", 2, 9.25)],
        ),
        Trace(
            stage=retriever_pb2.STAGE_FUSE,
            started_milliseconds=60,
            milliseconds=1,
            note="keyword trusted 0.4",
            candidates=[candidate("b", 1, 0.6), candidate("a", 2, 0.5), candidate("c", 3, 0.4)],
        ),
        Trace(
            stage=retriever_pb2.STAGE_DEDUPLICATE,
            started_milliseconds=61,
            milliseconds=1,
            candidates=[
                candidate("b", 1, 0.6),
                candidate("a", 2, 0.5, "says the same as chunk-b"),
                candidate("c", 3, 0.4),
            ],
        ),
        Trace(
            stage=retriever_pb2.STAGE_RERANK,
            label="cross_encoder",
            started_milliseconds=62,
            milliseconds=36,
            candidates=[candidate("b", 1, 0.9), candidate("c", 2, 0.2)],
        ),
        Trace(stage=retriever_pb2.STAGE_ATTRIBUTE, started_milliseconds=98, milliseconds=2),
    ],
    rerank_method=retriever_pb2.RERANK_METHOD_CROSS_ENCODER,
    strategy=retriever_pb2.RETRIEVAL_STRATEGY_HYBRID_RERANK,
    fusion=retriever_pb2.FUSION_METHOD_ADAPTIVE,
    cache=retriever_pb2.CACHE_STATE_HIT,
    queries=["who?"],
    request_id="r1",
)


def answer() -> Retrieval:
    """As the SDK gives it."""
    return retrieval_from_wire(ANSWER)


def test_each_stage_is_one_line_where_it_ran() -> None:
    spans = spans_of(answer())
    assert [span.stage.value.lower() for span in spans] == [
        *("resolve", "embed", "search", "fuse", "deduplicate", "rerank", "attribute")
    ]
    assert {span.stage.value: span.notes for span in spans if span.notes} == {"FUSE": ("keyword trusted 0.4",)}
    bars = {span.stage.value.lower(): bar_of(span, 100.0) for span in spans}
    assert all(len(bar) == BAR_COLUMNS for bar in bars.values())
    search, rerank = bars["search"], bars["rerank"]
    assert search.index("█") == BAR_COLUMNS // 10
    assert search.count("█") == BAR_COLUMNS // 2
    assert rerank.index("█") >= search.rindex("█")
    assert bars["fuse"].count("█") == 1
    assert bars["attribute"].endswith("█")


def test_a_bar_stays_within_its_columns_whatever_the_times_are() -> None:
    (span,) = spans_of(
        retrieval_from_wire(
            retriever_pb2.RetrieveResponse(
                explanation=[Trace(stage=retriever_pb2.STAGE_FUSE, started_milliseconds=500, milliseconds=500)]
            )
        )
    )
    assert [len(bar_of(span, total)) for total in (0.0, 1.0, 500.0, 1e9)] == [BAR_COLUMNS] * 4


def test_each_candidate_is_followed_from_list_to_list() -> None:
    ways = {journey.name: journey for journey in journeys_of(answer())}
    assert list(ways) == ["Title [b]", "c.md", "Title [a]", "d.md"]
    best = ways["Title [b]"]
    assert (best.vector, best.keyword, best.fused, best.reranked) == ((2, 0.7), (2, 9.25), (1, 0.6), (1, 0.9))
    assert (best.final, best.dropped) == (1, "")
    dropped = ways["Title [a]"]
    assert dropped.dropped == f"deduplicate: says the same as {best.shown}", "by the name that it has in the table"
    assert (dropped.keyword, dropped.reranked, dropped.final) == (None, None, None)
    assert ways["d.md"].dropped == "search: below the vector threshold 0.2"


def test_what_one_list_dropped_goes_on_by_another() -> None:
    ways = {journey.name: journey for journey in journeys_of(answer())}
    assert ways["c.md"].vector == (3, 0.1)
    assert ways["c.md"].reranked == (2, 0.2)
    assert ways["c.md"].dropped == "not among the 1 result"


def test_where_reranking_fell_back_nobody_has_a_place_by_it() -> None:
    fallen_back = retriever_pb2.RetrieveResponse()
    fallen_back.CopyFrom(ANSWER)
    fallen_back.rerank_method = retriever_pb2.RERANK_METHOD_UNSPECIFIED
    assert {journey.reranked for journey in journeys_of(retrieval_from_wire(fallen_back))} == {None}


def test_an_answer_without_an_explanation_still_has_its_results() -> None:
    (way,) = journeys_of(retrieval_from_wire(retriever_pb2.RetrieveResponse(results=ANSWER.results)))
    assert (way.name, way.final, way.fused) == ("Title [b]", 1, None)


async def test_the_command_tells_all_of_it(script: Script, endpoint: str, kbmesh: Kbmesh) -> None:
    script.retrieval = ANSWER
    arguments = ("--endpoint", endpoint, "search", "who?", "--kb", "ops", "--kb", "hr", "--explain")
    printed = (await kbmesh(*arguments)).out
    for part in (
        *("keyword trusted 0.4", "fused by adaptive", "reranked by cross encoder", "kept from an earlier call"),
        *("ops OK, 4 hits, 6.0 ms", "hr TIMEOUT", "DEADLINE_EXCEEDED too slow", "could not be searched"),
        *("Title [b] chunk-b", "2 · 9.25", "says the same as Title [b] chunk-b", "100.0 ms"),
    ):
        assert part in printed
    told = (await kbmesh(*arguments, "--json")).json()
    assert (told["fusion"], told["cache"], told["is_final"]) == ("adaptive", "hit", True)
    fuse = next(trace for trace in told["explanation"] if trace["stage"] == "fuse")
    assert (fuse["started_milliseconds"], fuse["milliseconds"], fuse["note"]) == (60.0, 1.0, "keyword trusted 0.4")
    assert [one["external_id"] for one in fuse["candidates"]] == ["b.md", "a.md", "c.md"]


async def test_without_candidates_it_says_so(script: Script, endpoint: str, kbmesh: Kbmesh) -> None:
    done = await kbmesh("--endpoint", endpoint, "search", "who?", "--kb", "ops", "--explain")
    assert done.code == 0
    assert "no candidates" in done.out
