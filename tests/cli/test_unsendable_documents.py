"""Documents that no message can hold: each fails alone, before anything of it is sent."""

import json
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from cli.command import Kbmesh
from cli.scripted_mesh import Script
from kbmesh_client import AsyncKbmeshClient, IngestDocument, IngestOutcome

BEFORE_ALL_TIME = datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14)))
AFTER_ALL_TIME = datetime(9999, 12, 31, 23, tzinfo=timezone(-timedelta(hours=14)))


@pytest.mark.parametrize(
    "wrong",
    [
        {"created_at": BEFORE_ALL_TIME},
        {"created_at": AFTER_ALL_TIME},
        {"created_at": "yesterday"},
        {"content": None},
        {"content": "half of a pair: \ud800"},
        {"external_id": "\udc00"},
        {"metadata": {"pages": 12}},
        {"metadata": None},
        {"source_type": "zebra"},
        {"tags": "one"},
        {"tags": [1]},
    ],
    ids=str,
)
@pytest.mark.parametrize("job_id", ["", "nightly"])
async def test_a_document_that_cannot_be_sent_fails_alone(
    script: Script, endpoint: str, wrong: dict[str, Any], job_id: str
) -> None:
    fine: dict[str, Any] = {"external_id": "x", "content": "x", "created_at": datetime(2026, 1, 1, tzinfo=UTC)}
    documents = [
        IngestDocument(external_id="before", content="x"),
        IngestDocument(**{**fine, **wrong}),
        IngestDocument(external_id="after", content="x"),
    ]
    async with AsyncKbmeshClient(endpoint) as client:
        results = [entry async for entry in client.ingest("handbook", documents, job_id=job_id)]
    assert len(results) == 3
    [failed] = [entry for entry in results if entry.outcome is IngestOutcome.FAILED]
    assert failed.error is not None
    assert failed.error.reason == "INVALID_FIELD"
    assert set(script.documents) == {"before", "after"}


async def test_a_name_that_is_no_text_ends_no_run(
    script: Script, endpoint: str, kbmesh: Kbmesh, tmp_path: Path
) -> None:
    """Neither as it is sent nor as it is told of."""
    (tmp_path / "a.md").write_text("x")
    names = ["before", "half \ud800", "after"]
    (tmp_path / "list").write_bytes(
        b"".join(json.dumps({"external_id": name, "path": "a.md"}).encode() + b"\n" for name in names)
        + b'{"external_id": "\xff", "path": "a.md"}\n'
    )
    done = await kbmesh("ingest", "handbook", "--manifest", str(tmp_path / "list"), "--endpoint", endpoint, "--json")
    assert done.code == 1
    *results, summary = done.lines()
    outcomes = {result["external_id"]: result["outcome"] for result in results}
    assert outcomes == {"before": "NEW", "half \ud800": "FAILED", "after": "NEW", "\udcff": "FAILED"}
    assert [failure["reason"] for failure in summary["failures"]] == ["INVALID_FIELD"] * 2
