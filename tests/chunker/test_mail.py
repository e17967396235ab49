"""Mails become what was said, who said it and what came with it, however they are written."""

import base64
import quopri
from collections.abc import Callable
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from itertools import pairwise
from pathlib import Path

import pytest
from chunker.conftest import Chunk
from chunker.laws import check_laws
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kbmesh_chunker.chunking import ChunkedDocument
from kbmesh_chunker.config import Strategy
from kbmesh_chunker.documents.reader import read
from kbmesh_chunker.documents.reading import ReadingLimits
from kbmesh_chunker.documents.source import ExtractedDocument, Grammar, SourceDocument, SourceType
from kbmesh_rpc.errors import DocumentEmpty, DocumentTooLarge, DocumentUnreadable, KbmeshError, Reason

MAILS = {
    path.stem: path.read_bytes() for path in sorted((Path(__file__).parent.parent / "data" / "mail").glob("*.eml"))
}
LIMITS = ReadingLimits()


def read_mail(content: str | bytes, limits: ReadingLimits = LIMITS) -> ExtractedDocument:
    source = SourceDocument(content=content, media_type="message/rfc822", filename="mail.eml")
    return read(source, limits=limits)


def subject_of(header: bytes) -> str:
    return read_mail(b"From: a@example.com\r\nSubject: " + header + b"\r\n\r\nBody\r\n").title


def body_of(header: str, body: bytes) -> str:
    return read_mail(f"From: a@example.com\r\n{header}\r\n\r\n".encode() + body).text


def one_part(kind: str, body: str, header: str = "") -> str:
    return f"--B\r\nContent-Type: {kind}\r\n{header}\r\n{body}\r\n"


def multipart(kind: str, *parts: str, closing: str = "--B--\r\n") -> str:
    header = (
        f'From: Ana Lee <ana@example.com>\r\nSubject: Budget\r\nContent-Type: multipart/{kind}; boundary="B"\r\n\r\n'
    )
    return header + "".join(parts) + closing


def reasons(document: ExtractedDocument) -> set[Reason]:
    return {warning.reason for warning in document.warnings}


