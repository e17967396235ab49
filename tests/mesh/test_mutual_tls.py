"""A whole mesh by mutual TLS: every process shows a certificate to every other, and takes renewed ones as they come."""

from collections.abc import Callable
from pathlib import Path

import pytest
from authority import Authority, Mounted
from mesh_process import Mesh


def environment(mounted: Mounted) -> dict[str, str]:
    return {
        "KBMESH_TLS_CA": str(mounted.ca),
        "KBMESH_TLS_CERT": str(mounted.cert),
        "KBMESH_TLS_KEY": str(mounted.key),
    }


@pytest.mark.timeout(300)
def test_documents_go_in_and_answers_come_out_by_mutual_tls(make_mesh: Callable[[], Mesh], tmp_path: Path) -> None:
    authority, other = Authority(), Authority("other")
    services = authority.issue(tmp_path / "services", "mesh")
    agent = authority.issue(tmp_path / "agent", "agent")
    stranger = authority.issue(tmp_path / "stranger", "stranger")
    mesh = make_mesh()
    mesh.environment = {
        **environment(services),
        "KBMESH_TLS_ALLOWED_CALLERS": "mesh, agent",
        "KBMESH_TLS_TRUSTED_CALLERS": "mesh, agent",
        "KBMESH_TLS_RELOAD_SECONDS": "0.2",
    }
    mesh.up()
    documents = tmp_path / "documents"
    documents.mkdir()
    (documents / "backup.md").write_text("# Backups\n\nOnly the on-call engineer may restore a customer backup.\n")

    mesh.command_environment = environment(agent)
    mesh.json("kb", "create", "handbook")
    assert mesh.json("ingest", "handbook", documents)["new"] == 1

    def search() -> None:
        answer = mesh.json("search", "Who may restore a backup?", "--kb", "handbook", "--no-cache")
        assert answer["results"][0]["document"]["title"] == "Backups"
        assert answer["degraded"] == []

    search()
    assert mesh.kbmesh("doctor", check=False).returncode == 0

    # Certificates move to another authority; nothing is started again.
    pids = mesh.pids
    both = authority.pem + other.pem
    services.write(authority.pair("mesh"), both)
    mesh.wait_for(lambda: taken(mesh, 1), "that all services trust both authorities")
    services.write(other.pair("mesh"), both)
    agent.write(other.pair("agent"), both)
    mesh.wait_for(lambda: taken(mesh, 2), "that all services took the new certificate")
    search()
    services.write(other.pair("mesh"), other.pem)
    mesh.wait_for(lambda: taken(mesh, 3), "that no service trusts the old authority")
    (documents / "travel.md").write_text("# Travel\n\nTrains are booked by the office.\n")
    assert mesh.json("ingest", "handbook", documents)["new"] == 1
    search()
    assert mesh.pids == pids

    mesh.command_environment = environment(stranger)
    assert "authority" in mesh.error("kb", "list")["message"]
    stranger.write(other.pair("stranger"), other.pem)
    assert mesh.error("kb", "list")["reason"] == "PERMISSION_DENIED"
    mesh.command_environment = {}
    assert "wants TLS" in mesh.error("kb", "list")["message"]


def taken(mesh: Mesh, times: int) -> bool:
    """Whether every service read its files anew so often."""
    logs = [(mesh.home / "logs" / f"{name}.log").read_text() for name in mesh.pids]
    return all(log.count("certificate files were read anew") >= times for log in logs)
