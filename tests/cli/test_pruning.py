"""Which documents have lost their files, where not every folder could be looked into."""

import asyncio
from pathlib import Path

from cli.command import Kbmesh
from cli.scripted_mesh import Script
from kbmesh_cli.pruning import PrunedFolder, missing_documents
from kbmesh_client import KbmeshClient


async def test_nothing_is_missing_below_a_folder_that_could_not_be_listed(
    script: Script, endpoint: str, kbmesh: Kbmesh, tmp_path: Path
) -> None:
    folder = tmp_path / "docs"
    for name in ("gone.md", "closed/a.md", "closed/deep/b.md", "closed-not/c.md"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    assert (await kbmesh("ingest", "handbook", str(folder), "--base", str(folder), "--endpoint", endpoint)).code == 0

    def missing(*found: str) -> set[str]:
        with KbmeshClient(endpoint) as client:
            return set(missing_documents(client, "handbook", [PrunedFolder(name="", base=folder)], set(found))[0])

    assert await asyncio.to_thread(missing, "closed/") == {"gone.md", "closed-not/c.md"}
    assert await asyncio.to_thread(missing, "./") == set()
    assert await asyncio.to_thread(missing) == set(script.documents)


async def test_documents_of_another_folder_are_not_below_one_whose_names_begin_at_itself(
    script: Script, endpoint: str, kbmesh: Kbmesh, tmp_path: Path
) -> None:
    for name in ("one/a.md", "one/b c.md", "two/x.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    for folder in ("one", "two"):
        path = str(tmp_path / folder)
        assert (await kbmesh("ingest", "handbook", path, "--base", path, "--endpoint", endpoint)).code == 0

    def missing(folder: str) -> tuple[list[str], int]:
        with KbmeshClient(endpoint) as client:
            return missing_documents(client, "handbook", [PrunedFolder(name="", base=tmp_path / folder)], {"a.md"})

    assert await asyncio.to_thread(missing, "one") == (["b c.md"], 2)
    assert await asyncio.to_thread(missing, "two") == (["x.md"], 1)
