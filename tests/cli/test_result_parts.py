"""Results from documents within documents, and hints that name what is missing."""

from pathlib import Path

import pytest
from cli.command import Kbmesh
from cli.scripted_mesh import Script
from kbmesh.chunker.v1 import chunker_pb2
from kbmesh.retriever.v1 import retriever_pb2
from kbmesh_cli.strategy_options import names
from kbmesh_rpc.errors import FeatureUnsupported

DOCS = Path(__file__).resolve().parents[2] / "docs"


def found(title: str, metadata: dict[str, str], **display: str) -> retriever_pb2.RetrieveResponse:
    """An answer of one fragment from page 2."""
    result = retriever_pb2.RetrieveResult(
        rank=1,
        text="stripes",
        document=retriever_pb2.DocumentSource(
            external_id="box.mbox", title=title, source_type=chunker_pb2.SOURCE_TYPE_EMAIL
        ),
        knowledge_base="mails",
        pages=[2],
        metadata=metadata,
        display=[retriever_pb2.DisplayField(label=label, value=value) for label, value in display.items()],
    )
    return retriever_pb2.RetrieveResponse(results=[result])


async def test_a_fragment_of_an_attachment_says_which_and_of_which_mail(
    script: Script, endpoint: str, kbmesh: Kbmesh
) -> None:
    metadata = {"attachment": "zebra.pdf", "mail_subject": "Zoo"}
    display = {"Attachment": "zebra.pdf", "Of mail": "Zoo from Ada", "Page": "2 of zebra.pdf"}
    script.retrieval.CopyFrom(found("", metadata, **display))
    arguments = ("--endpoint", endpoint, "search", "stripes?", "--kb", "mails")
    card = (await kbmesh(*arguments)).out
    assert card.startswith("1. Zoo  ")
    assert "mails · Attachment zebra.pdf · Of mail Zoo from Ada · page 2 of zebra.pdf · box.mbox" in card
    (result,) = (await kbmesh(*arguments, "--json")).json()["results"]
    assert (result["metadata"], result["display"]) == (metadata, display)


@pytest.mark.parametrize(
    ("title", "metadata", "shown"),
    [
        ("Title", {"subject": "Zoo"}, "Title"),
        ("", {"subject": "Zoo"}, "Zoo"),
        ("", {"channel": "ops", "message_count": "2"}, "#ops"),
        ("", {"channel": "of a river"}, "box.mbox"),
        ("", {}, "box.mbox"),
    ],
)
async def test_what_has_no_title_is_called_by_the_part_it_is_from(
    script: Script, endpoint: str, kbmesh: Kbmesh, title: str, metadata: dict[str, str], shown: str
) -> None:
    script.retrieval.CopyFrom(found(title, metadata))
    done = await kbmesh("--endpoint", endpoint, "search", "stripes?", "--kb", "mails")
    assert done.out.startswith(f"1. {shown}  ")
    assert "mails · page 2 · box.mbox" in done.out


async def test_a_folder_is_not_cut(kbmesh: Kbmesh, tmp_path: Path) -> None:
    done = await kbmesh("chunk", tmp_path, "--json")
    error = done.json()["error"]
    assert (done.code, error["reason"]) == (2, "USAGE")
    assert "kbmesh ingest" in error["hint"]


async def test_a_strategy_without_its_model_says_what_to_set(
    script: Script, endpoint: str, kbmesh: Kbmesh, tmp_path: Path
) -> None:
    (tmp_path / "a.md").write_text("words")
    script.error = FeatureUnsupported("STRATEGY_PROPOSITION")
    done = await kbmesh("chunk", tmp_path / "a.md", "--strategy", "proposition", "--chunker", endpoint, "--json")
    assert "KBMESH_LLM_URL" in done.json()["error"]["hint"]


async def test_every_option_of_a_strategy_is_named_in_the_help_and_in_the_docs(kbmesh: Kbmesh) -> None:
    page = (DOCS / "cli.md").read_text()
    for command in (("chunk",), ("kb", "create")):
        told = "".join((await kbmesh(*command, "--help")).out.split())
        assert [name for name in names() if name not in told or f"`{name}`" not in page] == []


async def test_a_knowledge_base_without_a_rebuild_says_so_in_words(
    script: Script, endpoint: str, kbmesh: Kbmesh
) -> None:
    done = await kbmesh("kb", "show", "handbook", "--endpoint", endpoint)
    lines = {line.split()[0]: line.split()[1:] for line in done.out.splitlines()}
    assert lines["rebuild"] == ["none"]
    assert (await kbmesh("kb", "show", "handbook", "--endpoint", endpoint, "--json")).json()["rebuild"] is None
