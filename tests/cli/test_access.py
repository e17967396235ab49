"""Somebody says from the command line who may read, and who asks."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cli.command import Kbmesh
from cli.scripted_mesh import Script
from kbmesh.errors.v1 import errors_pb2
from kbmesh.retriever.v1 import knowledge_base_pb2, retriever_pb2
from kbmesh_client import AsyncKbmeshClient, Distance, IngestDocument, IngestOutcome, KbmeshClient


async def test_who_asks_is_sent(script: Script, endpoint: str, kbmesh: Kbmesh) -> None:
    arguments = ("search", "who?", "--kb", "handbook", "--endpoint", endpoint, "--tenant", "acme")
    await kbmesh(*arguments, "--as", "ann", "--as", "group:ops")
    await kbmesh(*arguments)
    assert [(call.tenant, call.principals) for call in script.calls] == [
        ("acme", ("ann", "group:ops")),
        ("acme", ()),
    ]


@pytest.mark.parametrize("name", ["", " ", "ann,bob", "Ann Lee", "änne", "x" * 257])
async def test_a_name_that_cannot_be_sent_is_told(script: Script, endpoint: str, kbmesh: Kbmesh, name: str) -> None:
    done = await kbmesh("search", "who?", "--kb", "handbook", "--as", name, "--json", "--endpoint", endpoint)
    assert (done.code, done.json()["error"]["reason"]) == (2, "USAGE")
    assert script.requests == []


async def test_one_who_is_denied_learns_how_to_say_who_asks(script: Script, endpoint: str, kbmesh: Kbmesh) -> None:
    script.retrieval = retriever_pb2.RetrieveResponse(
        knowledge_bases=[
            retriever_pb2.KnowledgeBaseReport(
                knowledge_base="handbook",
                status=retriever_pb2.KNOWLEDGE_BASE_STATUS_DENIED,
                error=errors_pb2.ItemError(reason=errors_pb2.ERROR_REASON_PERMISSION_DENIED, message="no reader"),
            )
        ]
    )
    done = await kbmesh("search", "who?", "--kb", "handbook", "--endpoint", endpoint)
    assert done.code == 1
    assert "DENIED" in done.out
    assert "--as" in done.err


async def test_principals_and_tags_of_a_run_go_with_every_file(
    script: Script, endpoint: str, kbmesh: Kbmesh, tmp_path: Path
) -> None:
    for name in ("a.md", "b.md"):
        (tmp_path / name).write_text(name)
    named = ("--principal", "ann", "--principal", "group:ops", "--tag", "runbook", "--tag", "2026")
    done = await kbmesh("ingest", "handbook", tmp_path, "--base", tmp_path, *named, "--endpoint", endpoint)
    assert done.code == 0
    sent = {name: (list(one.principals), list(one.tags)) for name, one in script.documents.items()}
    assert sent == {name: (["ann", "group:ops"], ["runbook", "2026"]) for name in ("a.md", "b.md")}


async def test_a_line_of_a_manifest_says_more_than_the_run(
    script: Script, endpoint: str, kbmesh: Kbmesh, tmp_path: Path
) -> None:
    lines = [
        {"external_id": "own", "path": "a.md", "principals": ["eve"], "tags": ["x"], "author": "Ada"},
        {"external_id": "open", "path": "a.md", "principals": [], "created_at": "2026-01-02"},
        {"external_id": "none", "path": "a.md", "created_at": "2026-01-02T03:04:05+02:00"},
        {"external_id": "no-list", "path": "a.md", "principals": "eve"},
        {"external_id": "no-texts", "path": "a.md", "tags": [1]},
        {"external_id": "no-time", "path": "a.md", "created_at": "yesterday"},
        {"external_id": "no-text", "path": "a.md", "created_at": 5},
    ]
    (tmp_path / "a.md").write_text("text")
    manifest = tmp_path / "list.jsonl"
    manifest.write_text("\n".join(map(json.dumps, lines)))
    run = ("--principal", "ann", "--tag", "run", "--json", "--endpoint", endpoint)
    done = await kbmesh("ingest", "handbook", "--manifest", manifest, *run)
    sent = {name: (list(one.principals), list(one.tags)) for name, one in script.documents.items()}
    assert sent == {"own": (["eve"], ["x", "run"]), "open": ([], ["run"]), "none": (["ann"], ["run"])}
    assert script.documents["own"].author == "Ada"
    written = {name: script.documents[name].created_at.ToDatetime(tzinfo=UTC) for name in ("open", "none")}
    assert written == {
        "open": datetime(2026, 1, 2, tzinfo=UTC),
        "none": datetime(2026, 1, 2, 1, 4, 5, tzinfo=UTC),
    }
    failures = done.lines()[-1]["failures"]
    assert [each["reason"] for each in failures] == ["INVALID_FIELD"] * 4


async def test_a_job_that_is_resumed_takes_nothing_for_granted_of_who_may_read(
    script: Script, endpoint: str, kbmesh: Kbmesh, tmp_path: Path
) -> None:
    """The content is what it was, but somebody was taken off."""
    (tmp_path / "a.md").write_text("text")
    run = ("ingest", "handbook", tmp_path, "--base", tmp_path, "--job", "nightly", "--endpoint", endpoint)
    await kbmesh(*run, "--principal", "ann", "--principal", "bob")
    await kbmesh(*run, "--principal", "ann")
    assert list(script.documents["a.md"].principals) == ["ann"]


async def test_readers_and_distance_of_a_knowledge_base(script: Script, endpoint: str, kbmesh: Kbmesh) -> None:
    to = ("--json", "--endpoint", endpoint)
    made = await kbmesh("kb", "create", "hr", "--reader", "ann", "--reader", "group:hr", "--distance", "euclidean", *to)
    assert (made.json()["readers"], made.json()["distance"]) == (["ann", "group:hr"], "euclidean")
    changed = await kbmesh("kb", "update", "hr", "--reader", "bob", *to)
    assert changed.json()["readers"] == ["bob"]
    opened = await kbmesh("kb", "update", "hr", "--everybody", "--description", "for all", *to)
    assert (opened.json()["readers"], opened.json()["description"]) == ([], "for all")
    masks = [
        list(request.update_mask.paths)
        for request in script.requests
        if isinstance(request, knowledge_base_pb2.UpdateKnowledgeBaseRequest)
    ]
    assert masks == [["readers"], ["description", "readers"]]
    for wrong in ((), ("--reader", "a", "--everybody")):
        done = await kbmesh("kb", "update", "hr", *wrong, *to)
        assert (done.code, done.json()["error"]["reason"]) == (2, "USAGE")
    told = await kbmesh("kb", "update", "hr", "--reader", "bob", "--endpoint", endpoint)
    assert "bob" in told.out


async def test_the_sdk_sends_and_reads_all_of_it(script: Script, endpoint: str) -> None:
    async with AsyncKbmeshClient(endpoint, tenant="acme", principals=["ann", "group:ops"]) as client:
        made = await client.create_knowledge_base("hr", readers=["ann"], distance="dot")
        assert (made.readers, made.distance) == (("ann",), Distance.DOT)
        assert (await client.update_knowledge_base("hr", readers=[])).readers == ()
        documents = [
            IngestDocument(external_id="a", content="x", principals=["ann", "bob"], tags=("t",)),
            IngestDocument(external_id="b", content="x", principals="ann"),
        ]
        results = {result.external_id: result async for result in client.ingest("hr", documents)}
    assert script.calls[0].principals == ("ann", "group:ops")
    assert list(script.documents["a"].principals) == ["ann", "bob"]
    # One text is no list of names: each letter would be one.
    failed = results["b"]
    assert failed.outcome is IngestOutcome.FAILED
    assert failed.error is not None
    assert failed.error.reason == "INVALID_FIELD"
    with KbmeshClient(endpoint) as sync, pytest.raises(ValueError, match="several"):
        sync.create_knowledge_base("hr", readers="ann")
    for asked_as_another in ("ann,bob", "ann ", " ann"):
        with pytest.raises(ValueError, match="principal"):
            KbmeshClient(endpoint, principals=[asked_as_another])
