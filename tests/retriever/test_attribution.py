"""A reader sees where a fragment comes from."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kbmesh_retriever.attribution.display import DisplayKind, display_of
from kbmesh_retriever.attribution.sources import label_of, preview_of
from kbmesh_retriever.catalog.port import Document


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
    display = display_of(of, metadata, heading_path=heading_path, pages=pages)
    return [f"{field.label}: {field.value}" for field in display.fields]


def kind(of: Document, **metadata: str) -> DisplayKind:
    return display_of(of, metadata, heading_path=(), pages=()).kind


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
    assert shown(document("code", repository="shop", path="pay.py"), start_line="12", end_line="40", symbol="pay") == [
        "Repository: shop",
        "Path: pay.py",
        "Lines: 12–40",
        "Symbol: pay",
        "Author: Ada",
    ]
    assert shown(document("file"), heading_path=["Payments", "Refunds"], pages=[3, 4]) == [
        "Title: Runbook",
        "Author: Ada",
        "Section: Payments › Refunds",
        "Pages: 3–4",
    ]
    assert shown(document("web_page"), heading_path=["Refunds"]) == [
        "Site: wiki.example",
        "Title: Runbook",
        "Author: Ada",
        "Section: Refunds",
    ]
    assert shown(document("web_page", site="The Wiki"))[0] == "Site: The Wiki"
    pdf = replace(document("file"), media_type="application/pdf", author="")
    assert shown(pdf, pages=[7]) == ["Title: Runbook", "Page: 7"]
    ticket = document("ticket", key="OPS-7", status="open", assignee="Bob", reporter="Eve")
    assert shown(ticket) == [
        "Ticket: OPS-7",
        "Status: open",
        "Assignee: Bob",
        "Reporter: Eve",
        "Title: Runbook",
        "Author: Ada",
    ]


def test_a_block_has_a_kind() -> None:
    assert kind(document("slack")) is DisplayKind.SLACK
    assert kind(document("email")) is DisplayKind.MAIL
    assert kind(document("web_page")) is DisplayKind.WEB_PAGE
    assert kind(document("code")) is DisplayKind.CODE
    assert kind(document("ticket")) is DisplayKind.TICKET
    assert kind(document("file")) is DisplayKind.GENERIC
    assert kind(document("generic")) is DisplayKind.GENERIC
    by_type = {
        "application/pdf": DisplayKind.PDF,
        "text/html; charset=utf-8": DisplayKind.WEB_PAGE,
        "message/rfc822": DisplayKind.MAIL,
        "text/markdown": DisplayKind.GENERIC,
    }
    assert {name: kind(replace(document("file"), media_type=name)) for name in by_type} == by_type
    assert kind(document("email"), attachment="Plan.PDF") is DisplayKind.PDF
    assert kind(document("email"), attachment="plan.txt") is DisplayKind.GENERIC
    assert kind(document("file"), language="python", start_line="3") is DisplayKind.CODE


def test_an_address_that_is_none_names_no_site() -> None:
    for uri in ("", "s3://bucket/page.html", "http://[", "file:///page.html"):
        assert shown(replace(document("web_page"), uri=uri, author="")) == ["Title: Runbook"]


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
    assert shown(mail, **code)[2:] == ["Lines: 3–9", "Symbol: Zoo.feed", "Language: python"]
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
    # Without a path it is what the caller calls the file by.
    assert fields == ["Path: doc", "Lines: 1–9", "Symbol: pay, refund", "Language: python", "Author: Ada"]


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