class TestHeader:
    @pytest.mark.parametrize(
        ("written", "subject"),
        [
            pytest.param(
                b"=?utf-8?B?UGxhbm5pbmcgZGUgbGEgcsOpdQ==?=\r\n =?utf-8?B?bmlvbiB0cmltZXN0cmllbGxl?=",
                "Planning de la réunion trimestrielle",
                id="EML-01",
            ),
            pytest.param(b"=?utf-8?B?w?= =?utf-8?B?qQ==?= x", None, id="broken base64"),
            pytest.param(b"=?utf-8?Q?r=C3?=\r\n\t=?utf-8?Q?=A9union?=", "réunion", id="cut inside a character"),
            pytest.param(b"=?utf-8?Q?caf=C3=A9?= =?iso-8859-1?Q?_cr=E8me?=", "café crème", id="two charsets"),
            pytest.param(b"=?iso-2022-jp?B?GyRCRnxLXBsoQg==?=", "日本", id="ISO-2022-JP"),
            pytest.param(b"[EXTERN]=?utf-8?B?QnVkZ2V0IGZyZWV6ZQ==?=", "[EXTERN]Budget freeze", id="EML-02"),
            pytest.param(b"=?utf-8?Q?a?=b", "ab", id="glued at the end"),
            pytest.param(b'"=?utf-8?Q?a=C3=A9?="', '"aé"', id="in quotes"),
            pytest.param(b"=?utf-8*fr?Q?caf=C3=A9?=", "café", id="with a language"),
            pytest.param(b"=?x-none?Q?caf=C3=A9?=", "café", id="unknown charset"),
            pytest.param("größer".encode(), "größer", id="raw UTF-8"),
            pytest.param("größer".encode("latin-1"), "größer", id="raw Latin-1"),
            pytest.param(b"=?utf-8?Q?a=0D=0ABcc:_x@example.com?=", "a Bcc: x@example.com", id="header injection"),
            pytest.param(b"=?utf-8?q?What=3F?=", "What?", id="question mark"),
            pytest.param(b"100 =?? what ?=", "100 =?? what ?=", id="no encoded word"),
            pytest.param(b"folded\r\n\tline", "folded line", id="folded"),
        ],
    )
    def test_subject(self, written: bytes, subject: str | None) -> None:
        found = subject_of(written)
        assert "\n" not in found
        assert subject is None or found == subject

    @pytest.mark.parametrize(
        ("written", "sender"),
        [
            pytest.param("=?utf-8?Q?Lee=2C_Ana?= <ana@example.com>", '"Lee, Ana" <ana@example.com>', id="EML-17"),
            pytest.param('"Lee, Ana" <ana@example.com>', '"Lee, Ana" <ana@example.com>', id="quoted"),
            pytest.param("ana@example.com (Ana Lee)", "Ana Lee <ana@example.com>", id="comment"),
            pytest.param("Team: a@example.com, b@example.com;", "a@example.com, b@example.com", id="group"),
            pytest.param("A: a@x.org;, B: b@x.org;, c@x.org", "a@x.org, b@x.org, c@x.org", id="groups"),
            pytest.param("undisclosed-recipients:;", "undisclosed-recipients", id="empty group"),
            pytest.param("undisclosed-recipients:", "undisclosed-recipients", id="unclosed empty group"),
            pytest.param("Ana <ana@x.org> <mailto:ana@x.org>", "Ana <ana@x.org>", id="address and link"),
            pytest.param("Ana <ana@x.org<mailto:ana@x.org>>", "Ana <ana@x.org>", id="link within the address"),
            pytest.param("ana@x.org <mailto:ana@x.org>, b@x.org", "ana@x.org, b@x.org", id="bare address and link"),
            pytest.param("Ana [mailto:ana@x.org]", "Ana <ana@x.org>", id="link in brackets"),
            pytest.param("Ana <mailto:ana@x.org>", "Ana <ana@x.org>", id="link alone"),
            pytest.param('"ana@example.com" <ana@example.com>', "ana@example.com", id="address twice"),
            pytest.param("Ana Lee", "Ana Lee", id="no address"),
            pytest.param('"Ana <ana@example.com>', None, id="unclosed quote"),
            pytest.param("Ana <ana@example.com", None, id="unclosed bracket"),
            pytest.param("(" * 5000, None, id="nested comments"),
        ],
    )
    def test_sender(self, written: str, sender: str | None) -> None:
        document = read_mail(f"From: {written}\r\nSubject: hi\r\n\r\nx\r\n")
        found = document.main.chunk_metadata.get("from", "")
        assert found == sender if sender is not None else document.text == "x"

    def test_everything_that_a_chunk_carries(self) -> None:
        mail = read_mail(
            "From: Ana Lee <ana@example.com>\nTo: b@example.com,\n c@example.com\nTo: d@example.com\n"
            "Cc: e@example.com\nDate: Tue, 4 Mar 2025 10:00:00 +0100\nSubject: Budget\nMessage-ID: <3@x>\n"
            "In-Reply-To: <2@x>\nReferences: <1@x> <2@x>\n\nText\n"
        )
        assert mail.main.chunk_metadata == {
            "from": "Ana Lee <ana@example.com>",
            "to": "b@example.com, c@example.com, d@example.com",
            "cc": "e@example.com",
            "date": "2025-03-04T10:00:00+01:00",
            "subject": "Budget",
            "message_id": "3@x",
            "in_reply_to": "2@x",
            "thread": "1@x",
        }
        assert mail.main.context == (
            "From: Ana Lee <ana@example.com>",
            "To: b@example.com, c@example.com, d@example.com",
            "Cc: e@example.com",
            "Date: Tue, 4 Mar 2025 10:00:00 +0100",
            "Subject: Budget",
        )
        assert mail.title == "Budget"
        assert mail.source_type is SourceType.EMAIL
        assert mail.main.grammar is Grammar.MAIL

    @pytest.mark.parametrize(
        ("written", "date"),
        [
            ("Tue, 4 Mar 2025 10:00:00 -0000", "2025-03-04T10:00:00+00:00"),
            ("4 Mar 25 10:00 EST", "2025-03-04T10:00:00-05:00"),
            ("2025-03-04T10:00:00Z", "2025-03-04T10:00:00+00:00"),
            ("2025-03-04 10:00:00 +0100", "2025-03-04T10:00:00+01:00"),
            ("2025-03-04t9:00:00.123-05:00", "2025-03-04T09:00:00-05:00"),
            ("2025/3/4 10:00", "2025-03-04T10:00:00+00:00"),
            ("2025-03-04", "2025-03-04"),
            ("2025-13-04T10:00:00Z", None),
            ("yesterday", None),
            ("Tue, 99 Mar 2025 99:00:00 +9999", None),
        ],
    )
    def test_date(self, written: str, date: str | None) -> None:
        mail = read_mail(f"From: a@example.com\nDate: {written}\n\nx\n")
        assert mail.main.chunk_metadata.get("date") == date
        assert f"Date: {written}" in mail.main.context

    def test_a_mail_of_ten_thousand_addressees_has_short_chunks(self) -> None:
        to = ", ".join(f"user{number}@example.com" for number in range(10_000))
        mail = read_mail(f"From: a@example.com\nTo: {to}\n\nx\n")
        assert len(mail.main.chunk_metadata["to"]) <= 1_000
        assert len(mail.metadata["to"]) > 100_000

    @pytest.mark.parametrize("content", [str, str.encode])
    async def test_a_blank_before_the_colon(self, chunk: Chunk, content: Callable[[str], str | bytes]) -> None:
        written = content("From : a@example.com\nSubject : s\n\nText\n")
        for options in ({}, {"filename": "mail.eml"}, {"filename": "mails.mbox"}):
            chunked = await chunk(written, **options)
            assert chunked.document.title == "s"
            assert chunked.chunks[0].piece.metadata["from"] == "a@example.com"

    async def test_line_ends_that_were_converted_twice(self, chunk: Chunk) -> None:
        written = b"From: a@example.com\r\r\nSubject: s\r\r\n\r\r\nFirst\r\r\nSecond\r\r\n"
        for options in ({}, {"filename": "mail.eml"}):
            chunked = await chunk(written, **options)
            assert (chunked.document.title, chunked.document.text) == ("s", "First\nSecond")

    @pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\r\r\n"])
    @pytest.mark.parametrize("before", ["", "\ufeff", "\n\n", "From a@example.com Tue Mar  4 10:00:00 2025\n"])
    def test_line_ends_and_what_stands_before(self, before: str, end: str) -> None:
        written = f"{before}From: a@example.com\nSubject: one\n two\n\nFirst\n\nSecond\n".replace("\n", end)
        mail = read_mail(written.encode())
        assert (mail.title, mail.text) == ("one two", "First\n\nSecond")

    def test_a_line_that_is_no_field(self) -> None:
        mail = read_mail("From: a@example.com\nbroken line\nSubject: s\n\nText\n")
        assert (mail.title, mail.text) == ("s", "Text")
        mail = read_mail("From: a@example.com\nSubject: s\nNo blank line before this: see\n\nText\n")
        assert mail.text in {"No blank line before this: see\n\nText", "Text"}

    def test_no_header_at_all(self) -> None:
        assert read_mail("Just words, and a colon: here\n\nMore\n").text == "Just words, and a colon: here\n\nMore"


