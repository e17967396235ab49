"""What a reader is shown beside fragments that the real chunker cut, from the document to the block."""

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.message import EmailMessage
from io import BytesIO
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from kbmesh_chunker.application import ChunkerApplication
from kbmesh_chunker.settings import ChunkerSettings
from kbmesh_retriever.attribution.display import DisplayKind, display_of
from kbmesh_retriever.catalog.port import Document, KnowledgeBase, Reservation
from kbmesh_retriever.ingest.document import IncomingDocument
from kbmesh_retriever.ingest.points import build_points, keyword_vectors
from kbmesh_retriever.mesh.chunker import ChunkerClient
from kbmesh_retriever.mesh.port import SourceDocument
from kbmesh_rpc.channel import open_channel
from kbmesh_rpc.server import running
from reportlab.pdfgen.canvas import Canvas

WRITTEN = datetime(2026, 3, 1, tzinfo=UTC)
DATA = Path(__file__).parent.parent / "data"


@pytest.fixture
async def chunker() -> AsyncIterator[ChunkerClient]:
    settings = ChunkerSettings(port=0, metrics_port=0, reading_processes=0)
    async with running(ChunkerApplication(settings), settings) as target, open_channel(target) as channel:
        yield ChunkerClient(channel)


@dataclass
class Shown:
    """A chunk and its block."""

    text: str
    kind: DisplayKind
    fields: dict[str, str]


async def shown(
    chunker: ChunkerClient, content: str | bytes, *, metadata: Mapping[str, str] | None = None, **said: str
) -> list[Shown]:
    """Takes a document through the chunker to its points and from there to what is displayed, as ingestion and
    retrieval do."""
    source = SourceDocument(
        content=content,
        media_type=said.get("media_type", ""),
        filename=said.get("filename", ""),
        source_type=said.get("source_type", ""),
    )
    chunked = await chunker.chunk(source, chunking={}, embedding_model="")
    knowledge_base = KnowledgeBase(
        id=UUID(int=1), tenant="acme", name="kb", embedding_model="m", model_fingerprint="f", dimension=2,
        collection="kb", created_at=WRITTEN, updated_at=WRITTEN,
    )  # fmt: skip
    reservation = Reservation(document_id=UUID(int=2), knowledge_base_id=UUID(int=1), generation=1, replaces=None)
    incoming = IncomingDocument(
        external_id=said.get("external_id", "doc"), content=content, metadata=dict(metadata or {})
    )
    points = build_points(
        knowledge_base,
        reservation,
        incoming,
        chunked,
        [None] * len(chunked.chunks),
        keyword_vectors(chunked.chunks),
    )
    document = Document(
        id=UUID(int=2), knowledge_base_id=UUID(int=1), external_id=incoming.external_id,
        title=said.get("title") or chunked.title, uri=said.get("uri", ""),
        source_type=chunked.source_type or said.get("source_type", ""), media_type=chunked.media_type,
        author=said.get("author", ""), created_at=None, ingested_at=WRITTEN, content_sha256=b"", fingerprint="",
        generation=1, chunk_count=len(points), strategy=chunked.strategy,
        metadata={**chunked.metadata, **incoming.metadata},
    )  # fmt: skip
    return [_shown(document, point.payload) for point in points]


def _shown(document: Document, payload: Mapping[str, Any]) -> Shown:
    display = display_of(document, payload["metadata"], heading_path=payload["heading_path"], pages=payload["pages"])
    labels = [field.label for field in display.fields]
    assert len(labels) == len(set(labels)), "each label once"
    assert all(field.value for field in display.fields)
    fields = {field.label: field.value for field in display.fields}
    return Shown(text=payload["text"], kind=display.kind, fields=fields)


async def test_slack(chunker: ChunkerClient) -> None:
    day = [
        {"type": "message", "user": "U1", "ts": "1772357400.000100", "text": "Checkout answers 502",
         "user_profile": {"real_name": "Ada Lovelace"}, "thread_ts": "1772357400.000100", "reply_count": 1},
        {"type": "message", "user": "U2", "ts": "1772357460.000100", "text": "Restart the pods",
         "user_profile": {"real_name": "Bob Ross"}, "thread_ts": "1772357400.000100"},
    ]  # fmt: skip
    (thread,) = await shown(
        chunker, json.dumps(day), media_type="application/json", source_type="slack", filename="ops/2026-03-01.json"
    )
    assert thread.kind is DisplayKind.SLACK
    assert "Ada" in thread.fields["User"] or "U1" in thread.fields["User"]
    assert thread.fields["Time"].startswith("2026-03-01")
    assert thread.fields["Thread"] == "2026-03-01 09:30"
    real = (DATA / "documents" / "slack-2016-02-07.json").read_bytes()
    chunks = await shown(chunker, real, filename="general/2016-02-07.json", source_type="slack")
    assert {chunk.kind for chunk in chunks} == {DisplayKind.SLACK}
    assert all({"User", "Time"} <= set(chunk.fields) for chunk in chunks)
    assert all(chunk.fields["Channel"].removeprefix("#") == "general" for chunk in chunks)


def mail() -> EmailMessage:
    message = EmailMessage()
    message["From"] = "Ada <ada@example.com>"
    message["To"] = "Bob <bob@example.com>"
    message["Subject"] = "Outage of checkout"
    message["Date"] = "Sun, 01 Mar 2026 09:30:00 +0000"
    message["Message-ID"] = "<1@example.com>"
    message.set_content("The pool was too small. We raised it to fifty connections.")
    return message


