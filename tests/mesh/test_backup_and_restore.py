"""The disk is lost, and yesterday's copy is put in its place: docs/operations.md, for a mesh on one machine."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from mesh_process import Mesh
from runbooks import check_every_runbook_is_there_once, write_runbooks

DOCUMENTS = 12


def revisions(mesh: Mesh) -> set[str]:
    """Which revisions of the runbooks a search finds."""
    answer = mesh.json("search", "writes revision to the log of host", "--kb", "runbooks", "--top-k", "30")
    words = " ".join(result["text"] for result in answer["results"])
    return {number for number in "12" if f"revision {number} " in words}


@pytest.mark.timeout(300)
def test_a_mesh_is_what_it_was_when_it_was_copied(make_mesh: Callable[[], Mesh], tmp_path: Path) -> None:
    folder = tmp_path / "runbooks"
    write_runbooks(folder, count=DOCUMENTS, version=1)
    mesh = make_mesh()
    mesh.environment |= {"KBMESH_SUPERSEDED_GRACE_SECONDS": "1", "KBMESH_SWEEP_INTERVAL_SECONDS": "1"}
    mesh.up()
    mesh.json("kb", "create", "runbooks")
    assert mesh.json("ingest", "runbooks", folder)["new"] == DOCUMENTS
    mesh.down()
    shutil.copytree(mesh.home / "data", tmp_path / "backup")

    # What comes after the copy: another version of all, and a document more.
    mesh.up()
    write_runbooks(folder, count=DOCUMENTS + 1, version=2)
    later = mesh.json("ingest", "runbooks", folder)
    assert (later["new"], later["changed"]) == (1, DOCUMENTS)
    assert revisions(mesh) == {"2"}
    mesh.down()

    shutil.rmtree(mesh.home / "data")
    shutil.copytree(tmp_path / "backup", mesh.home / "data")
    mesh.up()
    assert mesh.json("kb", "show", "runbooks")["document_count"] == DOCUMENTS
    assert revisions(mesh) == {"1"}

    # The sources are taken in again, and all is as if nothing had been lost.
    again = mesh.json("ingest", "runbooks", folder)
    assert (again["new"], again["changed"], again["failed"]) == (1, DOCUMENTS, 0)
    assert revisions(mesh) == {"2"}
    check_every_runbook_is_there_once(mesh, folder, count=DOCUMENTS + 1)