class TestText:
    def test_unknown_charset(self) -> None:
        """EML-03."""
        mail = read_mail(
            "From: a@example.com\r\nSubject: odd\r\nContent-Type: text/plain; charset=x-none-such\r\n\r\n"
            "Plain words café\r\n".encode()
        )
        assert mail.text == "Plain words café"
        assert reasons(mail) == {Reason.DOCUMENT_UNREADABLE}

    @pytest.mark.parametrize(
        ("label", "codec", "text"),
        [
            pytest.param("iso-8859-8-i", "iso-8859-8", "שלום", id="EML-04"),
            ("ISO-8859-8-E", "iso-8859-8", "שלום"),
            ("iso-8859-6-i", "iso-8859-6", "مرحبا"),
            ("x-sjis", "cp932", "①日本語"),
            ("iso-2022-jp", "iso-2022-jp", "日本語"),
            ("ks_c_5601-1987", "cp949", "똠방각하"),
            ("gb2312", "gb18030", "朱镕基"),
            ("x-gbk", "gbk", "你好"),
            ("iso-8859-1", "cp1252", "“quoted” – 5 €"),
            ("us-ascii", "utf-8", "café"),
            ("unknown-8bit", "cp1252", "café"),
            ("utf8", "utf-8", "café"),
            ("'utf-8'", "utf-8", "café"),
            ("windows-1251", "cp1251", "привет"),
            ("koi8-r", "koi8-r", "привет"),
            ("unicode-1-1-utf-7", "utf-7", "Größe"),
            ("x-mac-roman", "mac-roman", "café"),
            ("big5", "big5", "繁體"),
        ],
    )
    def test_charsets(self, label: str, codec: str, text: str) -> None:
        assert body_of(f"Content-Type: text/plain; charset={label}", text.encode(codec)) == text

    def test_utf_8_that_says_to_be_something_else(self) -> None:
        mail = read_mail("From: a@x.org\nContent-Type: text/plain; charset=iso-2022-jp\n\nGrüße aus Köln é".encode())
        assert mail.text == "Grüße aus Köln é"
        assert mail.warnings

    def test_text_that_was_decoded_before(self) -> None:
        assert (
            read_mail("From: a@x.org\nContent-Type: text/plain; charset=iso-8859-1\n\nGrüße 日本").text == "Grüße 日本"
        )

    @pytest.mark.parametrize("encoding", ["base64", "BASE64", " base64 ", "Base-64"])
    def test_base64(self, encoding: str) -> None:
        data = base64.encodebytes("Grüße, and so on. ".encode() * 20)
        header = f"Content-Transfer-Encoding: {encoding}\r\nContent-Type: text/plain; charset=utf-8"
        assert body_of(header, data).startswith("Grüße, and so on. Grüße")

    def test_base64_that_is_broken(self) -> None:
        header = "Content-Transfer-Encoding: base64\r\nContent-Type: text/plain; charset=utf-8"
        data = base64.encodebytes(b"Quarterly figures attached below.")
        assert body_of(header, data[:20]) == "Quarterly figur"
        footer = b"_______\nUnsubscribe at any time, friends\n"
        assert body_of(header, data + footer).startswith("Quarterly figures attached below.")
        assert "Unsubscribe at any time, friends" in body_of(header, data + footer)
        assert body_of(header, b"This is not base64 at all.") == "This is not base64 at all."
        assert body_of(header, data + data).count("Quarterly figures attached below.") == 2

    def test_quoted_printable(self) -> None:
        header = "Content-Transfer-Encoding: quoted-printable\r\nContent-Type: text/plain; charset=utf-8"
        assert body_of(header, quopri.encodestring("Größe=x und mehr".encode() * 10)).startswith("Größe=x und mehr")
        assert body_of(header, b"100=% of =ZZ and a soft=\r\n break") == "100=% of =ZZ and a soft break"
        assert body_of(header, b"lan=  \r\nger and so=\t\r\n on= ") == "langer and so on"

    def test_unknown_transfer_encoding(self) -> None:
        mail = read_mail("From: a@x.org\nContent-Transfer-Encoding: x-odd\n\nWords\n")
        assert mail.text == "Words"
        assert mail.warnings

    def test_controls(self) -> None:
        mail = read_mail(b"From: a@example.com\n\nnul \x00 inside")
        assert mail.text == "nul \ufffd inside"
        assert mail.warnings

    def test_flowed(self) -> None:
        header = "Content-Type: text/plain; format=flowed; charset=utf-8"
        flowed = "This is one \r\nparagraph.\r\n\r\n> quoted \r\n> line\r\n>> deeper\r\n  indented\r\n-- \r\nAna\r\n"
        assert body_of(header, flowed.encode()) == (
            "This is one paragraph.\n\n> quoted line\n>> deeper\n indented\n-- \nAna"
        )
        assert body_of(f"{header}; delsp=yes", "日本 \r\n語".encode()) == "日本語"

    def test_uuencode(self) -> None:
        """A file that stands in the text is an attachment; what only looks like one is text."""
        mail = read_mail("From: a@x.org\n\nSee this:\n\nbegin 644 note.txt\n+:&5L;&\\@=V]R;&0\n`\nend\n\nBye\n")
        assert [part.document.text for part in mail.parts] == ["See this:\n\n\nBye", "hello world"]
        assert mail.parts[1].document.chunk_metadata["attachment"] == "note.txt"
        text = "We begin 644 times.\n\nbegin 644 x\nno code here, friends and colleagues\nend"
        assert read_mail(f"From: a@x.org\n\n{text}\n").text == text

    def test_html_only(self) -> None:
        """EML-08."""
        mail = read_mail(
            "From: a@example.com\r\nSubject: html\r\nMIME-Version: 1.0\r\nContent-Type: text/html; charset=utf-8\r\n"
            "\r\n<html><head><style>p{color:red}</style></head><body><p>Quota is <b>40&nbsp;GB</b></p>"
            "<script>x()</script></body></html>\r\n"
        )
        assert "Quota is" in mail.text
        assert "40 GB" in mail.text
        assert not any(markup in mail.text for markup in ("<", "color", "x()"))

    def test_html_quotes_are_quotes(self) -> None:
        mail = read_mail(
            "From: a@example.com\nContent-Type: text/html\n\n<div>I agree.</div><div class='gmail_quote'>"
            "<div>On Tue, 4 Mar 2025, Kim wrote:<br></div><blockquote><p>Shall we?</p></blockquote></div>"
            "<div class='moz-signature'>-- <br>Ana</div>"
        )
        layout = mail.main.layout
        assert layout is not None
        assert [section.kind for section in layout.sections] == ["body", "quote", "signature"]

    def test_a_mail_that_says_nothing_is_its_header(self) -> None:
        mail = read_mail("From: a@example.com\nSubject: call me\n\n")
        assert mail.text == "From: a@example.com\nSubject: call me"
        assert mail.main.context == ()
        assert read_mail("X-Odd: yes\nMIME-Version: 1.0\n\n\n").text == "X-Odd: yes\nMime-Version: 1.0"

    @pytest.mark.parametrize("content", ["", "\n\n", "From: \n\n", "Subject:\n"])
    def test_nothing_at_all(self, content: str) -> None:
        with pytest.raises(DocumentEmpty):
            read_mail(content if content.strip() == "" else "\n")


