"""Somebody closes and filters documents from the command line, over a real store and catalog."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from kbmesh_cli.__main__ import run


class Command:
    """The command, called for one mesh. It prints JSON."""

    def __init__(self, endpoint: str, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._always = ["--endpoint", endpoint, "--home", str(home), "--json"]
        self._capsys = capsys

    async def __call__(self, *arguments: str | Path, code: int = 0) -> Any:
        self._capsys.readouterr()
        ended = await asyncio.to_thread(run, [*map(str, arguments), *self._always])
        printed = [line for line in self._capsys.readouterr().out.splitlines() if line.startswith("{")]
        assert ended == code, printed
        return json.loads(printed[-1])

    async def sees(self, *options: str, kb: str = "ops") -> set[str]:
        answer = await self("search", "turbines", "--kb", kb, "--strategy", "hybrid", "--top-k", "20", *options)
        return {result["document"]["external_id"] for result in answer["results"]}


@pytest.fixture
async def kbmesh(
    retriever_address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Command:
    for name in ("KBMESH_ENDPOINT", "KBMESH_HOME", "KBMESH_TENANT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return Command(retriever_address, tmp_path / "home", capsys)


def write(path: Path, text: str, *, day: int) -> None:
    """A file of that day of January 2026."""
    path.write_text(text)
    os.utime(path, (1_767_225_600 + (day - 1) * 86_400 + 3600,) * 2)


async def test_files_for_some_and_files_for_all(kbmesh: Command, tmp_path: Path) -> None:
    await kbmesh("kb", "create", "ops", "--distance", "dot")
    write(tmp_path / "open.md", "All about turbines", day=1)
    write(tmp_path / "secret.md", "Turbines that nobody knows of", day=2)
    await kbmesh("ingest", "ops", "open.md", "--tag", "public")
    await kbmesh("ingest", "ops", "secret.md", "--principal", "ann", "--principal", "group:ops", "--tag", "secret,old")
    assert await kbmesh.sees() == {"open.md"}
    for who in (("--as", "ann"), ("--as", "bob", "--as", "group:ops")):
        assert await kbmesh.sees(*who) == {"open.md", "secret.md"}
    assert await kbmesh.sees("--as", "ann", "--filter", "tags=secret\\,old") == {"secret.md"}

    # The file is as it was; who may read it is not.
    changed = await kbmesh("ingest", "ops", "secret.md", "--principal", "group:ops")
    assert (changed["changed"], changed["embedded"]) == (1, 0)
    assert await kbmesh.sees("--as", "ann") == {"open.md"}
    shown = await kbmesh("kb", "show", "ops", "--documents")
    assert {one["external_id"]: (one["principals"], one["tags"]) for one in shown["documents"]} == {
        "open.md": ([], ["public"]),
        "secret.md": (["group:ops"], []),
    }


async def test_filters_as_they_are_typed(kbmesh: Command, tmp_path: Path) -> None:
    lines: list[dict[str, Any]] = [
        {"external_id": "a", "author": "ada", "tags": ["ops", "db"], "metadata": {"year": "2019"}},
        {
            "external_id": "b",
            "author": "bob",
            "tags": ["ops"],
            "metadata": {"year": "2020"},
            "created_at": "2026-03-01",
        },
        {"external_id": "c", "tags": ["dev"], "metadata": {"year": "twenty"}, "principals": ["ann"]},
    ]
    for line, subject in zip(lines, ("blades", "towers", "gears"), strict=True):
        line["path"] = f"{subject}.md"
        write(tmp_path / line["path"], f"All about turbines and their {subject}", day=15)
    (tmp_path / "list.jsonl").write_text("\n".join(map(json.dumps, lines)))
    await kbmesh("ingest", "ops", "--create", "--manifest", "list.jsonl")
    as_ann = {
        (): {"a", "b", "c"},
        ("tags=ops,db",): {"a", "b"},
        ("tags=ops", "tags=dev"): {"a", "b", "c"},
        ("author!=bob",): {"a", "c"},
        ("author!=bob", "tags!=dev"): {"a"},
        ("time>=2026-01-16",): {"b"},
        ("time<=2026-01-15",): {"a", "c"},
        ("time>=2026-01-15", "time<=2026-01-15"): {"a", "c"},
        ("time>=2026-01-15T00:30:00Z", "time<=2026-01-15T00:59:59+00:00"): set(),
        ("metadata.year>=2020",): {"b"},
        ("metadata.year<=2020",): {"a", "b"},
        ("metadata.year=twenty",): {"c"},
        ("source_type=slack",): set(),
        ("source_type=file", "external_id=c,b"): {"b", "c"},
    }
    for typed, seen in as_ann.items():
        filters = [argument for each in typed for argument in ("--filter", each)]
        assert await kbmesh.sees("--as", "ann", *filters) == seen, typed
        assert await kbmesh.sees(*filters) == seen - {"c"}, typed
    refused = await kbmesh("search", "turbines", "--kb", "ops", "--filter", "tenant=default", code=2)
    assert refused["error"]["reason"] == "USAGE"
    refused = await kbmesh("search", "turbines", "--kb", "ops", "--filter", 'metadata.a"b=x', code=1)
    assert refused["error"]["reason"] == "INVALID_FIELD"


async def test_a_knowledge_base_for_some(kbmesh: Command, tmp_path: Path) -> None:
    await kbmesh("kb", "create", "hr", "--reader", "group:hr")
    write(tmp_path / "a.md", "All about turbines", day=1)
    await kbmesh("ingest", "hr", "a.md")
    denied = await kbmesh("search", "turbines", "--kb", "hr", code=1)
    assert [(each["name"], each["status"]) for each in denied["knowledge_bases"]] == [("hr", "DENIED")]
    assert await kbmesh.sees("--as", "group:hr", kb="hr") == {"a.md"}
    await kbmesh("kb", "update", "hr", "--reader", "ann")
    assert await kbmesh.sees("--as", "ann", kb="hr") == {"a.md"}
    await kbmesh("search", "turbines", "--kb", "hr", "--as", "group:hr", code=1)
    await kbmesh("kb", "update", "hr", "--everybody")
    assert await kbmesh.sees(kb="hr") == {"a.md"}
