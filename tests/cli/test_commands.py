"""Commands against a scripted mesh: what they print, their exit codes, and the keys of their JSON."""

import json
from pathlib import Path

import pytest
from cli.command import Kbmesh
from cli.scripted_mesh import Script
from google.protobuf.timestamp_pb2 import Timestamp
from kbmesh.chunker.v1 import chunker_pb2
from kbmesh.errors.v1 import errors_pb2
from kbmesh.retriever.v1 import retriever_pb2
from kbmesh_cli.commands.search import preview_lines
from kbmesh_cli.invocation import hoist_global_options, wants_json
from kbmesh_rpc.errors import InvalidField, KnowledgeBaseNotFound

ANSWER = retriever_pb2.RetrieveResponse(
    results=[
        retriever_pb2.RetrieveResult(
            rank=1,
            score=0.71,
            scores=retriever_pb2.Scores(vector=0.6, fused=0.03, final=0.71, max_sim=0.8),
            text="Nobody extends a period on their own.",
            context="Policy > Retention",
            citation=1,
            document=retriever_pb2.DocumentSource(
                id="d1",
                external_id="policy.md",
                title="Policy [draft]",
                source_type=chunker_pb2.SOURCE_TYPE_FILE,
                uri="file:///policy.md",
                created_at=Timestamp(seconds=1_790_000_000),
            ),
            knowledge_base="handbook",
            span=chunker_pb2.Span(start=10, end=47, start_byte=10, end_byte=47),
            chunk_id="c1",
            heading_path=["Policy", "Retention"],
            pages=[3],
            display=[retriever_pb2.DisplayField(label="Author", value="Ingrid")],
            duplicates=[retriever_pb2.FurtherCitation(knowledge_base="copies", chunk_id="c2")],
        )
    ],
    knowledge_bases=[
        retriever_pb2.KnowledgeBaseReport(
            knowledge_base="handbook", status=retriever_pb2.KNOWLEDGE_BASE_STATUS_OK, hits=1, milliseconds=4
        ),
        retriever_pb2.KnowledgeBaseReport(
            knowledge_base="mails",
            status=retriever_pb2.KNOWLEDGE_BASE_STATUS_UNAVAILABLE,
            error=errors_pb2.ItemError(
                reason=errors_pb2.ERROR_REASON_DEPENDENCY_UNAVAILABLE, message="Qdrant does not answer"
            ),
        ),
    ],
    degraded=[
        retriever_pb2.Degradation(
            stage=retriever_pb2.STAGE_RERANK,
            reason=errors_pb2.ERROR_REASON_DEPENDENCY_UNAVAILABLE,
            message="the fused order is returned",
        )
    ],
    timings={"total": 9.000_04, "rerank": 2.0, "search": 4.0, "of a newer server": 1.0, "resolve": 0.123_456},
    context=retriever_pb2.ContextBlock(
        text="[1] Nobody …", tokens=12, citations=[retriever_pb2.Citation(number=1, chunk_id="c1", label="Policy")]
    ),
    strategy=retriever_pb2.RETRIEVAL_STRATEGY_HYBRID_RERANK,
    rerank_method=retriever_pb2.RERANK_METHOD_LATE_INTERACTION,
    queries=["who?"],
    explanation=[
        retriever_pb2.StageTrace(
            stage=retriever_pb2.STAGE_SEARCH,
            label="vector handbook",
            candidates=[retriever_pb2.CandidateTrace(chunk_id="c1", rank=1, score=0.6)],
        )
    ],
    request_id="r1",
)

PROMISED = {
    "": {
        *("results", "knowledge_bases", "degraded", "timings", "context_block", "strategy", "fusion", "rerank_method"),
        *("cache", "is_final", "queries", "explanation", "request_id"),
    },
    "results": {
        *("rank", "score", "scores", "text", "context", "citation", "document", "knowledge_base", "span", "chunk_id"),
        *("metadata", "tags", "ranks", "link", "expanded_text", "expanded_span"),
    },
    "explanation": {"stage", "label", "started_milliseconds", "milliseconds", "note", "candidates"},
    "scores": {"vector", "keyword", "fused", "rerank_logit", "rerank_probability", "max_sim", "final"},
    "document": {"id", "title", "source_type", "uri"},
    "knowledge_bases": {"name", "status", "hits", "milliseconds"},
    "degraded": {"stage", "reason", "message"},
    "context_block": {"text", "tokens", "estimated", "citations"},
}
"""The golden: keys of `kbmesh search --json` that scripts may rely on. Others may come; none of these may go."""