async def test_mail_and_what_came_with_it(chunker: ChunkerClient) -> None:
    message = mail()
    message.add_attachment("def grow(pool):\n    return pool * 5\n", subtype="x-python", filename="grow.py")
    message.add_attachment(pdf("Plan of the pool"), maintype="application", subtype="pdf", filename="plan.pdf")
    body, code, plan = await shown(chunker, message.as_bytes(), media_type="message/rfc822")
    assert body.kind is DisplayKind.MAIL
    assert body.fields == {
        "From": "Ada <ada@example.com>",
        "To": "Bob <bob@example.com>",
        "Subject": "Outage of checkout",
        "Date": "2026-03-01T09:30:00+00:00",
    }
    assert code.kind is DisplayKind.CODE
    assert (code.fields["Attachment"], code.fields["Symbol"], code.fields["Lines"]) == ("grow.py", "grow", "1–2")
    assert plan.kind is DisplayKind.PDF
    assert (plan.fields["Attachment"], plan.fields["Page"]) == ("plan.pdf", "1 of plan.pdf")
    assert plan.fields["Of mail"].startswith("Outage of checkout from Ada")


def pdf(*pages: str) -> bytes:
    file = BytesIO()
    canvas = Canvas(file)
    canvas.setTitle("Handbook of the pool")
    for number, text in enumerate(pages, start=1):
        canvas.drawString(72, 720, f"{text}, page {number} of the handbook, which says what is to be done.")
        canvas.showPage()
    canvas.save()
    return file.getvalue()


async def test_pdf(chunker: ChunkerClient) -> None:
    chunks = await shown(chunker, pdf("Sizes", "Limits", "Alarms"), filename="handbook.pdf")
    assert {chunk.kind for chunk in chunks} == {DisplayKind.PDF}
    assert all(chunk.fields["Title"] for chunk in chunks)
    pages = [chunk.fields.get("Page") or chunk.fields.get("Pages") for chunk in chunks]
    assert pages[0] in {"1", "1–2", "1–3"}
    assert pages[-1] in {"3", "2–3", "1–3"}


async def test_web_page(chunker: ChunkerClient) -> None:
    page = (
        "<html><head><title>Pools</title></head><body><main><h1>Pools</h1><p>What a pool is for, and for whom.</p>"
        "<h2>Sizes</h2><p>A pool has fifty connections, and never more than that.</p></main></body></html>"
    )
    chunks = await shown(
        chunker, page, media_type="text/html", source_type="web_page", uri="https://wiki.example/pools?x=1"
    )
    assert {chunk.kind for chunk in chunks} == {DisplayKind.WEB_PAGE}
    last = next(chunk for chunk in chunks if "fifty" in chunk.text)
    assert (last.fields["Site"], last.fields["Title"]) == ("wiki.example", "Pools")
    assert "Sizes" in last.fields["Section"]


async def test_code(chunker: ChunkerClient) -> None:
    path = DATA / "code" / "httpx_models.py"
    content = path.read_text()
    chunks = await shown(
        chunker,
        content,
        filename="httpx_models.py",
        external_id="httpx/_models.py",
        metadata={"repository": "encode/httpx"},
    )
    assert {chunk.kind for chunk in chunks} == {DisplayKind.CODE}
    lines = content.splitlines()
    for chunk in chunks:
        assert list(chunk.fields)[:3] == ["Repository", "Path", "Lines"]
        assert (chunk.fields["Repository"], chunk.fields["Path"]) == ("encode/httpx", "httpx/_models.py")
        first, _, last = chunk.fields["Lines"].partition("–")
        told = "\n".join(lines[int(first) - 1 : int(last or first)])
        assert chunk.text.strip() in told, "the lines are those of the file"
    symbols = {chunk.fields["Symbol"] for chunk in chunks if "Symbol" in chunk.fields}
    assert any("Headers" in symbol for symbol in symbols)
    assert all("Symbol" in chunk.fields or "import" in chunk.text or "=" in chunk.text for chunk in chunks)


async def test_ticket(chunker: ChunkerClient) -> None:
    (ticket,) = await shown(
        chunker,
        "Checkout answers 502. The permanent fix is to raise the pool.",
        source_type="ticket",
        title="Checkout is down",
        author="Ada",
        metadata={"key": "OPS-4815", "status": "Closed", "assignee": "Bob", "reporter": "Eve"},
    )
    assert ticket.kind is DisplayKind.TICKET
    assert ticket.fields == {
        "Ticket": "OPS-4815",
        "Status": "Closed",
        "Assignee": "Bob",
        "Reporter": "Eve",
        "Title": "Checkout is down",
        "Author": "Ada",
    }


async def test_anything_else(chunker: ChunkerClient) -> None:
    text = (
        "# Guide\n\nWhat this guide is about and for whom.\n\n## Install\n\nRun the installer and wait for it to end."
    )
    chunks = await shown(chunker, text, filename="guide.md", author="Ada")
    assert {chunk.kind for chunk in chunks} == {DisplayKind.GENERIC}
    assert chunks[-1].fields == {"Title": "Guide", "Author": "Ada", "Section": "Guide › Install"}
