"""Reads a retrieval set in the layout of BEIR: corpus.jsonl, queries.jsonl, qrels/test.tsv."""

import csv
import json
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from kbmesh_cli.errors import CliError


@dataclass(frozen=True, kw_only=True)
class RetrievalSet:
    """A retrieval set on disk."""

    name: str
    """Its folder's name."""
    corpus_path: Path
    """Its documents, one JSON object a line: _id, title, text."""
    queries: dict[str, str]
    """Judged queries by id, in the order of the file."""
    judgements: dict[str, dict[str, int]]
    """Grades by query and document."""

    def documents(self) -> Iterator[tuple[str, str]]:
        """Gives (id, title, a blank line and text) of each document, read as it is asked for."""
        for value in _lines(self.corpus_path):
            title, text = str(value.get("title") or ""), str(value.get("text") or "")
            yield str(value["_id"]), f"{title}\n\n{text}" if title else text

    def count_documents(self) -> int:
        """How many documents there are."""
        try:
            with self.corpus_path.open("rb") as lines:
                return sum(1 for line in lines if line.strip())
        except OSError as error:
            raise CliError("DATASET_UNREADABLE", f"{self.corpus_path} cannot be read: {error.strerror}") from error


@contextmanager
def open_retrieval_set(path: Path, *, split: str = "test") -> Iterator[RetrievalSet]:
    """Opens a folder, or a .tar.gz of one. Raises CliError where it is not such a set."""
    if path.is_dir():
        yield _read(path, split)
        return
    if not path.exists():
        raise CliError("FILE_NOT_FOUND", f"there is no {path}")
    with TemporaryDirectory(prefix="kbmesh-eval-") as folder:
        try:
            with tarfile.open(path) as archive:
                archive.extractall(folder, filter="data")
        except (tarfile.TarError, OSError) as error:
            raise CliError("DATASET_UNREADABLE", f"{path} cannot be unpacked: {error}") from error
        corpus = sorted(Path(folder).rglob("corpus.jsonl"))
        if not corpus:
            raise CliError("DATASET_UNREADABLE", f"{path} holds no corpus.jsonl")
        yield _read(corpus[0].parent, split, name=path.name.removesuffix(".gz").removesuffix(".tar"))


def _read(folder: Path, split: str, name: str | None = None) -> RetrievalSet:
    qrels_path = folder / "qrels" / f"{split}.tsv"
    for path in (folder / "corpus.jsonl", folder / "queries.jsonl", qrels_path):
        if not path.is_file():
            raise CliError(
                "DATASET_UNREADABLE",
                f"{folder} has no {path.relative_to(folder)}",
                hint="a set is corpus.jsonl, queries.jsonl and qrels/test.tsv, as BEIR has them",
            )
    judgements: dict[str, dict[str, int]] = {}
    try:
        with qrels_path.open(encoding="utf-8", newline="") as lines:
            for row in csv.reader(lines, delimiter="\t"):
                if len(row) >= 3 and row[2].lstrip("-").isdigit():  # the first line names the columns
                    judgements.setdefault(row[0], {})[row[1]] = int(row[2])
        queries = {
            str(value["_id"]): str(value["text"])
            for value in _lines(folder / "queries.jsonl")
            if any(grade > 0 for grade in judgements.get(str(value["_id"]), {}).values())
        }
    except KeyError as error:
        raise CliError("DATASET_UNREADABLE", f"queries.jsonl: a query has no {error.args[0]}") from error
    except (UnicodeDecodeError, csv.Error, OSError) as error:
        raise CliError("DATASET_UNREADABLE", f"{qrels_path} cannot be read: {error}") from error
    if not queries:
        raise CliError(
            "DATASET_UNREADABLE",
            f"no query of {folder / 'queries.jsonl'} is judged relevant to a document in {qrels_path.name}",
            hint="the first column of the judgements is a query's _id, the third a grade above 0",
        )
    return RetrievalSet(
        name=name or folder.resolve().name,
        corpus_path=folder / "corpus.jsonl",
        queries=queries,
        judgements=judgements,
    )


def _lines(path: Path) -> Iterator[dict[str, object]]:
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield _object(line, f"{path.name} line {number}")
    except OSError as error:
        raise CliError("DATASET_UNREADABLE", f"{path} cannot be read: {error.strerror or error}") from error


def _object(line: bytes, where: str) -> dict[str, object]:
    try:
        value = json.loads(line.decode())
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise CliError("DATASET_UNREADABLE", f"{where}: {error}") from error
    if not isinstance(value, dict) or "_id" not in value:
        raise CliError("DATASET_UNREADABLE", f"{where}: not an object with _id")
    return value
