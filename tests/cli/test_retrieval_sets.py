"""Retrieval sets in the layout of BEIR, from a folder or packed."""

import json
import tarfile
from pathlib import Path

import pytest
from kbmesh_cli.beir import open_retrieval_set
from kbmesh_cli.errors import CliError

CORPUS = [
    {"_id": "1", "title": "Cats", "text": "They sleep."},
    {"_id": "2", "text": "# not a heading"},
]
QUERIES = [{"_id": "q1", "text": "who sleeps?"}, {"_id": "q2", "text": "is not judged"}, {"_id": "q3", "text": "zero"}]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A set of two documents and one judged query."""
    folder = tmp_path / "cats"
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text("\n".join(map(json.dumps, CORPUS)) + "\n\n")
    (folder / "queries.jsonl").write_text("\n".join(map(json.dumps, QUERIES)))
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\t1\t2\nq1\t2\t0\nq3\t1\t0\n")
    return folder


def test_a_folder_is_read(folder: Path) -> None:
    with open_retrieval_set(folder) as judged:
        assert judged.name == "cats"
        assert list(judged.documents()) == [("1", "Cats\n\nThey sleep."), ("2", "# not a heading")]
        assert judged.count_documents() == 2
        assert judged.queries == {"q1": "who sleeps?"}
        assert judged.judgements["q1"] == {"1": 2, "2": 0}


def test_an_archive_is_read_wherever_the_set_is_in_it(folder: Path, tmp_path: Path) -> None:
    packed = tmp_path / "cats.tar.gz"
    with tarfile.open(packed, "w:gz") as archive:
        archive.add(folder, arcname="some/where")
    with open_retrieval_set(packed) as judged:
        assert judged.name == "cats"
        assert len(list(judged.documents())) == 2


def test_an_archive_cannot_write_elsewhere(folder: Path, tmp_path: Path) -> None:
    packed = tmp_path / "evil.tar.gz"
    with tarfile.open(packed, "w:gz") as archive:
        archive.add(folder / "corpus.jsonl", arcname="../escaped.jsonl")
    with pytest.raises(CliError) as caught, open_retrieval_set(packed):
        pass
    assert caught.value.reason == "DATASET_UNREADABLE"


@pytest.mark.parametrize("missing", ["corpus.jsonl", "queries.jsonl", "qrels/test.tsv"])
def test_what_is_missing_is_named(folder: Path, missing: str) -> None:
    (folder / missing).unlink()
    with pytest.raises(CliError) as caught, open_retrieval_set(folder):
        pass
    assert missing in caught.value.message


@pytest.mark.parametrize("grade", ["0", "relevant"])
def test_a_set_whose_queries_nobody_judged_is_refused(folder: Path, grade: str) -> None:
    (folder / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\nq1\t1\t{grade}\nelse\t1\t1\n")
    with pytest.raises(CliError) as caught, open_retrieval_set(folder):
        pass
    assert caught.value.reason == "DATASET_UNREADABLE"


@pytest.mark.parametrize("name", ["queries.jsonl", "qrels/test.tsv"])
def test_a_file_that_is_no_text_is_named(folder: Path, name: str) -> None:
    (folder / name).write_bytes(b"\xff\xfe\x00")
    with pytest.raises(CliError) as caught, open_retrieval_set(folder):
        pass
    assert caught.value.reason == "DATASET_UNREADABLE"
    assert Path(name).name in caught.value.message


def test_a_broken_line_is_named(folder: Path) -> None:
    (folder / "corpus.jsonl").write_text('{"_id": "1", "text": "fine"}\n{"_id": \n')
    with open_retrieval_set(folder) as judged, pytest.raises(CliError) as caught:
        list(judged.documents())
    assert "line 2" in caught.value.message