class TestParts:
    def test_text_deep_inside(self) -> None:
        """EML-06."""
        mail = read_mail(
            "From: a@example.com\r\nSubject: nest\r\nMIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=M\r\n"
            "\r\n--M\r\nContent-Type: multipart/related; boundary=R\r\n\r\n--R\r\n"
            "Content-Type: multipart/alternative; boundary=A\r\n\r\n--A\r\nContent-Type: text/plain; charset=utf-8\r\n"
            "\r\nDeep plain text\r\n--A\r\nContent-Type: text/html; charset=utf-8\r\n\r\n<p>Deep html text</p>\r\n--A--"
            "\r\n--R--\r\n--M\r\nContent-Type: application/octet-stream; name=x.bin\r\nContent-Disposition: "
            "attachment; filename=x.bin\r\nContent-Transfer-Encoding: base64\r\n\r\nAAECAw==\r\n--M--\r\n"
        )
        assert mail.text == "Deep plain text"
        assert mail.main.chunk_metadata["attachments"] == "x.bin"
        assert any("x.bin" in warning.message for warning in mail.warnings)

    @pytest.mark.parametrize(
        ("plain", "html", "text"),
        [
            ("Hello", "<p>Hello</p>", "Hello"),
            ("", "<p>Only here</p>", "Only here"),
            ("Please use an HTML capable browser.", f"<p>{'News of the day. ' * 30}</p>", "News of the day."),
            ("Yes.", "<p>Yes.</p>", "Yes."),
            ("I like HTML and browsers a lot.", "<p>I like <b>HTML</b> and browsers a lot.</p>", "I like HTML"),
        ],
    )
    def test_alternatives(self, plain: str, html: str, text: str) -> None:
        mail = read_mail(multipart("alternative", one_part("text/plain", plain), one_part("text/html", html)))
        assert mail.text.startswith(text)
        assert len(mail.parts) == 1

    @pytest.mark.parametrize(
        "notice",
        [
            "If you cannot read this email, please visit https://x.example.com/",
            "Se questa email non viene visualizzata correttamente, clicca qui",
            "Si vous ne pouvez pas lire cet e-mail, cliquez ici https://x.example.com/a?b=c",
            "Please view this email in an HTML-capable client.",
            "このメールはHTML形式です。",
            "Your invoice is attached below.",
            "Your invoice",
        ],
    )
    def test_a_notice_is_no_text(self, notice: str) -> None:
        rows = "".join(f"<tr><td>Item {number}</td><td>{number * 7} EUR</td></tr>" for number in range(8))
        html = f"<p>Your invoice</p><table><tr><th>What</th><th>Price</th></tr>{rows}</table>"
        mail = read_mail(multipart("alternative", one_part("text/plain", notice), one_part("text/html", html)))
        assert "49 EUR" in mail.text
        assert (Reason.CONTENT_LEFT_OUT in reasons(mail)) == (notice != "Your invoice")

    def test_a_notice_that_is_longer_than_the_text(self) -> None:
        notice = one_part("text/plain", "Se questa email non viene visualizzata correttamente, clicca qui")
        assert read_mail(multipart("alternative", notice, one_part("text/html", "<p>Your code is 1234.</p>"))).text == (
            "Your code is 1234."
        )
        plain = one_part("text/plain", "Your code is 1234. See you soon.")
        assert read_mail(multipart("alternative", plain, one_part("text/html", "<p>ACME</p>"))).text == (
            "Your code is 1234. See you soon."
        )

    def test_a_plain_text_that_breaks_off(self) -> None:
        paragraphs = [f"Paragraph {number} tells of the plan for the year and of its cost." for number in range(40)]
        html = "".join(f"<p>{paragraph}</p>" for paragraph in paragraphs)
        cut = "\r\n\r\n".join(paragraphs[:20])
        mail = read_mail(multipart("alternative", one_part("text/plain", cut), one_part("text/html", html)))
        assert "Paragraph 39" in mail.text
        assert not mail.warnings

    def test_what_only_the_html_says_is_named(self) -> None:
        plain, html = (
            "Dear Kim, we meet at noon on Monday.",
            "<p>Dear Kim, we meet at <b>noon</b> on Monday in Oslo.</p>",
        )
        mail = read_mail(multipart("alternative", one_part("text/plain", plain), one_part("text/html", html)))
        assert mail.text == plain
        assert [dict(warning.metadata) for warning in mail.warnings] == [{"words": "2", "left_out": "in, oslo"}]

    @pytest.mark.parametrize(
        "kind", ["text/x-amp-html", "text/watch-html", "text/enriched", "text/richtext", "text/rtf", "application/rtf"]
    )
    def test_twins_for_few_programs(self, kind: str) -> None:
        """EML-06: every version but one is left out, whatever it is written in."""
        plain, html = one_part("text/plain", "Hello there"), one_part("text/html", "<p>Hello there</p>")
        twin = one_part(kind, "<html><body><bold>Hello there</bold></body></html>")
        calendar = one_part("text/calendar", "BEGIN:VCALENDAR\r\nSUMMARY:Review\r\nEND:VCALENDAR")
        for parts in ((plain, twin, html), (twin, html), (plain, twin), (html, twin)):
            mail = read_mail(multipart("alternative", *parts, calendar))
            assert mail.parts[0].document.text == "Hello there"
            assert len(mail.parts) == 2
            assert "SUMMARY:Review" in mail.parts[1].document.text
            assert not mail.warnings

    @pytest.mark.parametrize("kind", ["text/x-amp-html", "text/watch-html", "text/enriched"])
    def test_a_twin_that_is_alone(self, kind: str) -> None:
        twin = one_part(kind, "<p>Hello there</p>")
        for given_parts in ((twin,), (one_part("text/plain", ""), twin)):
            assert read_mail(multipart("alternative", *given_parts)).text == "Hello there"

    def test_an_attachment_within_an_alternative_is_not_lost(self) -> None:
        inner = (
            "--I\r\nContent-Type: text/html\r\n\r\n<p>hi</p>\r\n"
            "--I\r\nContent-Type: text/csv; name=a.csv\r\n\r\nyear,total\r\n2025,12\r\n--I--"
        )
        mail = read_mail(
            multipart("alternative", one_part("text/plain", "hi"), one_part("multipart/mixed; boundary=I", inner))
        )
        assert [part.document.text.strip() for part in mail.parts] == ["hi", "year,total\r\n2025,12"]

    @pytest.mark.parametrize(
        "header",
        [
            'Content-Type: multipart/alternative; boundary="AA"\r\nContent-Type: multipart/alternative; boundary="BB"',
            'Content-Type: multipart/alternative; boundary="BB"\r\nContent-Type: multipart/alternative; boundary="AA"',
            "Content-Type: text/plain\r\nContent-Type: multipart/mixed; boundary=AA",
            'Content-Type: multipart/mixed; boundary="CC"',
            "Content-Type: multipart/mixed",
            "Content-Type: multipart/mixed; boundary=",
            'Content-Type: multipart/mixed; boundary="AA',
            "Content-Type: multipart/mixed; boundary*0=A; boundary*1=A",
        ],
    )
    def test_boundaries_that_are_wrong(self, header: str) -> None:
        """EML-16."""
        mail = read_mail(
            f"From: a@example.com\r\nSubject: dup\r\n{header}\r\n\r\n--AA\r\nContent-Type: text/plain\r\n\r\n"
            "Hello there\r\n--AA--\r\n"
        )
        assert mail.text == "Hello there"

    def test_a_multipart_without_parts(self) -> None:
        mail = read_mail(multipart("mixed", closing="Words without a delimiter\r\n"))
        assert mail.text == "Words without a delimiter"
        assert mail.warnings

    def test_a_part_that_ends_early(self) -> None:
        assert read_mail(multipart("mixed", one_part("text/plain", "One"), "--B\r\n\r\nTwo", closing="")).text == (
            "One\n\nTwo"
        )

    def test_forwarded_mail(self) -> None:
        """EML-09."""
        mail = read_mail(
            multipart(
                "mixed",
                one_part("text/plain", "See below"),
                one_part(
                    "message/rfc822", "From: c@example.org\r\nSubject: Outage report\r\n\r\nRouter r9 rebooted twice."
                ),
            )
        )
        inner = mail.parts[1].document
        assert inner.text == "Router r9 rebooted twice."
        assert (inner.chunk_metadata["from"], inner.chunk_metadata["subject"]) == ("c@example.org", "Outage report")
        assert inner.chunk_metadata["forwarded_by"] == "Ana Lee <ana@example.com>"
        assert inner.context == ("From: c@example.org", "Subject: Outage report")

    def test_a_forwarded_mail_says_what_it_does_not_know(self) -> None:
        """What is empty must not be filled from the mail around it."""
        deepest = "From: d@example.org\r\n\r\nDeep"
        inner = "From: c@example.org\r\nCc: e@example.org\r\nContent-Type: multipart/mixed; boundary=I\r\n\r\n--I\r\n"
        inner += f"\r\nRouter r9\r\n--I\r\nContent-Type: message/rfc822\r\n\r\n{deepest}\r\n--I--"
        written = multipart("mixed", one_part("message/rfc822", inner))
        mail = read_mail(f"Date: Tue, 4 Mar 2025 10:00:00 +0100\r\nTo: b@example.com\r\n{written}")
        outer, middle, deep = (part.document.chunk_metadata for part in mail.parts)
        assert (outer["date"], outer["to"]) == ("2025-03-04T10:00:00+01:00", "b@example.com")
        assert (middle["date"], middle["to"], middle["from"]) == ("", "", "c@example.org")
        assert (deep["date"], deep["to"], deep["cc"], deep["from"]) == ("", "", "", "d@example.org")

    def test_forwarded_mail_in_base64(self) -> None:
        encoded = base64.encodebytes(b"From: c@example.org\r\nSubject: s\r\n\r\nInner").decode()
        part = one_part("message/rfc822", encoded, "Content-Transfer-Encoding: base64\r\n")
        assert read_mail(multipart("mixed", part)).parts[1].document.text == "Inner"

    def test_digest(self) -> None:
        messages = [f"--B\r\n\r\nFrom: {name}@example.com\r\n\r\nI am {name}\r\n" for name in ("ann", "bob")]
        mail = read_mail(multipart("digest", *messages))
        assert [part.document.chunk_metadata["from"] for part in mail.parts[1:]] == [
            "ann@example.com",
            "bob@example.com",
        ]

    @pytest.mark.parametrize(
        ("parameter", "name"),
        [
            ('filename="report.md"', "report.md"),
            ("filename*=utf-8''r%C3%A9sum%C3%A9.md", "résumé.md"),
            ("filename*0*=utf-8''r%C3%A9; filename*1=sum.md", "résum.md"),
            ('filename="=?utf-8?Q?r=C3=A9sum=C3=A9.md?="', "résumé.md"),
            ("filename=two words.md", "two words.md"),
            ('filename="C:\\\\temp\\\\x.md"', "x.md"),
            ('filename="../../etc/passwd.md"', "passwd.md"),
        ],
    )
    def test_attachments_of_known_types(self, parameter: str, name: str) -> None:
        part = one_part(
            "application/octet-stream", "# Plan\r\n\r\nWe begin.", f"Content-Disposition: attachment; {parameter}\r\n"
        )
        mail = read_mail(multipart("mixed", one_part("text/plain", "See the plan"), part))
        attached = mail.parts[1].document
        assert (attached.grammar, attached.title) == (Grammar.MARKDOWN, "Plan")
        assert attached.chunk_metadata["attachment"] == name
        assert attached.chunk_metadata["mail_subject"] == "Budget"
        assert attached.context[0] == f'Attachment {name} of the mail "Budget" from Ana Lee <ana@example.com>'

    def test_invitations_reports_and_what_cannot_be_read(self) -> None:
        mail = read_mail(
            multipart(
                "mixed",
                one_part("text/plain", "Come!"),
                one_part("text/calendar; method=REQUEST", "BEGIN:VCALENDAR\r\nSUMMARY:Review\r\nEND:VCALENDAR"),
                one_part("message/delivery-status", "Final-Recipient: rfc822; x@example.com\r\nStatus: 5.1.1"),
                one_part("image/png; name=logo.png", "iVBORw0KGgo="),
                one_part("application/ms-tnef; name=winmail.dat", "eJ8+IgAAAA=="),
                one_part("application/pkcs7-mime; name=smime.p7m", "MIAGCSqGSIb3"),
                one_part("application/pgp-signature; name=signature.asc", "-----BEGIN PGP SIGNATURE-----"),
            )
        )
        assert mail.parts[0].document.text == "Come!\n\nFinal-Recipient: rfc822; x@example.com\nStatus: 5.1.1"
        assert "SUMMARY:Review" in mail.parts[1].document.text
        assert len(mail.parts) == 2
        assert reasons(mail) == {Reason.UNSUPPORTED_MEDIA_TYPE}
        named = mail.main.chunk_metadata["attachments"]
        assert all(name in named for name in ("logo.png", "winmail.dat", "smime.p7m", "signature.asc"))

    def test_one_bad_attachment_fails_alone(self) -> None:
        bad = one_part("application/pdf; name=a.pdf", "AAECAwQF", "Content-Transfer-Encoding: base64\r\n")
        good = one_part("text/csv; name=b.csv", "year,total")
        mail = read_mail(multipart("mixed", bad, good))
        assert [part.document.text for part in mail.parts][1:] == ["year,total"]
        assert any("a.pdf" in warning.message for warning in mail.warnings)

    def test_attachments_keep_their_own_text_encoding(self) -> None:
        encoded = base64.encodebytes("jahr;größe".encode("cp1252")).decode()
        header = "Content-Transfer-Encoding: base64\r\n"
        mail = read_mail(multipart("mixed", one_part("text/csv; charset=iso-8859-1; name=b.csv", encoded, header)))
        assert mail.parts[1].document.text == "jahr;größe"

    def test_encrypted(self) -> None:
        mail = read_mail(
            multipart(
                "encrypted",
                one_part("application/pgp-encrypted", "Version: 1"),
                one_part("application/octet-stream; name=encrypted.asc", "-----BEGIN PGP MESSAGE-----"),
            )
        )
        assert Reason.UNSUPPORTED_MEDIA_TYPE in reasons(mail)
        assert "Subject: Budget" in mail.text


