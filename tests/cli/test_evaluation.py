"""`kbmesh eval` against a scripted mesh: what it asks, what it tells, what it leaves behind."""

import json
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest
from cli.command import Kbmesh
from cli.scripted_mesh import Script
from kbmesh.errors.v1 import errors_pb2
from kbmesh.retriever.v1 import ingestion_pb2, knowledge_base_pb2, retriever_pb2
from kbmesh_rpc.errors import InternalError, QueueFull

QUERIES = [f"q{number}" for number in range(6)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Six queries, each with a document that answers it."""
    folder = tmp_path / "six"
    (folder / "qrels").mkdir(parents=True)
    documents = [{"_id": f"d{number}", "title": "", "text": f"answer {number}"} for number in range(6)]
    (folder / "corpus.jsonl").write_text("\n".join(map(json.dumps, documents)))
    queries = [{"_id": query, "text": f"question {query}"} for query in QUERIES]
    (folder / "queries.jsonl").write_text("\n".join(map(json.dumps, queries)))
    grades = "".join(f"q{number}\td{number}\t1\n" for number in range(6))
    (folder / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{grades}")
    return folder


def answer_of(names: Sequence[str], duplicates: Sequence[str] = ()) -> retriever_pb2.RetrieveResponse:
    """An answer of these documents; the first has duplicates."""
    results = [
        retriever_pb2.RetrieveResult(rank=rank, document=retriever_pb2.DocumentSource(external_id=name))
        for rank, name in enumerate(names, 1)
    ]
    if results:
        results[0].duplicates.extend(
            retriever_pb2.FurtherCitation(document=retriever_pb2.DocumentSource(external_id=name))
            for name in duplicates
        )
    return retriever_pb2.RetrieveResponse(results=results)


def first_or_second(request: retriever_pb2.RetrieveRequest) -> retriever_pb2.RetrieveResponse:
    """HYBRID has what is wanted first, everything else second."""
    wanted = f"d{request.query.removeprefix('question q')}"
    if request.strategy == retriever_pb2.RETRIEVAL_STRATEGY_HYBRID:
        return answer_of([wanted, "other"])
    return answer_of(["other", wanted])


def asked(script: Script) -> list[retriever_pb2.RetrieveRequest]:
    """The questions."""
    return [request for request in script.requests if isinstance(request, retriever_pb2.RetrieveRequest)]


@pytest.fixture
def mesh(script: Script) -> Script:
    """A mesh without knowledge bases, that answers by strategy."""
    script.is_empty, script.answer = True, first_or_second
    return script


async def test_strategies_are_compared_to_the_first_one(
    mesh: Script, endpoint: str, kbmesh: Kbmesh, folder: Path
) -> None:
    printed = (
        await kbmesh("eval", folder, "--strategy", "vector_only,hybrid", "--endpoint", endpoint, "--json")
    ).json()
    assert (printed["dataset"], printed["documents"], printed["failed"], printed["queries"]) == ("six", 6, 0, 6)
    assert printed["compared_to"] == "vector_only"
    first, second = printed["strategies"]["vector_only"], printed["strategies"]["hybrid"]
    assert list(printed["strategies"]) == ["vector_only", "hybrid"]
    assert (second["ndcg@10"], second["recall@20"], second["mrr"]) == (1, 1, 1)
    assert (first["recall@20"], first["mrr"]) == (1, 0.5)
    assert first["ndcg@10"] == pytest.approx(0.63093)
    assert first["p95_ms"] >= first["p50_ms"] > 0
    assert second["differences"]["mrr"] == {"difference": 0.5, "low": 0.5, "high": 0.5}
    assert first["differences"] == {}
    assert first["intervals"]["mrr"] == {"low": 0.5, "high": 0.5}
    assert "per_query" not in first


async def test_every_way_asks_every_query_for_documents_that_are_not_kept(
    mesh: Script, endpoint: str, kbmesh: Kbmesh, folder: Path
) -> None:
    done = await kbmesh("eval", folder, "--strategy", "vector_only,hybrid", "--endpoint", endpoint)
    assert done.code == 0
    questions = asked(mesh)
    assert len(questions) == 2 * (len(QUERIES) + 1)
    for question in questions:
        assert question.skip_cache
        assert (question.max_results_per_document, question.context_budget_tokens, question.top_k) == (1, 0, 20)
    # Who comes first changes, so that a query's vector that is kept by then favours none.
    firsts = [question.strategy for question in questions[2::2]]
    assert firsts.count(retriever_pb2.RETRIEVAL_STRATEGY_HYBRID) == len(QUERIES) / 2


async def test_the_knowledge_base_goes_unless_it_is_kept_and_is_then_used_again(
    mesh: Script, endpoint: str, kbmesh: Kbmesh, folder: Path
) -> None:
    arguments = ("eval", folder, "--strategy", "hybrid", "--endpoint", endpoint, "--json")
    passing = (await kbmesh(*arguments)).json()
    assert (passing["knowledge_base"], mesh.made) == (None, {})
    kept = (await kbmesh(*arguments, "--keep")).json()
    assert list(mesh.made) == [kept["knowledge_base"]]
    assert not kept["reused"]
    ingested = len(mesh.ingested)
    again = (await kbmesh(*arguments)).json()
    assert again["reused"]
    assert len(mesh.ingested) == ingested
    assert list(mesh.made) == [again["knowledge_base"]] == [kept["knowledge_base"]]
    (folder / "corpus.jsonl").write_text((folder / "corpus.jsonl").read_text().replace("answer 3", "another answer"))
    changed = (await kbmesh(*arguments, "--keep")).json()
    assert changed["knowledge_base"] != kept["knowledge_base"]
    assert not changed["reused"]


async def test_a_kept_knowledge_base_that_lacks_documents_gets_them(
    mesh: Script, endpoint: str, kbmesh: Kbmesh, folder: Path
) -> None:
    arguments = ("eval", folder, "--strategy", "hybrid", "--endpoint", endpoint, "--json", "--keep")
    await kbmesh(*arguments)
    del mesh.documents["d3"]
    assert not (await kbmesh(*arguments)).json()["reused"]
    assert "d3" in mesh.documents


async def test_other_candidates_are_set_on_what_was_kept(
    mesh: Script, endpoint: str, kbmesh: Kbmesh, folder: Path
) -> None:
    arguments = ("eval", folder, "--strategy", "hybrid", "--endpoint", endpoint, "--json", "--keep")
    await kbmesh(*arguments)
    await kbmesh(*arguments, "--candidates", "30")
    (update,) = [one for one in mesh.requests if isinstance(one, knowledge_base_pb2.UpdateKnowledgeBaseRequest)]
    assert update.knowledge_base.retrieval.vector_top_k == 30


async def test_a_mesh_that_fails_leaves_no_knowledge_base_behind(
    mesh: Script, endpoint: str, kbmesh: Kbmesh, folder: Path
) -> None:
    def fail(request: retriever_pb2.RetrieveRequest) -> retriever_pb2.RetrieveResponse:
        if request.query.endswith("q4"):
            raise InternalError("broken")
        return first_or_second(request)

    mesh.answer = fail
    done = await kbmesh("eval", folder, "--endpoint", endpoint, "--concurrency", "3", "--json")
    assert (done.code, done.json()["error"]["reason"]) == (1, "INTERNAL")
    assert mesh.made == {}


async def test_a_busy_mesh_is_asked_again(mesh: Script, endpoint: str, kbmesh: Kbmesh, folder: Path) -> None:
    refused: list[str] = []

    def refuse_once(request: retriever_pb2.RetrieveRequest) -> retriever_pb2.RetrieveResponse:
        if request.query not in refused:
            refused.append(request.query)
            raise QueueFull(queued_tokens=9, limit=8, retry_after_seconds=0.001)
        return first_or_second(request)

    mesh.answer = refuse_once
    printed = (await kbmesh("eval", folder, "--strategy", "hybrid", "--endpoint", endpoint, "--json")).json()
    assert len(refused) == len(QUERIES)
    assert printed["strategies"]["hybrid"]["mrr"] == 1


async def test_a_duplicate_ranks_right_behind_the_one_that_is_shown(
    mesh: Script, endpoint: str, kbmesh: Kbmesh, folder: Path
) -> None:
    mesh.answer = lambda request: answer_of(
        ["x", "y"], duplicates=[f"d{request.query.removeprefix('question q')}", "x"]
    )
    printed = (await kbmesh("eval", folder, "--strategy", "hybrid", "--endpoint", endpoint, "--json")).json()
    assert printed["strategies"]["hybrid"]["mrr"] == 0.5


async def test_values_of_each_query_and_a_sample_that_is_the_same_each_time(
    mesh: Script, endpoint: str, kbmesh: Kbmesh, folder: Path
) -> None:
    arguments = ("eval", folder, "--strategy", "hybrid", "--endpoint", endpoint, "--json", "--per-query")
    samples = [
        list((await kbmesh(*arguments, "--queries", "3", "--seed", seed)).json()["strategies"]["hybrid"]["per_query"])
        for seed in ("1", "1", "2")
    ]
    assert samples[0] == samples[1] == sorted(samples[0])
    assert len(samples[0]) == len(samples[2]) == 3
    assert samples[2] != samples[0]
    whole = (await kbmesh(*arguments)).json()["strategies"]["hybrid"]
    assert list(whole["per_query"]) == QUERIES
    assert whole["per_query"]["q2"].keys() == {"ndcg@10", "recall@20", "reciprocal_rank", "ms"}


async def test_what_fell_back_is_counted_by_its_reason(
    mesh: Script, endpoint: str, kbmesh: Kbmesh, folder: Path
) -> None:
    def degraded(request: retriever_pb2.RetrieveRequest) -> retriever_pb2.RetrieveResponse:
        answer = first_or_second(request)
        if request.query.endswith(("q1", "q2")):
            answer.degraded.add(stage=retriever_pb2.STAGE_RERANK, reason=errors_pb2.ERROR_REASON_DEPENDENCY_UNAVAILABLE)
        return answer

    mesh.answer = degraded
    arguments = ("eval", folder, "--strategy", "hybrid", "--endpoint", endpoint)
    measured = (await kbmesh(*arguments, "--json")).json()["strategies"]["hybrid"]
    assert measured["degraded"] == 2
    assert measured["degraded_by_reason"] == {"rerank DEPENDENCY_UNAVAILABLE": 2}
    assert "2 × rerank DEPENDENCY_UNAVAILABLE" in (await kbmesh(*arguments)).out


async def test_a_knowledge_base_that_cannot_be_asked_is_no_bad_result(
    mesh: Script, endpoint: str, kbmesh: Kbmesh, folder: Path
) -> None:
    report = retriever_pb2.KnowledgeBaseReport(
        knowledge_base="six", status=retriever_pb2.KNOWLEDGE_BASE_STATUS_MODEL_MISMATCH
    )
    mesh.answer = lambda request: retriever_pb2.RetrieveResponse(knowledge_bases=[report])
    done = await kbmesh("eval", folder, "--endpoint", endpoint, "--json")
    assert (done.code, done.json()["error"]["reason"]) == (1, "MODEL_MISMATCH")


async def test_documents_that_fail_are_counted_and_none_at_all_is_an_error(
    mesh: Script, endpoint: str, kbmesh: Kbmesh, folder: Path
) -> None:
    mesh.refused = {"d1": "DOCUMENT_EMPTY"}
    arguments = ("eval", folder, "--strategy", "hybrid", "--endpoint", endpoint, "--json")
    printed = (await kbmesh(*arguments)).json()
    assert (printed["documents"], printed["failed"]) == (6, 1)
    mesh.refused = {f"d{number}": "DOCUMENT_EMPTY" for number in range(6)}
    assert (await kbmesh(*arguments)).json()["error"]["reason"] == "DATASET_UNREADABLE"
    assert mesh.made == {}


async def test_a_table_shows_differences_with_their_intervals(
    mesh: Script, endpoint: str, kbmesh: Kbmesh, folder: Path
) -> None:
    done = await kbmesh("eval", folder, "--strategy", "vector_only", "--sweep", "top_k=10,20", "--endpoint", endpoint)
    assert "vector_only top_k=10" in done.out
    assert "difference to vector_only top_k=10" in done.out
    assert "+0.0000 [+0.0000, +0.0000]" in done.out
    assert {question.top_k for question in asked(mesh)} == {10, 20}


@pytest.mark.parametrize(
    "options",
    [("--strategy", "vector_only,hybrid"), ("--strategy", "vector_only,hybrid", "--sweep", "keyword_weight=0,0.5,1")],
)
async def test_a_plot_is_a_picture_of_every_way(
    mesh: Script, endpoint: str, kbmesh: Kbmesh, folder: Path, tmp_path: Path, options: tuple[str, ...]
) -> None:
    path = tmp_path / "out.svg"
    done = await kbmesh("eval", folder, *options, "--plot", path, "--endpoint", endpoint, "--json")
    picture = ElementTree.parse(path).getroot()
    assert picture.tag == "{http://www.w3.org/2000/svg}svg"
    told = [element.text for element in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert {"nDCG@10", "recall@20", "MRR", "vector_only", "hybrid"} <= set(told)
    width, height = float(picture.attrib["width"]), float(picture.attrib["height"])
    dots = list(picture.iter("{http://www.w3.org/2000/svg}circle"))
    assert len(dots) >= len(done.json()["strategies"])
    for dot in dots:
        assert 0 <= float(dot.attrib["cx"]) <= width
        assert 0 <= float(dot.attrib["cy"]) <= height


@pytest.mark.parametrize(("file", "reason"), [("out.png", "USAGE"), ("nowhere/out.svg", "FILE_NOT_FOUND")])
async def test_a_plot_that_cannot_be_is_refused_before_the_work(
    mesh: Script, endpoint: str, kbmesh: Kbmesh, folder: Path, tmp_path: Path, file: str, reason: str
) -> None:
    done = await kbmesh("eval", folder, "--plot", tmp_path / file, "--endpoint", endpoint, "--json")
    assert done.json()["error"]["reason"] == reason
    assert mesh.requests == []


async def test_the_documents_are_sent_as_plain_text_with_their_titles(
    mesh: Script, endpoint: str, kbmesh: Kbmesh, folder: Path
) -> None:
    (folder / "corpus.jsonl").write_text('{"_id": "d0", "title": "Zero", "text": "answer"}\n')
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq0\td0\t1\n")
    await kbmesh("eval", folder, "--strategy", "hybrid", "--endpoint", endpoint, "--keep")
    sent: ingestion_pb2.IngestDocument = mesh.documents["d0"]
    assert (sent.document.text, sent.document.media_type) == ("Zero\n\nanswer", "text/plain")
