"""Reads a retrieval set in the layout of BEIR: corpus.jsonl, queries.jsonl, qrels/SPLIT.tsv.

A byte order mark and line ends of Windows are no fault. What would make a figure wrong is one, and is told by its file
and line: measuring goes on without it only where that is asked for.
"""

import hashlib
import json
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from kbmesh_cli.errors import CliError

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_FAULTS_NAMED = 3


@dataclass(frozen=True, kw_only=True)
class RetrievalSet:
    """A retrieval set on disk."""

    name: str
    """Its folder's name."""
    split: str
    """Which judgements."""
    corpus_path: Path
    """Its documents, one JSON object a line: _id, title, text."""
    corpus_sha256: str
    """Of the file, in hexadecimal."""
    document_count: int
    """Documents of different ids."""
    queries: dict[str, str]
    """Queries that are judged relevant to a document, by id, in the order of the file."""
    judgements: dict[str, dict[str, int]]
    """Grades by query and document, of those queries."""
    left_out: tuple[str, ...] = ()
    """What is broken and was left out, as that was asked for."""

    def documents(self) -> Iterator[tuple[str, str]]:
        """Gives (id, title, a blank line and text) of each document, read as it is asked for."""
        given: set[str] = set()
        for where, value in _objects(self.corpus_path):
            identifier, text = _identifier(value, where), _document_text(value, where)
            if identifier not in given:
                given.add(identifier)
                yield identifier, text


@contextmanager
def open_retrieval_set(path: Path, *, split: str = "test", skip_broken: bool = False) -> Iterator[RetrievalSet]:
    """Opens a folder, or a .tar.gz of one. Raises CliError where it is not such a set, or where it is broken.

    With `skip_broken`, judgements of unknown ids, queries without text and all but the first of a doubled id are left
    out, and told in `left_out`."""
    if path.is_dir():
        yield _read(path, split, skip_broken=skip_broken)
        return
    if not path.exists():
        raise CliError("FILE_NOT_FOUND", f"there is no {path}")
    with TemporaryDirectory(prefix="kbmesh-eval-") as folder:
        try:
            with tarfile.open(path) as archive:
                archive.extractall(folder, filter="data")
        except (tarfile.TarError, OSError, EOFError) as error:
            raise CliError("DATASET_UNREADABLE", f"{path} cannot be unpacked: {error}") from error
        corpus = sorted(Path(folder).rglob("corpus.jsonl"))
        if not corpus:
            raise CliError("DATASET_UNREADABLE", f"{path} holds no corpus.jsonl")
        if len(corpus) > 1:
            names = ", ".join(str(each.parent.relative_to(folder)) for each in corpus)
            raise CliError("DATASET_UNREADABLE", f"{path} holds several sets: {names}", hint="unpack it and name one")
        name = path.name.removesuffix(".tgz").removesuffix(".gz").removesuffix(".tar")
        yield _read(corpus[0].parent, split, skip_broken=skip_broken, name=name)


@dataclass(kw_only=True)
class _Faults:
    """What is broken, by kind."""

    skip: bool
    found: dict[str, list[str]] = field(default_factory=dict)

    def note(self, kind: str, where: str) -> None:
        self.found.setdefault(kind, []).append(where)

    def check(self) -> tuple[str, ...]:
        """Raises CliError where they are not to be skipped; else one sentence for each kind."""
        told = []
        for kind, places in self.found.items():
            more = f" and {len(places) - _FAULTS_NAMED:,} more" if len(places) > _FAULTS_NAMED else ""
            told.append(f"{kind}: {', '.join(places[:_FAULTS_NAMED])}{more}")
        if told and not self.skip:
            raise CliError(
                "DATASET_UNREADABLE", "; ".join(told), hint="--skip-broken measures without what is named here"
            )
        return tuple(told)


