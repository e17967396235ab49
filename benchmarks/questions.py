"""Questions with the place of their answer, and the documents they are asked about."""

import io
import json
import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kbmesh_chunker.documents.source import SourceDocument

from benchmarks.corpus import DATA, REPOSITORY

QUESTIONS = DATA / "questions.jsonl"
SHIPPED_FOLDERS = (DATA, REPOSITORY / "examples" / "documents")
SLACK_EXPORT = "channels.json"
"""A folder that holds such a file is one document: a Slack export."""
_ARCHIVE_TIME = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, kw_only=True)
class Question:
    """A question in the words of a user."""

    document: str
    """Path of the document that answers it, within one of the folders of documents."""
    question: str
    answer: str
    """What stands in the document's text and answers it. Where it stands several times, each place does."""

    @property
    def kind(self) -> str:
        """What kind of document answers it."""
        if self.document.startswith(("slack/", "conversations/slack/")):
            return "slack"
        by_suffix = {".md": "markdown", ".html": "html", ".eml": "mail", ".txt": "plain text"}
        return by_suffix.get(Path(self.document).suffix, "code")


def read_questions(path: Path = QUESTIONS) -> list[Question]:
    """The questions of a file of JSON lines. Raises OSError, KeyError or json.JSONDecodeError."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [Question(**json.loads(line)) for line in lines if line.strip()]


def find_documents(questions: Sequence[Question], folders: Sequence[Path]) -> tuple[dict[str, Path], list[str]]:
    """Where each document of the questions is, and those that are in none of the folders."""
    found: dict[str, Path] = {}
    missing = []
    for name in dict.fromkeys(question.document for question in questions):
        places = [folder / name for folder in folders if (folder / name).exists()]
        if places:
            found[name] = places[0]
        else:
            missing.append(name)
    return found, missing


def read_source(name: str, path: Path) -> SourceDocument:
    """A document as the chunker takes it. A Slack export is packed as Slack hands it out."""
    if not path.is_dir():
        return SourceDocument(content=path.read_bytes(), filename=path.name)
    if not (path / SLACK_EXPORT).is_file():
        raise ValueError(f"{name} is a folder without {SLACK_EXPORT}, so it is no Slack export")
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(path.rglob("*.json")):
            entry = zipfile.ZipInfo(str(file.relative_to(path)), date_time=_ARCHIVE_TIME)
            archive.writestr(entry, file.read_bytes())
    return SourceDocument(content=packed.getvalue(), filename=f"{path.name}.zip", media_type="application/zip")


def find_answer(text: str, answer: str) -> list[tuple[int, int]]:
    """Every place of an answer in a document's text. White space of one kind or another is the same: extraction may
    break lines elsewhere."""
    pattern = re.compile(r"\s+".join(re.escape(word) for word in answer.split()))
    return [found.span() for found in pattern.finditer(text)]


def by_document(questions: Sequence[Question]) -> Mapping[str, Sequence[Question]]:
    """The questions of each document."""
    grouped: dict[str, list[Question]] = {}
    for question in questions:
        grouped.setdefault(question.document, []).append(question)
    return grouped
