"""AUTO takes in every kind of text file, and says what it made of it."""

import pytest
from chunker.conftest import DOCUMENTS, Chunk
from chunker.laws import check_laws
from kbmesh_chunker.config import Strategy
from kbmesh_chunker.documents.source import SourceType

CHOICES = {
    "httpx-quickstart.md": (Strategy.DOCUMENT, SourceType.FILE),
    "infinity-readme.md": (Strategy.DOCUMENT, SourceType.FILE),
    "opentelemetry-demo-readme.md": (Strategy.DOCUMENT, SourceType.FILE),
    "nvidia-rag-python-client.md": (Strategy.DOCUMENT, SourceType.FILE),
    "us-declaration.txt": (Strategy.SEMANTIC, SourceType.FILE),
    "currency-server.js": (Strategy.CODE, SourceType.CODE),
    "tracer_common.h": (Strategy.CODE, SourceType.CODE),
    "slack-2016-02-07.json": (Strategy.SLACK, SourceType.SLACK),
}


@pytest.mark.parametrize("name", DOCUMENTS)
async def test_real_files(chunk: Chunk, name: str) -> None:
    chunked = await chunk(DOCUMENTS[name], filename=name)
    check_laws(chunked)
    assert (chunked.config.strategy, chunked.document.source_type) == CHOICES[name]
    assert chunked.strategy_reason


@pytest.mark.parametrize("strategy", [Strategy.FIXED, Strategy.SEMANTIC, Strategy.DOCUMENT])
@pytest.mark.parametrize("size", [32, 200, 100_000])
@pytest.mark.parametrize("name", DOCUMENTS)
async def test_real_files_by_every_strategy(chunk: Chunk, name: str, size: int, strategy: Strategy) -> None:
    for content in (DOCUMENTS[name], DOCUMENTS[name].replace(b"\n", b"\r\n")):
        check_laws(await chunk(content, filename=name, strategy=strategy, size=size))


async def test_mail_is_cut_as_mail(chunk: Chunk) -> None:
    mail = "From: ada@example.org\nTo: bob@example.org\nSubject: Backups\n\nThey run nightly.\n"
    chunked = await chunk(mail, filename="backups.eml")
    assert chunked.config.strategy is Strategy.EMAIL
    assert chunked.document.source_type is SourceType.EMAIL
    assert chunked.strategy_reason
    assert chunked.chunks[0].text == "They run nightly."
    assert "Subject: Backups" in chunked.chunks[0].piece.context


async def test_who_chooses_gets_no_reason(chunk: Chunk) -> None:
    assert (await chunk("text", strategy=Strategy.FIXED)).strategy_reason == ""
