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
        assert judged.document_count == 2
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
    assert "corpus.jsonl line 2" in refusal(folder)


def refusal(folder: Path, **options: str) -> str:
    """Why a set is refused."""
    with pytest.raises(CliError) as caught, open_retrieval_set(folder, **options):
        pass
    assert caught.value.reason == "DATASET_UNREADABLE"
    return caught.value.message


def test_a_byte_order_mark_and_line_ends_of_windows_change_nothing(folder: Path) -> None:
    with open_retrieval_set(folder) as judged:
        plain = list(judged.documents()), judged.queries, judged.judgements
    for path in folder.rglob("*.*"):
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    with open_retrieval_set(folder) as judged:
        assert (list(judged.documents()), judged.queries, judged.judgements) == plain


def test_judgements_of_another_encoding_are_refused(folder: Path) -> None:
    path = folder / "qrels" / "test.tsv"
    path.write_text(path.read_text(), encoding="utf-16")
    assert "test.tsv line 1" in refusal(folder)


def add(path: Path, line: str) -> None:
    """Appends a line."""
    path.write_text(path.read_text().rstrip("\n") + f"\n{line}\n")


BREAKS = {
    "an unknown document": ("qrels/test.tsv", "q1\tnowhere\t1", "nowhere"),
    "an unknown query": ("qrels/test.tsv", "nobody\t1\t1", "nobody"),
    "a document twice": ("corpus.jsonl", '{"_id": "2", "text": "again"}', "corpus.jsonl line"),
    "a query twice": ("queries.jsonl", '{"_id": "q1", "text": "again"}', "queries.jsonl line"),
    "two grades": ("qrels/test.tsv", "q1\t1\t1", "test.tsv line"),
}


@pytest.mark.parametrize("name", BREAKS)
def test_what_would_make_a_figure_wrong_is_named_and_can_be_left_out(folder: Path, name: str) -> None:
    file, line, told = BREAKS[name]
    with open_retrieval_set(folder) as judged:
        whole = list(judged.documents()), judged.queries, judged.judgements
    add(folder / file, line)
    assert told in refusal(folder)
    with open_retrieval_set(folder, skip_broken=True) as judged:
        assert (list(judged.documents()), judged.queries, judged.judgements) == whole
        assert told in " ".join(judged.left_out)


def test_a_judged_query_without_text_is_named(folder: Path) -> None:
    add(folder / "queries.jsonl", '{"_id": "q4", "text": "  "}')
    add(folder / "qrels" / "test.tsv", "q4\t2\t1")
    assert "q4" in refusal(folder)
    with open_retrieval_set(folder, skip_broken=True) as judged:
        assert set(judged.queries) == {"q1"}


@pytest.mark.parametrize("line", ["q1\t1", "q1 1 1", "q1\t0\t1\t1", "q1\t1\thigh"])
def test_a_judgement_of_another_form_is_named_by_its_line(folder: Path, line: str) -> None:
    add(folder / "qrels" / "test.tsv", line)
    assert "test.tsv line 5" in refusal(folder)


def test_another_split_is_named_where_there_is_one(folder: Path) -> None:
    (folder / "qrels" / "dev.tsv").write_text("query-id\tcorpus-id\tscore\nq2\t2\t1\n")
    with open_retrieval_set(folder, split="dev") as judged:
        assert set(judged.queries) == {"q2"}
    with pytest.raises(CliError) as caught, open_retrieval_set(folder, split="train"):
        pass
    assert "dev, test" in caught.value.hint


def test_a_set_without_documents_is_refused(folder: Path) -> None:
    (folder / "corpus.jsonl").write_text("\n")
    assert "no document" in refusal(folder)


def test_an_archive_of_several_sets_is_refused(folder: Path, tmp_path: Path) -> None:
    packed = tmp_path / "two.tar.gz"
    with tarfile.open(packed, "w:gz") as archive:
        archive.add(folder, arcname="one")
        archive.add(folder, arcname="other")
    assert "one, other" in refusal(packed)


def test_a_file_that_is_no_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "set.tar.gz").write_bytes(b"\x1f\x8b nothing packed")
    assert "unpacked" in refusal(tmp_path / "set.tar.gz")