class TestBounds:
    def test_mails_within_mails(self) -> None:
        mail = "From: deepest@example.com\r\n\r\nDeepest\r\n"
        for depth in range(20):
            mail = f"From: a@example.com\r\nSubject: {depth}\r\nContent-Type: message/rfc822\r\n\r\n{mail}"
        document = read_mail(mail)
        assert len(document.parts) == LIMITS.max_depth + 1
        assert any("deep" in warning.message for warning in document.warnings)

    def test_parts_within_parts(self) -> None:
        body = "Content-Type: text/plain\r\n\r\nInnermost\r\n"
        for depth in range(500):
            body = f"Content-Type: multipart/mixed; boundary=b{depth}\r\n\r\n--b{depth}\r\n{body}\r\n--b{depth}--\r\n"
        document = read_mail(f"From: a@example.com\r\n{body}")
        assert "Innermost" in document.text
        assert document.warnings

    def test_too_many_parts(self) -> None:
        with pytest.raises(DocumentUnreadable):
            read_mail(multipart("mixed", *["--B\r\n\r\nx\r\n"] * 60), ReadingLimits(max_parts=50))
        with pytest.raises(DocumentUnreadable):
            read_mail(multipart("mixed", *[one_part("text/csv", "a,b")] * 60), ReadingLimits(max_parts=50))

    def test_a_large_attachment_is_no_text(self) -> None:
        encoded = base64.encodebytes(bytes(range(256)) * 30_000).decode()
        part = one_part("image/png; name=photo.png", encoded, "Content-Transfer-Encoding: base64\r\n")
        assert read_mail(multipart("mixed", one_part("text/plain", "Look"), part)).text == "Look"

    def test_too_much_text(self) -> None:
        with pytest.raises(DocumentTooLarge):
            read_mail("From: a@example.com\n\n" + "x" * 5000, ReadingLimits(max_text_bytes=4000))