async def test_search_prints_one_object_with_the_promised_keys(script: Script, endpoint: str, kbmesh: Kbmesh) -> None:
    script.retrieval = ANSWER
    done = await kbmesh("search", "who?", "--kb", "handbook", "--kb", "mails", "--json", "--endpoint", endpoint)
    assert done.code == 0
    assert done.out.count("\n") == 1
    printed = done.json()
    (result,) = printed["results"]
    assert printed.keys() >= PROMISED[""]
    assert result.keys() >= PROMISED["results"]
    assert result["scores"].keys() >= PROMISED["scores"]
    assert result["document"].keys() >= PROMISED["document"]
    assert all(report.keys() >= PROMISED["knowledge_bases"] for report in printed["knowledge_bases"])
    assert all(each.keys() == PROMISED["degraded"] for each in printed["degraded"])
    assert printed["context_block"].keys() >= PROMISED["context_block"]
    assert all(stage.keys() == PROMISED["explanation"] for stage in printed["explanation"])
    assert result["span"] == {"start": 10, "end": 47}
    assert (result["scores"]["vector"], result["scores"]["rerank_logit"]) == (0.6, None)
    assert result["document"]["source_type"] == "file"
    assert [report["status"] for report in printed["knowledge_bases"]] == ["OK", "UNAVAILABLE"]
    assert printed["degraded"][0]["stage"] == "rerank"
    assert list(printed["timings"].items()) == [
        *(("resolve", 0.123), ("search", 4.0), ("rerank", 2.0), ("total", 9.0), ("of a newer server", 1.0))
    ]


async def test_search_shows_cards_and_what_was_missing(script: Script, endpoint: str, kbmesh: Kbmesh) -> None:
    script.retrieval = ANSWER
    done = await kbmesh("--endpoint", endpoint, "search", "who?", "--kb", "handbook", "--explain", "--context")
    for part in (
        "1. Policy [draft] [1]  0.710 by rank, similarity 0.60",
        "Policy › Retention · page 3 · Author Ingrid",
        "Nobody extends a period",
        "mails is UNAVAILABLE: Qdrant does not answer",
        "degraded: rerank",
        "how it came about",
        "1 · 0.6",
        "12 tokens",
    ):
        assert part in done.out


async def test_a_heading_that_is_the_title_is_shown_once(script: Script, endpoint: str, kbmesh: Kbmesh) -> None:
    script.retrieval.CopyFrom(ANSWER)
    script.retrieval.results[0].document.title = "Policy"
    done = await kbmesh("--endpoint", endpoint, "search", "who?", "--kb", "handbook")
    assert "handbook · Retention · page 3" in done.out


def test_a_card_shows_the_lines_that_the_question_is_about() -> None:
    text = "\n\n".join(["From: Ann", *(f"Header-{number}: x" for number in range(9)), "Webhooks came twice.", "Bye"])
    assert preview_lines("one\n\n  two\n", "two?") == ["one", "  two"]
    shown = preview_lines(text, "Why did webhooks come twice?")
    assert (len(shown), shown[0], shown[-2:]) == (9, "…", ["Webhooks came twice.", "Bye"])


@pytest.mark.parametrize(
    ("statuses", "code"),
    [
        (["OK", "NOT_FOUND"], 0),
        (["EMPTY"], 0),
        (["BELOW_THRESHOLD", "UNAVAILABLE"], 0),
        (["UNAVAILABLE"], 1),
        (["TIMEOUT", "DENIED", "NOT_FOUND", "MODEL_MISMATCH"], 1),
    ],
)
async def test_search_fails_where_no_knowledge_base_could_be_asked(
    script: Script, endpoint: str, kbmesh: Kbmesh, statuses: list[str], code: int
) -> None:
    reports = [
        retriever_pb2.KnowledgeBaseReport(
            knowledge_base=f"kb-{number}",
            status=retriever_pb2.KnowledgeBaseStatus.Value(f"KNOWLEDGE_BASE_STATUS_{status}"),
        )
        for number, status in enumerate(statuses)
    ]
    script.retrieval = retriever_pb2.RetrieveResponse(knowledge_bases=reports)
    done = await kbmesh("search", "who?", "--kb", "kb-0", "--endpoint", endpoint, "--json")
    assert done.code == code
    assert [report["status"] for report in done.json()["knowledge_bases"]] == statuses
    done = await kbmesh("search", "who?", "--kb", "kb-0", "--endpoint", endpoint)
    assert done.code == code
    assert ("hint:" in done.err) is (code == 1)


