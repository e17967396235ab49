"""The commands against a whole mesh of real services and the real model."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


class Home:
    """A home, and the command as a program of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def call(self, *arguments: str | Path, code: int = 0, stdin: str | None = None) -> str:
        """Runs a command with --json and gives what it printed."""
        done = subprocess.run(
            [sys.executable, "-m", "kbmesh_cli", "--home", self.folder, *arguments, "--json"],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout

    def json(self, *arguments: str | Path, code: int = 0) -> Any:
        """The one object that a command printed."""
        return json.loads(self.call(*arguments, code=code))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A home with the model in it, and no running mesh."""
    home = Home(tmp_path_factory.mktemp("kbmesh"))
    card = home.json("models", "pull", "all-MiniLM-L6-v2")
    assert (card["dimension"], card["kind"]) == (384, "encoder")
    return home


EXPECTED = ("shipctl rollback", "two-person act", "acknowledged them too late", "856 of 900", "starts 16 workers")


def test_the_demo_answers_each_question_from_another_document(home: Home) -> None:
    printed = home.json("demo", "--documents", EXAMPLES / "documents")
    titles = [answer["results"][0]["document"]["external_id"] for answer in printed["answers"]]
    assert titles == [
        "handbook/runbook-checkout-rollback.md",
        "handbook/policy-backups-and-retention.md",
        "conversations/mail-webhook-duplicates.eml",
        "handbook/capacity-review-2026-q3.pdf",
        "conversations/slack/platform.slack.zip",
    ]
    answers = [answer["results"][0]["text"] for answer in printed["answers"]]
    for text, words in zip(answers, EXPECTED, strict=True):
        assert words in text
    for answer in printed["answers"]:
        assert answer["results"][0]["citation"] == 1
        assert answer["context_block"]["text"]
        assert [report["status"] for report in answer["knowledge_bases"]] == ["OK", "OK"]


def test_a_file_is_cut_without_a_running_mesh(home: Home) -> None:
    path = EXAMPLES / "documents" / "handbook" / "runbook-checkout-rollback.md"
    text = path.read_text()
    chunks = [
        json.loads(line) for line in home.call("chunk", path, "--strategy", "document", "--size", "900").splitlines()
    ]
    assert len(chunks) > 2
    assert [chunk["index"] for chunk in chunks] == list(range(chunks[0]["total"]))
    for chunk in chunks:
        assert chunk["text"] == text[chunk["start"] : chunk["end"]]
        assert chunk["text"].encode() == text.encode()[chunk["start_byte"] : chunk["end_byte"]]
    (whole,) = home.call("chunk", "-", "--strategy", "fixed", stdin="One sentence.").splitlines()
    assert json.loads(whole)["text"] == "One sentence."


def test_a_judged_set_is_measured_and_leaves_nothing_behind(home: Home, tmp_path: Path) -> None:
    (tmp_path / "animals" / "qrels").mkdir(parents=True)
    folder = tmp_path / "animals"
    corpus = {
        "cat": "Cats sleep up to sixteen hours a day.",
        "bat": "Bats hang upside down and find their prey by echo.",
        "ant": "An ant carries fifty times its own weight.",
    }
    (folder / "corpus.jsonl").write_text(
        "\n".join(json.dumps({"_id": name, "title": name.title(), "text": text}) for name, text in corpus.items())
    )
    (folder / "queries.jsonl").write_text(
        '{"_id": "1", "text": "which animal sleeps the longest?"}\n{"_id": "2", "text": "hunting by echo"}\n'
    )
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n1\tcat\t1\n2\tbat\t1\n")
    printed = home.json("eval", folder, "--strategy", "vector_only,hybrid_rerank")
    assert (printed["dataset"], printed["documents"], printed["failed"]) == ("animals", 3, 0)
    assert list(printed["strategies"]) == ["vector_only", "hybrid_rerank"]
    for measured in printed["strategies"].values():
        assert measured["queries"] == 2
        assert measured["ndcg@10"] == measured["recall@20"] == measured["mrr"] == 1
        assert measured["p95_ms"] >= measured["p50_ms"] > 0
    assert printed["knowledge_base"] is None