class TestPasted:
    async def test_text_without_a_header(self, chunk: Chunk) -> None:
        text = "Thanks, that works.\r\n\r\nOn Tue, 4 Mar 2025, Kim wrote:\r\n> Try again\r\n"
        chunked = await chunk(text, strategy=Strategy.EMAIL)
        check_laws(chunked)
        assert chunked.document.text == text
        assert chunked.document.source_type is SourceType.EMAIL
        assert chunked.chunks[0].piece.metadata["section"] == "mixed"
        assert chunked.chunks[0].piece.context == ""

    async def test_text_with_a_header(self, chunk: Chunk) -> None:
        chunked = await chunk("From: Ana\nSent: Monday\nSubject: s\n\nHello\n", strategy=Strategy.EMAIL)
        assert chunked.chunks[0].text == "Hello"
        assert chunked.chunks[0].piece.context == "From: Ana\nDate: Monday\nSubject: s"

    @pytest.mark.parametrize(
        ("charset", "codec", "text"),
        [("iso-8859-8-i", "iso8859-8", "שלום"), ("iso-2022-jp", "iso2022_jp", "日本"), ("koi8-r", "koi8-r", "Привет")],
    )
    @pytest.mark.parametrize("sent", [{"filename": "mail.txt"}, {"media_type": "text/plain"}, {}])
    async def test_a_file_that_is_a_mail_says_its_charset(
        self, chunk: Chunk, charset: str, codec: str, text: str, sent: dict[str, str]
    ) -> None:
        """EML-04."""
        header = f"Received: by x\r\nSubject: t\r\nFrom: a@example.com\r\nContent-Type: text/plain; charset={charset}"
        written = f"{header}\r\n\r\n{text}\r\n".encode(codec)
        chunked = await chunk(written, strategy=Strategy.EMAIL, **sent)
        assert chunked.document.text == text
        assert chunked.document.title == "t"
        assert not chunked.warnings

    async def test_a_charset_that_only_the_sender_of_the_file_names(self, chunk: Chunk) -> None:
        written = "From: a@example.com\nSubject: s\n\nПривет\n".encode("koi8-r")
        chunked = await chunk(written, media_type="text/plain; charset=koi8-r", strategy=Strategy.EMAIL)
        assert (chunked.document.title, chunked.document.text) == ("s", "Привет")

    @pytest.mark.parametrize("content", ["From: a@x.org\nSubject: s\n\nHi", b"From: a@x.org\nSubject: s\n\nHi"])
    async def test_a_mail_is_known_by_its_header(self, chunk: Chunk, content: str | bytes) -> None:
        chunked = await chunk(content)
        assert (chunked.config.strategy, chunked.document.media_type) == (Strategy.EMAIL, "message/rfc822")

    @pytest.mark.parametrize("text", ["From: the moon\n\nwe came", "Subject: a poem\n\nOn trees", "To be: or not\n\nx"])
    async def test_what_is_no_mail(self, chunk: Chunk, text: str) -> None:
        assert (await chunk(text)).document.text == text


