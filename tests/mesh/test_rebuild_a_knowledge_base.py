"""Somebody moves a knowledge base that is in use to another way of chunking, from the command line."""

from pathlib import Path

import pytest
from mesh_process import Mesh


@pytest.mark.timeout(300)
def test_documents_are_found_before_while_and_after(shared_mesh: Mesh, tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "pump.md").write_text("# Pump\n\nThe pump is restarted by the night shift.")
    (folder / "valve.md").write_text("# Valve\n\nThe valve is closed by the day shift.")
    made = shared_mesh.json("kb", "create", "rebuilt")
    shared_mesh.json("ingest", "rebuilt", folder)

    def found() -> str:
        answer = shared_mesh.json("search", "Who restarts the pump?", "--kb", "rebuilt")
        return str(answer["results"][0]["text"])

    before = found()
    assert shared_mesh.error("kb", "rebuild", "finish", "rebuilt")["reason"] == "REBUILD_NOT_FOUND"
    begun = shared_mesh.json("kb", "rebuild", "start", "rebuilt", "--size", "300", "--strategy", "fixed")
    assert (begun["id"], begun["rebuild"]["documents_done"], begun["rebuild"]["documents_total"]) == (made["id"], 0, 2)
    shared_mesh.json("ingest", "rebuilt", folder / "pump.md", "--into-rebuild")
    incomplete = shared_mesh.error("kb", "rebuild", "finish", "rebuilt")
    assert incomplete["reason"] == "REBUILD_INCOMPLETE"
    assert found() == before
    sent = shared_mesh.json("ingest", "rebuilt", folder, "--into-rebuild")
    assert sent["failed"] == 0
    assert shared_mesh.json("kb", "show", "rebuilt")["rebuild"]["state"] == "READY"
    finished = shared_mesh.json("kb", "rebuild", "finish", "rebuilt")
    assert finished["documents_dropped"] == 0
    assert (finished["knowledge_base"]["id"], finished["knowledge_base"]["chunking"]["size"]) == (made["id"], 300)
    assert "night shift" in found()
    assert shared_mesh.json("ingest", "rebuilt", folder)["unchanged"] == 2

    shared_mesh.json("kb", "rebuild", "start", "rebuilt")
    assert shared_mesh.json("kb", "rebuild", "cancel", "rebuilt") == {"cancelled": "rebuilt"}
    assert shared_mesh.json("kb", "show", "rebuilt")["rebuild"] is None
