"""Slack exports and messages for tests."""

import json
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

from kbmesh_chunker.chunking import ChunkedDocument
from kbmesh_chunker.documents.reader import read
from kbmesh_chunker.documents.reading import ReadingLimits
from kbmesh_chunker.documents.source import ExtractedDocument, SlackLayout, SourceDocument

EXPORT = Path(__file__).parent.parent / "data" / "slack"
USERS = [
    {"id": "U1", "name": "ada", "real_name": "Ada Lovelace", "profile": {"display_name": "Ada"}},
    {"id": "U2", "name": "bob", "profile": {"display_name": "", "real_name": "Bob Byte"}},
    {"id": "U3", "name": "eve", "deleted": True, "profile": {}},
]
CHANNELS = [
    {"id": "C1", "name": "ops", "topic": {"value": "Who is on call"}, "purpose": {"value": "Running things"}},
    {"id": "C2", "name": "random"},
]


def said(ts: object, text: object, user: str = "U1", **more: object) -> dict[str, object]:
    """A message."""
    return {"type": "message", "ts": ts, "user": user, "text": text, **more}


def zipped(files: Mapping[str, object]) -> bytes:
    """A zip file; what is not bytes is written as JSON."""
    packed = BytesIO()
    with ZipFile(packed, "w", ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content if isinstance(content, bytes) else json.dumps(content))
    return packed.getvalue()


def real_export(folder: str = "") -> bytes:
    """The real export as a zip file, wrapped in a folder or not."""
    files = {path.relative_to(EXPORT).as_posix(): path.read_bytes() for path in sorted(EXPORT.rglob("*.json"))}
    return zipped({folder + name: content for name, content in files.items()})


def reading(content: str | bytes, **source: object) -> ExtractedDocument:
    """What is made of a file of at most a million bytes."""
    limits = ReadingLimits(max_document_bytes=1_000_000, max_text_bytes=2_000_000)
    return read(SourceDocument(content=content, **source), limits=limits)


def shown(messages: object, users: object = USERS) -> list[str]:
    """Each message of one channel as it is shown."""
    document = reading(json.dumps({"users": users, "messages": messages}), media_type="application/json")
    layout = document.main.layout
    assert isinstance(layout, SlackLayout)
    return [document.text[message.start : message.end] for message in layout.messages]


def texts(chunked: ChunkedDocument) -> list[str]:
    """The text of each chunk."""
    return [chunk.text for chunk in chunked.chunks]
