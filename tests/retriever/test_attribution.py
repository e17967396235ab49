"""A reader sees where a fragment comes from, and a prompt gets as much as fits."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kbmesh_retriever.attribution.context_block import ContextBlock, Source, build_context_block, estimate_tokens
from kbmesh_retriever.attribution.sources import display_fields, label_of, preview_of
from kbmesh_retriever.catalog.port import Document
from kbmesh_rpc.errors import DependencyUnavailable


def document(source_type: str, **metadata: str) -> Document:
    return Document(
        id=UUID(int=1),
        knowledge_base_id=UUID(int=2),
        external_id="doc",
        title="Runbook",
        uri="https://wiki.example/runbook",
        source_type=source_type,
        media_type="text/plain",
        author="Ada",
        created_at=None,
        ingested_at=datetime(2026, 3, 1, tzinfo=UTC),
        content_sha256=b"",
        fingerprint="",
        generation=1,
        chunk_count=1,
        strategy="fixed",
        metadata=metadata,
    )


def shown(of: Document, heading_path: Sequence[str] = (), pages: Sequence[int] = (), **metadata: str) -> list[str]:
    fields = display_fields(of, metadata, heading_path=heading_path, pages=pages)
    return [f"{field.label}: {field.value}" for field in fields]


def test_each_kind_of_source_shows_its_own_fields() -> None:
    assert shown(document("slack", channel="#ops"), user="Grace", timestamp="2026-03-01 09:30") == [
        "Channel: #ops",
        "User: Grace",
        "Time: 2026-03-01 09:30",
    ]
    assert shown(document("email", subject="Outage", date="1 March")) == [
        "From: Ada",
        "Subject: Outage",
        "Date: 1 March",
    ]
    assert shown(document("code", repository="shop", path="pay.py"), start_line="12", end_line="40") == [
        "Repository: shop",
        "Path: pay.py",
        "Lines: 12–40",
        "Author: Ada",
    ]
    assert shown(document("file"), heading_path=["Payments", "Refunds"], pages=[3, 4]) == [
        "Author: Ada",
        "Section: Payments › Refunds",
        "Pages: 3–4",
    ]


ATTACHED = {
    "attachment": "zebra.txt",
    "mail_subject": "Zoo",
    "mail_from": "Ada <ada@example.com>",
    "mail_date": "2026-03-01T09:30:00+00:00",
    "mail_message_id": "1@example.com",
}
OF_MAIL = "Of mail: Zoo from Ada <ada@example.com>, 2026-03-01T09:30:00+00:00"
MAIL = {"from": "Grace", "to": "Ada", "subject": "Second", "date": "2026-03-02", "message_id": "2", "section": "body"}
OWN = ["From: Grace", "To: Ada", "Subject: Second", "Date: 2026-03-02"]


def test_an_attachment_is_shown_with_its_mail() -> None:
    mail = document("email", **{"from": "Ada", "subject": "Zoo", "to": "Bob"})
    assert shown(mail, **ATTACHED) == ["Attachment: zebra.txt", OF_MAIL]
    assert shown(mail, ["Stripes"], [2, 3], **ATTACHED) == [
        "Attachment: zebra.txt",
        OF_MAIL,
        "Section: Stripes",
        "Pages: 2–3 of zebra.txt",
    ]
    assert shown(mail, attachment="a.pdf") == ["Attachment: a.pdf"]
    assert shown(mail, attachment="a.pdf", mail_date="2026-03-01") == ["Attachment: a.pdf", "Of mail: 2026-03-01"]
    code = {**ATTACHED, "language": "python", "symbol": "Zoo.feed", "start_line": "3", "end_line": "9"}
    assert shown(mail, **code)[2:] == ["Symbol: Zoo.feed", "Language: python", "Lines: 3–9"]
    channel = {**ATTACHED, "channel": "ops", "users": "Eve", "start_ts": "1772357400.000100", "message_count": "2"}
    assert shown(mail, **channel)[2:] == ["Channel: ops", "User: Eve", "Time: 2026-03-01 09:30"]


def test_a_mail_of_a_mailbox_or_within_another_shows_its_own_header() -> None:
    assert shown(document("email"), **MAIL) == OWN
    around = document("email", **{"from": "Ada", "to": "Bob", "subject": "Fwd: Second", "date": "2026-03-03"})
    forwarded = {**MAIL, "forwarded_by": "Ada", "forwarded_subject": "Fwd: Second"}
    assert shown(around, **forwarded) == [*OWN, "Forwarded by: Ada"]
    undated = {name: value for name, value in forwarded.items() if name not in {"date", "to"}}
    assert shown(around, **undated) == ["From: Grace", "Subject: Second", "Forwarded by: Ada"]


def test_a_message_of_slack_shows_when_it_was_said_and_in_which_thread() -> None:
    metadata = {
        "channel": "ops",
        "users": "Ada, Bob",
        "start_ts": "1772357460.000100",
        "start_time": "2026-03-01 09:31",
        "thread_ts": "1772357400.000100",
        "message_count": "2",
    }
    assert shown(document("slack"), **metadata) == [
        "Channel: ops",
        "User: Ada, Bob",
        "Time: 2026-03-01 09:31",
        "Thread: 2026-03-01 09:30",
    ]
    assert shown(document("slack"), thread_ts="9:30 AM") == ["Time: 9:30 AM", "Thread: 9:30 AM"]


def test_code_without_one_symbol_shows_those_it_has() -> None:
    fields = shown(document("code"), symbols="pay, refund", language="python", lines="1–9")
    assert fields == ["Symbol: pay, refund", "Language: python", "Lines: 1–9", "Author: Ada"]


@pytest.mark.parametrize(
    ("kind", "metadata", "label"),
    [
        ("email", MAIL, "Second (kb)"),
        ("email", ATTACHED, "Zoo, zebra.txt, page 3 (kb)"),
        ("slack", {"channel": "ops", "start_ts": "1.1", "message_count": "1"}, "#ops (kb)"),
        ("file", {}, "box (kb)"),
        ("file", {"channel": "of a river"}, "box (kb)"),
    ],
)
def test_what_has_no_title_is_called_by_the_part_it_is_from(kind: str, metadata: dict[str, str], label: str) -> None:
    untitled = replace(document(kind), title="", external_id="box", uri="")
    pages = [3] if "attachment" in metadata else []
    assert label_of(untitled, "kb", metadata, heading_path=[], pages=pages) == label


def test_a_label_is_one_line() -> None:
    label = label_of(document("file"), "ops", {}, heading_path=["Refunds\nand more"], pages=[3])
    assert label == "Runbook, Refunds and more, page 3 (ops) https://wiki.example/runbook"


@given(st.text(max_size=400))
@settings(max_examples=100, deadline=None)
def test_a_preview_is_short_and_on_one_line(text: str) -> None:
    preview = preview_of(text)
    assert len(preview) <= 161
    assert "\n" not in preview
    assert preview.rstrip("…") in " ".join(text.split()) or not text.split()


def test_a_preview_ends_with_a_word() -> None:
    assert preview_of("word " * 100) == ("word " * 32).rstrip() + "…"
    assert preview_of("a" * 200) == "a" * 160 + "…"


async def words(texts: Sequence[str]) -> Sequence[int]:
    """A tokenizer: two special tokens and one for each word."""
    return [2 + len(text.split()) for text in texts]


def source(number: int, text: str, context: str = "") -> Source:
    return Source(chunk_id=UUID(int=number), label=f"Doc {number}", context=context, text=text)


def numbers(block: ContextBlock) -> list[int]:
    return [citation.chunk_id.int for citation in block.citations]


async def test_all_that_fits_is_numbered_in_order() -> None:
    block = await build_context_block([source(7, "First.", "In general"), source(9, "Second.")], 100, words)
    assert block.text == "[1] Doc 7\nIn general\nFirst.\n\n[2] Doc 9\nSecond."
    assert (block.tokens, block.estimated) == (12, False)
    assert [(one.number, one.chunk_id.int, one.label) for one in block.citations] == [(1, 7, "Doc 7"), (2, 9, "Doc 9")]
    assert (block.number_of(UUID(int=9)), block.number_of(UUID(int=8))) == (2, 0)


async def test_what_does_not_fit_is_cut_at_a_sentence() -> None:
    long = "One two three four. Five six seven eight. Nine ten eleven twelve. Thirteen fourteen fifteen."
    block = await build_context_block([source(1, "Short."), source(2, long)], 20, words)
    assert block.text == "[1] Doc 1\nShort.\n\n[2] Doc 2\nOne two three four. Five six seven eight."
    assert block.tokens <= 20


async def test_what_cannot_be_cut_is_left_out_and_a_smaller_one_after_it_comes_in() -> None:
    endless = "word " * 100
    block = await build_context_block([source(1, endless), source(2, "Small one.")], 20, words)
    assert numbers(block) == [2]
    assert block.text == "[1] Doc 2\nSmall one."


async def test_japanese_is_cut_at_its_own_full_stop() -> None:
    async def characters(texts: Sequence[str]) -> Sequence[int]:
        return [len(text) for text in texts]

    text = "障害が発生しました。原因は調査中です。" + "復旧の見込みは未定です。" * 5
    block = await build_context_block([source(1, text)], 30, characters)
    assert block.text == "[1] Doc 1\n障害が発生しました。"


async def test_without_a_tokenizer_the_tokens_are_estimated_and_say_so() -> None:
    async def down(texts: Sequence[str]) -> Sequence[int]:
        raise DependencyUnavailable("embedder", "down")

    block = await build_context_block([source(1, "First."), source(2, "Second.")], 100, down)
    assert block.estimated
    assert block.tokens == estimate_tokens(block.text)
    assert estimate_tokens("abcd" * 10) == 10
    assert estimate_tokens("障害発生") == 4


async def test_nothing_to_say() -> None:
    block = await build_context_block([], 100, words)
    assert (block.text, block.tokens, block.citations) == ("", 0, ())


sentences = st.lists(st.sampled_from(["Yes.", "It was down.", "Why did it fail?", "no end"]), min_size=1, max_size=12)


@pytest.mark.parametrize("budget", [5, 12, 30, 80])
@given(st.lists(sentences, max_size=6))
@settings(max_examples=40, deadline=None)
async def test_the_budget_is_never_exceeded_and_text_never_altered(budget: int, texts: list[list[str]]) -> None:
    sources = [source(number, " ".join(text)) for number, text in enumerate(texts, start=1)]
    block = await build_context_block(sources, budget, words)
    assert block.tokens <= budget
    assert [citation.number for citation in block.citations] == list(range(1, len(block.citations) + 1))
    assert numbers(block) == sorted(numbers(block))
    parts = block.text.split("\n\n") if block.text else []
    for part, number in zip(parts, numbers(block), strict=True):
        _, text = part.split("\n", 1)
        assert sources[number - 1].text.startswith(text)
