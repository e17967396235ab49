"""Documents go in, an attributed answer comes out; the same documents go in again for nothing."""

from pathlib import Path

import pytest
from mesh_process import Mesh

JIRA = {
    "1-outage.md": """# Outage of 3 March

The checkout service answered 502 for forty minutes. Ticket JIRA-4815 was opened.""",
    "2-workaround.md": """# Workaround for JIRA-4815

Restart the checkout pods every six hours until a proper remedy is there.""",
    "3-fix.md": """# Permanent fix for JIRA-4815

The permanent fix for JIRA-4815 is to raise the connection pool of checkout from 10 to 50 and to close idle
connections after 30 seconds.""",
    "4-other-ticket.md": """# JIRA-4816

The invoice PDF shows the wrong logo for Austrian customers.""",
    "5-lunch.md": """# Lunch

The canteen serves noodles on Thursdays.""",
}


def write(folder: Path, documents: dict[str, str]) -> Path:
    folder.mkdir()
    for name, text in documents.items():
        (folder / name).write_text(text)
    return folder


def test_the_permanent_fix_is_found_first(shared_mesh: Mesh, tmp_path: Path) -> None:
    documents = write(tmp_path / "jira", JIRA)
    shared_mesh.json("kb", "create", "jira")
    ingested = shared_mesh.json("ingest", "jira", documents)
    assert ingested["new"] == 5
    assert ingested["failed"] == 0

    answer = shared_mesh.json(
        "search", "What is the permanent fix for JIRA-4815?", "--kb", "jira", "--strategy", "hybrid"
    )

    best = answer["results"][0]
    assert best["rank"] == 1
    assert best["document"]["title"] == "Permanent fix for JIRA-4815"
    assert abs(best["scores"]["fused"] - 1) < 1e-9, "the best of both lists"
    assert best["score"] == best["scores"]["final"]
    assert best["citation"] == 1
    text = (documents / "3-fix.md").read_text()
    assert text[best["span"]["start"] : best["span"]["end"]] == best["text"]
    assert answer["knowledge_bases"][0]["name"] == "jira"
    assert answer["knowledge_bases"][0]["status"] == "OK"
    assert answer["degraded"] == []
    assert answer["timings"]["total"] > 0


def test_the_default_strategy_reranks_and_says_by_what(shared_mesh: Mesh, tmp_path: Path) -> None:
    documents = write(tmp_path / "jira", JIRA)
    shared_mesh.json("kb", "create", "jira-reranked")
    shared_mesh.json("ingest", "jira-reranked", documents)
    answer = shared_mesh.json("search", "What is the permanent fix for JIRA-4815?", "--kb", "jira-reranked")
    assert answer["strategy"].lower() == "hybrid_rerank"
    assert answer["rerank_method"].lower() == "late_interaction"
    best = answer["results"][0]
    assert best["document"]["title"] == "Permanent fix for JIRA-4815"
    # Late interaction has neither: they are absent, not zero.
    assert best["scores"]["rerank_logit"] is None
    assert best["scores"]["rerank_probability"] is None


def test_the_same_folder_again_embeds_nothing(shared_mesh: Mesh, tmp_path: Path) -> None:
    documents = write(tmp_path / "twice", JIRA)
    shared_mesh.json("kb", "create", "twice")
    first = shared_mesh.json("ingest", "twice", documents)
    assert first["embedded"] >= 5
    second = shared_mesh.json("ingest", "twice", documents)
    assert second["unchanged"] == 5
    assert second["embedded"] == 0
    (documents / "5-lunch.md").write_text("# Lunch\n\nThe canteen is closed on Thursdays.")
    third = shared_mesh.json("ingest", "twice", documents)
    assert (third["changed"], third["unchanged"]) == (1, 4)
    answer = shared_mesh.json("search", "noodles canteen", "--kb", "twice")
    assert all("noodles" not in result["text"] for result in answer["results"])


def test_several_knowledge_bases_answer_at_once(shared_mesh: Mesh, tmp_path: Path) -> None:
    first = write(
        tmp_path / "first", {"a.md": "# Keys\n\nThe signing key is rotated every ninety days by the vault job."}
    )
    second = write(tmp_path / "second", {"b.md": "# Keys\n\nOffice door keys are handed out at the front desk."})
    for name, folder in (("several-a", first), ("several-b", second)):
        shared_mesh.json("kb", "create", name)
        shared_mesh.json("ingest", name, folder)
    shared_mesh.json("kb", "create", "several-empty")
    answer = shared_mesh.json(
        "search", "How often is the signing key rotated?",
        "--kb", "several-a", "--kb", "several-b", "--kb", "several-empty", "--kb", "several-unknown",
    )  # fmt: skip
    statuses = {report["name"]: report["status"] for report in answer["knowledge_bases"]}
    assert statuses["several-a"] == "OK"
    assert statuses["several-empty"] == "EMPTY"
    assert statuses["several-unknown"] == "NOT_FOUND"
    assert answer["results"][0]["knowledge_base"] == "several-a"


def test_a_tenant_sees_nothing_of_another(shared_mesh: Mesh, tmp_path: Path) -> None:
    documents = write(tmp_path / "secret", {"plan.md": "# Plan\n\nThe merger with Umbra closes in May."})
    shared_mesh.json("--tenant", "acme", "kb", "create", "plans")
    shared_mesh.json("--tenant", "acme", "ingest", "plans", documents)
    shared_mesh.json("--tenant", "rival", "kb", "create", "plans")
    rival = shared_mesh.json("--tenant", "rival", "search", "When does the merger close?", "--kb", "plans")
    assert rival["results"] == []
    assert rival["knowledge_bases"][0]["status"] == "EMPTY"
    acme = shared_mesh.json("--tenant", "acme", "search", "When does the merger close?", "--kb", "plans")
    assert acme["results"][0]["text"].endswith("closes in May.")
    # By its id it is not found either.
    identity = shared_mesh.json("--tenant", "acme", "kb", "show", "plans")["id"]
    assert shared_mesh.error("--tenant", "rival", "kb", "show", identity)["reason"] == "KNOWLEDGE_BASE_NOT_FOUND"


@pytest.mark.parametrize("strategy", ["hybrid", "hybrid_rerank"])
def test_an_identifier_finds_its_own_document(strategy: str, shared_mesh: Mesh, tmp_path: Path) -> None:
    """RET-11, over vectors as well: those of JIRA-4815 and JIRA-4816 are all alike, the words are not."""
    name = f"identifiers-{strategy.replace('_', '-')}"
    documents = write(
        tmp_path / "identifiers",
        {
            "0.txt": "Ticket JIRA-4815 closed",
            "1.txt": "Ticket JIRA-4816 open",
            "2.txt": "trace 6f1c2c1e-8a55-4b0e-9d0c-2f6d8f3a7b10",
            "3.txt": "error 0x80070057 and ORA-00942",
        },
    )
    shared_mesh.json("kb", "create", name)
    shared_mesh.json("ingest", name, documents)
    for query, expected in {
        "JIRA-4815": "JIRA-4815",
        "4815": "JIRA-4815",
        "jira 4815": "JIRA-4815",
        "JIRA-4816": "JIRA-4816",
        "6f1c2c1e-8a55-4b0e-9d0c-2f6d8f3a7b10": "6f1c2c1e",
        "0x80070057": "0x80070057",
        "ORA-00942": "ORA-00942",
    }.items():
        answer = shared_mesh.json("search", query, "--kb", name, "--strategy", strategy)
        assert expected in answer["results"][0]["text"], query