@pytest.mark.parametrize("name", MAILS)
@pytest.mark.parametrize("options", [{}, {"strategy": Strategy.EMAIL, "size": 40}, {"strategy": Strategy.SEMANTIC}])
async def test_real_mails(chunk: Chunk, name: str, options: dict[str, object]) -> None:
    for content in (MAILS[name], MAILS[name].replace(b"\n", b"\r\n")):
        chunked = await chunk(content, filename="mail.eml", **options)
        for part in chunked.document.parts:
            assert "=?" not in part.document.title
        check_parts(chunked)


def check_parts(chunked: ChunkedDocument) -> None:
    check_laws(chunked)
    for part in chunked.parts:
        layout = part.part.document.layout
        if layout is not None:
            sections = layout.sections
            assert sections[0].start == 0
            assert sections[-1].end == len(part.part.document.text)
            assert all(left.end == right.start for left, right in pairwise(sections))


TEXTS = st.text(st.characters(exclude_categories=("Cs", "Cc"), include_characters="\n\t"), max_size=200)
CHARSETS = st.sampled_from(["utf-8", "gb18030", "iso-8859-1", "koi8-r", "iso-2022-jp"])


@st.composite
def mails(draw: st.DrawFn, depth: int = 2) -> tuple[EmailMessage, list[str]]:
    """A mail and the texts that are in it."""
    message = EmailMessage()
    name = draw(st.text(st.characters(exclude_categories=("C", "Z"), codec="utf-8"), max_size=20))
    message["From"] = Address(name, "user", "example.com")
    message["Subject"] = " ".join(draw(TEXTS).split())
    charset = draw(CHARSETS)
    text = draw(TEXTS).encode(charset, "ignore").decode(charset)
    cte = draw(st.sampled_from(["base64", "quoted-printable"]))
    message.set_content("start " + text, charset=charset, cte=cte)
    texts = [text]
    for number in range(draw(st.integers(0, 2))):
        if depth and draw(st.booleans()):
            inner, inner_texts = draw(mails(depth - 1))
            message.add_attachment(inner)
            texts += inner_texts
        else:
            attached = draw(TEXTS)
            message.add_attachment("start " + attached, filename=f"ä{number}.txt", cte="base64")
            texts.append(attached)
    return message, texts