async def test_json_may_be_asked_for_before_the_command(endpoint: str, kbmesh: Kbmesh) -> None:
    done = await kbmesh("--json", "kb", "list", "--endpoint", endpoint)
    assert [found["name"] for found in done.json()["knowledge_bases"]] == ["handbook"]


async def test_piped_lines_stay_whole(
    script: Script, endpoint: str, kbmesh: Kbmesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS")
    script.retrieval.CopyFrom(ANSWER)
    sentence = "Nobody extends a period on their own. " * 4
    script.retrieval.results[0].text = f"{sentence}\nA legal hold names its end."
    done = await kbmesh("search", "who?", "--kb", "handbook", "--endpoint", endpoint)
    lines = [line.strip() for line in done.out.splitlines()]
    assert sentence.strip() in lines
    assert "A legal hold names its end." in lines


async def test_filters_narrow_by_field_and_widen_by_value(script: Script, endpoint: str, kbmesh: Kbmesh) -> None:
    filters = ["source_type=SLACK", "source_type=email", "metadata.team=a=b"]
    await kbmesh(
        *("search", "who?", "--kb", "handbook", "--endpoint", endpoint),
        *(argument for each in filters for argument in ("--filter", each)),
    )
    (request,) = script.requests
    conditions = [(condition.field, list(condition.any_of.values)) for condition in request.filter.all]
    assert conditions == [("source_type", ["slack", "email"]), ("metadata.team", ["a=b"])]


async def test_chunk_prints_one_object_a_line(script: Script, endpoint: str, kbmesh: Kbmesh, tmp_path: Path) -> None:
    script.chunks = chunker_pb2.ChunkResponse(
        chunks=[chunker_pb2.Chunk(index=index, total=2, type="section", text=f"part {index}") for index in range(2)]
    )
    (tmp_path / "a.md").write_text("part 0 part 1")
    done = await kbmesh("chunk", tmp_path / "a.md", "--strategy", "document", "--chunker", endpoint, "--json")
    assert done.code == 0
    lines = [json.loads(line) for line in done.out.splitlines()]
    assert [line["text"] for line in lines] == ["part 0", "part 1"]
    assert lines[0].keys() >= {
        *("index", "total", "type", "text", "context", "start", "end", "start_byte", "end_byte"),
        *("heading_path", "pages", "token_count", "metadata"),
    }
    (request,) = script.requests
    assert (request.document.filename, request.config.strategy) == ("a.md", chunker_pb2.STRATEGY_DOCUMENT)


async def test_options_of_a_strategy_reach_the_chunker(
    script: Script, endpoint: str, kbmesh: Kbmesh, tmp_path: Path
) -> None:
    (tmp_path / "a.eml").write_text("Subject: hi\n\nhello")
    arguments = ("chunk", tmp_path / "a.eml", "--chunker", endpoint)
    await kbmesh(*arguments, "--option", "email.exclude_quotes=true", "--option", "Email.whole_below=500")
    await kbmesh(*arguments, "--strategy", "similarity", "--option", "similarity.percentile=12.5")
    mail, similar = (request.config for request in script.requests)
    assert (mail.email.exclude_quotes, mail.email.whole_below) == (True, 500)
    assert similar.similarity.WhichOneof("cut") == "percentile"
    assert similar.similarity.percentile == 12.5


async def test_ingest_tells_of_every_document(script: Script, endpoint: str, kbmesh: Kbmesh, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("text")
    (tmp_path / "docs" / "empty.md").write_text("")
    arguments = ("ingest", "handbook", tmp_path / "docs", "--base", tmp_path, "--endpoint", endpoint)
    done = await kbmesh(*arguments, "--json")
    assert done.code == 1
    *documents, printed = done.lines()
    assert {key: value for key, value in printed.items() if isinstance(value, int)} == {
        "total": 2,
        "new": 1,
        "changed": 0,
        "unchanged": 0,
        "failed": 1,
        "resumed": 0,
        "chunks": 2,
        "embedded": 2,
        "tokens": 20,
        "truncated": 0,
        "pruned": 0,
        "skipped": 0,
    }
    assert printed["skipped_files"] == []
    assert printed["failures"] == [{"external_id": "docs/empty.md", "reason": "DOCUMENT_EMPTY"}]
    outcomes = {document["external_id"]: document["outcome"] for document in documents}
    assert outcomes == {"docs/a.md": "NEW", "docs/empty.md": "FAILED"}
    done = await kbmesh(*arguments, "--keep-going-ok")
    assert done.code == 0
    assert "1 new, 0 changed, 0 unchanged, 1 failed" in done.out
    assert "DOCUMENT_EMPTY" in done.out


async def test_a_name_that_would_command_the_terminal_is_shown_as_it_is(
    script: Script, endpoint: str, kbmesh: Kbmesh, tmp_path: Path
) -> None:
    (tmp_path / "\x1b[2Jempty.md").write_text("")
    done = await kbmesh("ingest", "handbook", tmp_path, "--base", tmp_path, "--endpoint", endpoint)
    assert "failed \\x1b[2Jempty.md: DOCUMENT_EMPTY" in done.out
    script.error = InvalidField("name", "is \x9b2J")
    assert "\\x9b2J" in (await kbmesh("kb", "create", "x", "--endpoint", endpoint)).err


async def test_ingest_names_the_links_that_lead_nowhere(endpoint: str, kbmesh: Kbmesh, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("text")
    for number in range(7):
        (tmp_path / "docs" / f"gone-{number}.md").symlink_to("nowhere")
    arguments = ("ingest", "handbook", tmp_path / "docs", "--base", tmp_path, "--endpoint", endpoint)
    done = await kbmesh(*arguments)
    assert done.code == 0, "nobody is told to take in what is not there"
    assert "skipped 7 paths: docs/gone-0.md (a link that leads nowhere), docs/gone-1.md" in done.out
    assert "docs/gone-5.md" not in done.out
    summary = (await kbmesh(*arguments, "--json")).lines()[-1]
    assert summary["skipped"] == 7
    assert [one["name"] for one in summary["skipped_files"]] == [f"docs/gone-{number}.md" for number in range(5)]


async def test_a_folder_without_files_is_told_of(endpoint: str, kbmesh: Kbmesh, tmp_path: Path) -> None:
    (tmp_path / "docs" / ".git").mkdir(parents=True)
    (tmp_path / "docs" / ".git" / "config").write_text("hidden")
    done = await kbmesh("ingest", "handbook", tmp_path / "docs", "--endpoint", endpoint)
    assert done.code == 0
    assert "no files were found" in done.err
    assert "0 documents" in done.out


async def test_a_missing_knowledge_base_is_an_error_before_any_file_is_read(
    script: Script, endpoint: str, kbmesh: Kbmesh, tmp_path: Path
) -> None:
    script.error = KnowledgeBaseNotFound("handbok")
    (tmp_path / "a.md").write_text("text")
    done = await kbmesh("ingest", "handbok", tmp_path / "a.md", "--endpoint", endpoint)
    assert done.code == 1
    assert done.out == ""
    assert done.err.startswith("KNOWLEDGE_BASE_NOT_FOUND: ")
    assert "hint:" in done.err
    assert script.ingested == []


async def test_an_error_is_one_line_in_plain_words(script: Script, endpoint: str, kbmesh: Kbmesh) -> None:
    script.error = InvalidField("name", "Value error, must not\n  be blank")
    done = await kbmesh("kb", "create", "x", "--endpoint", endpoint)
    assert done.err == "INVALID_FIELD: name: must not be blank\n"


async def test_with_json_an_error_is_an_object_on_stdout(script: Script, endpoint: str, kbmesh: Kbmesh) -> None:
    script.error = KnowledgeBaseNotFound("handbok")
    done = await kbmesh("kb", "show", "handbok", "--json", "--endpoint", endpoint)
    assert done.code == 1
    error = done.json()["error"]
    assert (error["reason"], error["metadata"]["knowledge_base"]) == ("KNOWLEDGE_BASE_NOT_FOUND", "handbok")
    assert done.err == ""


async def test_an_unreachable_mesh_is_one_line_and_a_hint(kbmesh: Kbmesh) -> None:
    done = await kbmesh("kb", "list", "--endpoint", "127.0.0.1:1")
    assert done.code == 1
    assert done.err.startswith("DEPENDENCY_UNAVAILABLE: ")
    assert "Traceback" not in done.err
    assert "kbmesh up" in done.err


async def test_deleting_needs_a_yes(
    script: Script, endpoint: str, kbmesh: Kbmesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("builtins.input", lambda: "no")
    assert (await kbmesh("kb", "delete", "handbook", "--endpoint", endpoint)).code == 1
    assert (await kbmesh("kb", "delete", "handbook", "--json", "--endpoint", endpoint)).code == 1
    assert not any("Delete" in type(request).__name__ for request in script.requests)
    done = await kbmesh("kb", "delete", "handbook", "--yes", "--json", "--endpoint", endpoint)
    assert done.json() == {"deleted": "handbook", "documents_deleted": 3}


@pytest.mark.parametrize(
    "arguments",
    [
        ("searh", "x"),
        ("search", "x"),
        ("search", "x", "--kb", "handbook", "--strategy", "psychic"),
        ("search", "x", "--kb", "handbook", "--top-k", "0"),
        ("search", "x", "--kb", "handbook", "--filter", "no-value"),
        ("search", "x", "--kb", "handbook", "--filter", "source_type=papyrus"),
        ("search", "x", "--kb", "handbook", "--tenant", "a,b"),
        ("kb", "create"),
        ("kb", "create", "x", "--size", "many"),
        ("kb", "create", "x", "--option", "email.exclude_quotes"),
        ("kb", "create", "x", "--option", "email.exclude_everything=true"),
        ("kb", "create", "x", "--option", "email.exclude_quotes=perhaps"),
        ("kb", "create", "x", "--option", "similarity.threshold=high"),
        ("kb", "create", "x", "--option", "similarity.threshold=0.4", "--option", "similarity.percentile=10"),
        ("kb", "create", "x", "--option", "email.whole_below=9", "--option", "slack.whole_below=9"),
        ("up", "--port-base", "70000"),
        ("up", "--service", "oracle"),
        ("eval", ".", "--strategies", "psychic"),
    ],
)
async def test_a_wrong_call_is_told_in_one_way(kbmesh: Kbmesh, arguments: tuple[str, ...]) -> None:
    done = await kbmesh(*arguments)
    assert done.code == 2
    assert done.err.startswith("USAGE: ")
    done = await kbmesh(*arguments, "--json")
    assert done.code == 2
    assert done.json()["error"]["reason"] == "USAGE"


async def test_a_hint_names_the_command_that_was_called(kbmesh: Kbmesh) -> None:
    assert "`kbmesh kb create --help`" in (await kbmesh("kb", "create")).err


async def test_files_that_are_not_there_are_named(kbmesh: Kbmesh) -> None:
    for arguments in (("chunk", "nowhere.md"), ("ingest", "handbook", "nowhere"), ("eval", "nowhere")):
        done = await kbmesh(*arguments, "--json")
        assert (done.code, done.json()["error"]["reason"]) == (1, "FILE_NOT_FOUND")


async def test_every_command_explains_itself(kbmesh: Kbmesh) -> None:
    for command in ("up", "down", "ingest", "search", "chunk", "eval", "doctor", "demo", "kb", "models"):
        done = await kbmesh(command, "--help")
        assert done.code == 0
        assert f"kbmesh {command}" in done.out


async def test_doctor_finds_what_is_wrong_and_says_what_to_do(endpoint: str, kbmesh: Kbmesh) -> None:
    healthy = await kbmesh("doctor", "--endpoint", endpoint, "--json")
    assert healthy.code == 0
    findings = {finding["check"]: finding for finding in healthy.json()["findings"]}
    assert findings["retriever"]["verdict"] == "ok"
    assert findings["versions"]["detail"].startswith("10 packages")
    assert findings["model"]["verdict"] == "warning"
    ill = await kbmesh("doctor", "--json")
    assert ill.code == 1
    wrong = [finding for finding in ill.json()["findings"] if finding["verdict"] == "error"]
    assert [finding["check"] for finding in wrong] == ["mesh"]
    assert all(finding["hint"] for finding in wrong)


def test_global_options_may_stand_anywhere_but_after_the_double_dash() -> None:
    assert hoist_global_options(["search", "x", "--home", "/h", "--kb", "k", "--tenant=t"]) == [
        *("--home", "/h", "--tenant=t"),
        *("search", "x", "--kb", "k"),
    ]
    assert hoist_global_options(["search", "--", "--home", "x"]) == ["search", "--", "--home", "x"]
    assert hoist_global_options(["--json", "search", "--", "--json"]) == ["search", "--json", "--", "--json"]
    assert wants_json(["search", "x", "--json"])
    assert not wants_json(["search", "--", "--json"])