def _read(folder: Path, split: str, *, skip_broken: bool, name: str | None = None) -> RetrievalSet:
    corpus_path, queries_path, qrels_path = (
        folder / "corpus.jsonl",
        folder / "queries.jsonl",
        folder / "qrels" / f"{split}.tsv",
    )
    for path in (corpus_path, queries_path, qrels_path):
        if not path.is_file():
            splits = ", ".join(sorted(each.stem for each in (folder / "qrels").glob("*.tsv")))
            raise CliError(
                "DATASET_UNREADABLE",
                f"{name or folder} has no {path.relative_to(folder)}",
                hint=f"--split: there are {splits}"
                if path is qrels_path and splits
                else "a set is corpus.jsonl, queries.jsonl and qrels/test.tsv, as BEIR has them",
            )
    faults = _Faults(skip=skip_broken)
    documents = _document_ids(corpus_path, faults)
    texts = _query_texts(queries_path, faults)
    judgements = _judgements(qrels_path, faults)
    kept: dict[str, dict[str, int]] = {}
    for query, grades in judgements.items():
        relevant = {document: grade for document, grade in grades.items() if grade > 0}
        if query not in texts:
            faults.note(f"{qrels_path.name} judges queries that {queries_path.name} does not have", query)
            continue
        for document in sorted(relevant.keys() - documents):
            faults.note(f"{qrels_path.name} judges documents that {corpus_path.name} does not have", document)
        known = {document: grade for document, grade in grades.items() if document in documents}
        if not any(grade > 0 for grade in known.values()):
            continue
        if not texts[query].strip():
            faults.note(f"{queries_path.name} has judged queries without text", query)
            continue
        kept[query] = known
    left_out = faults.check()
    queries = {query: text for query, text in texts.items() if query in kept}
    if not queries:
        raise CliError(
            "DATASET_UNREADABLE",
            f"no query of {queries_path.name} is judged relevant to a document in {qrels_path.name}",
            hint="the first column of the judgements is a query's _id, the third a grade above 0",
        )
    return RetrievalSet(
        name=name or folder.resolve().name,
        split=split,
        corpus_path=corpus_path,
        corpus_sha256=_sha256(corpus_path),
        document_count=len(documents),
        queries=queries,
        judgements=kept,
        left_out=left_out,
    )


def _document_ids(path: Path, faults: _Faults) -> set[str]:
    ids: set[str] = set()
    for where, value in _objects(path):
        identifier = _identifier(value, where)
        _document_text(value, where)
        if identifier in ids:
            faults.note(f"{path.name} has an _id twice", f"{identifier} ({where})")
        ids.add(identifier)
    if not ids:
        raise CliError("DATASET_UNREADABLE", f"{path.name} has no document")
    return ids


def _query_texts(path: Path, faults: _Faults) -> dict[str, str]:
    texts: dict[str, str] = {}
    for where, value in _objects(path):
        identifier = _identifier(value, where)
        if not isinstance(value.get("text"), str):
            raise CliError("DATASET_UNREADABLE", f"{where}: the query has no text")
        if identifier in texts:
            faults.note(f"{path.name} has an _id twice", f"{identifier} ({where})")
        texts.setdefault(identifier, str(value["text"]))
    return texts


def _judgements(path: Path, faults: _Faults) -> dict[str, dict[str, int]]:
    judgements: dict[str, dict[str, int]] = {}
    for number, line in enumerate(_lines(path), 1):
        where = f"{path.name} line {number}"
        columns = _decoded(line, where).rstrip("\r\n").split("\t")
        if columns == [""]:
            continue
        grade = _grade(columns)
        if grade is None:
            if number == 1:  # it names the columns
                continue
            raise CliError(
                "DATASET_UNREADABLE", f"{where}: not a query, a document and a whole number, with tabs between"
            )
        query, document = columns[0].strip(), columns[1].strip()
        grades = judgements.setdefault(query, {})
        if grades.get(document, grade) != grade:
            faults.note(f"{path.name} judges a document twice, with different grades", f"{query} {document} ({where})")
        grades.setdefault(document, grade)
    return judgements


def _grade(columns: list[str]) -> int | None:
    try:
        return int(columns[2]) if len(columns) == 3 else None
    except ValueError:
        return None


def _identifier(value: dict[str, object], where: str) -> str:
    identifier = value.get("_id")
    if not isinstance(identifier, str | int) or isinstance(identifier, bool) or not str(identifier).strip():
        raise CliError("DATASET_UNREADABLE", f"{where}: not an object with _id")
    return str(identifier)


def _document_text(value: dict[str, object], where: str) -> str:
    title, text = value.get("title") or "", value.get("text") or ""
    if not isinstance(title, str) or not isinstance(text, str):
        raise CliError("DATASET_UNREADABLE", f"{where}: title or text is no text")
    return f"{title}\n\n{text}" if title else text


def _objects(path: Path) -> Iterator[tuple[str, dict[str, object]]]:
    for number, line in enumerate(_lines(path), 1):
        where = f"{path.name} line {number}"
        text = _decoded(line, where)
        if not text.strip():
            continue
        try:
            value = json.loads(text)
        except json.JSONDecodeError as error:
            raise CliError("DATASET_UNREADABLE", f"{where}: {error}") from error
        if not isinstance(value, dict):
            raise CliError("DATASET_UNREADABLE", f"{where}: not an object with _id")
        yield where, value


def _decoded(line: bytes, where: str) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise CliError("DATASET_UNREADABLE", f"{where}: {error}", hint="the files of a set are UTF-8") from error


def _lines(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines):
                yield line.removeprefix(_BYTE_ORDER_MARK) if number == 0 else line
    except OSError as error:
        raise CliError("DATASET_UNREADABLE", f"{path} cannot be read: {error.strerror or error}") from error


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    for line in _lines(path):
        digest.update(line)
    return digest.hexdigest()