@given(mails())
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_random_mails_keep_all_their_text(made: tuple[EmailMessage, list[str]]) -> None:
    message, texts = made
    document = read_mail(message.as_bytes(policy=SMTP))
    for text in texts:
        for word in text.split():
            assert word in document.text
    assert document.title == " ".join(str(message["Subject"]).split())


@given(st.sampled_from(list(MAILS.values())), st.data())
@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
def test_broken_mails_raise_nothing_unexpected(mail: bytes, data: st.DataObject) -> None:
    content = bytearray(mail)
    for _ in range(data.draw(st.integers(0, 8))):
        place = data.draw(st.integers(0, len(content) - 1))
        kind = data.draw(st.sampled_from(["flip", "cut", "double", "random"]))
        if kind == "flip":
            content[place] ^= 1 << data.draw(st.integers(0, 7))
        elif kind == "cut":
            del content[place : place + 30]
        elif kind == "double":
            content[place:place] = content[max(0, place - 80) : place]
        else:
            content[place:place] = data.draw(st.binary(max_size=20))
        if not content:
            break
    for media_type in ("message/rfc822", "application/mbox", ""):
        try:
            document = read(SourceDocument(content=bytes(content), media_type=media_type), limits=LIMITS)
        except KbmeshError:
            continue
        document.text.encode()


async def test_a_mail_that_is_only_a_header_keeps_all_of_it(chunk: Chunk) -> None:
    subject = "words of a subject that does not end " * 100
    chunked = await chunk(f"From: a@example.com\r\nSubject: {subject}\r\n\r\n".encode(), filename="long.eml")
    check_laws(chunked)
    assert subject.strip() in chunked.document.text
