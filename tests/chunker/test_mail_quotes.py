"""Quotes and signatures are marked where they are certain, and never the author's own words."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kbmesh_chunker.documents.mail_quotes import find_sections
from kbmesh_chunker.documents.source import MailSectionKind


def marked(text: str) -> list[tuple[str, str]]:
    """Kind and text of each section; they cover the text."""
    sections = find_sections(text)
    assert "".join(text[section.start : section.end] for section in sections) == text
    return [(section.kind.value, text[section.start : section.end].strip("\r\n")) for section in sections]


def test_a_reply_that_begins_with_on() -> None:
    """EML-10."""
    reply = "On the jump host please run:\r\n\r\n    nc -zv 10.0.0.5 22\r\n\r\nThat should connect."
    quote = "On Tue, 4 Mar 2025, Kim wrote:\r\n\r\n> ssh is failing for me"
    assert marked(f"{reply}\r\n\r\n{quote}\r\n") == [("body", reply), ("quote", quote)]


@pytest.mark.parametrize(
    "attribution",
    [
        "On Tue, 4 Mar 2025 at 10:00, Kim Lee <kim@example.com> wrote:",
        "On Tue, 4 Mar 2025 at 10:00, Kim Lee\n<kim.with.a.long.name@example.com> wrote:",
        "On 4 Mar 2025,\nat 10:00, Kim Lee\n<kim@example.com> wrote:",
        "Kim Lee <kim@example.com> writes:",
        "Kim Lee wrote:",
        "Kim Lee wrote on 04.03.25 10:00:",
        "Kim Lee wrote on Tue, 4 Mar 2025 10:00:59 +0100:",
        "Kim Lee schrieb am 04.03.2025 um 10:00 Uhr:",
        "Kim Lee a écrit le 04/03/2025 à 10:00 :",
        "На 04.03.2025 г. Kim Lee написа:",
        "На 04.03.2025 г. в 10:00 ч., Kim Lee <kim@example.com> написа:",
        "Дана 04.03.2025. у 10:00, Kim Lee је написао/ла:",
        "4 марта 2025 г. 10:00 пользователь Kim Lee написал(а):",
        "Kim Lee (<kim@example.com>) kirjutas 4. märts 2025 10:00:",
        "*On Tue, 4 Mar 2025, Kim wrote:*",
        "Am 04.03.2025 um 10:00 schrieb Kim Lee:",
        "Am Di., 4. März 2025 um 10:00 Uhr schrieb Kim Lee <kim@example.com>:",
        "Le mar. 4 mars 2025 à 10:00, Kim Lee <kim@example.com> a écrit :",
        "Le mar. 4 mars 2025 à 10:00, Kim Lee <kim@example.com> a\u00a0écrit\u00a0:",
        "El mar, 4 mar 2025 a las 10:00, Kim Lee (<kim@example.com>) escribió:",
        "Il giorno mar 4 mar 2025 alle ore 10:00 Kim Lee <kim@example.com> ha scritto:",
        "Em ter., 4 de mar. de 2025 às 10:00, Kim Lee <kim@example.com> escreveu:",
        "Op di 4 mrt 2025 om 10:00 schreef Kim Lee <kim@example.com>:",
        "Den tis 4 mars 2025 kl 10:00 skrev Kim Lee <kim@example.com>:",
        "W dniu 04.03.2025 o 10:00, Kim Lee pisze:",
        "wt., 4 mar 2025 o 10:00 Kim Lee <kim@example.com> napisał(a):",
        "út 4. 3. 2025 v 10:00 odesílatel Kim Lee <kim@example.com> napsal:",
        "вт, 4 мар. 2025 г. в 10:00, Kim Lee <kim@example.com>:",
        "4 марта 2025 г. Ким Ли написал:",
        "在 2025年3月4日，Kim Lee <kim@example.com> 写道：",
        "Kim Lee <kim@example.com> 于2025年3月4日周二 10:00写道：",
        "2025年3月4日(火) 10:00 Kim Lee <kim@example.com>:",
        "2025年3月4日 10:00、Kim Leeさんのメール:",
        "2025년 3월 4일 (화) 오전 10:00, Kim Lee <kim@example.com>님이 작성:",
        "4 Mar 2025 Sal, 10:00 tarihinde Kim Lee <kim@example.com> şunu yazdı:",
        "Quoting Kim Lee <kim@example.com>:",
    ],
)
@pytest.mark.parametrize("gap", ["\n", "\n\n"])
def test_attributions(attribution: str, gap: str) -> None:
    quote = f"{attribution}{gap}> Shall we?\n>\n>> Earlier still"
    assert marked(f"Yes, let's.\n\n{quote}\n") == [("body", "Yes, let's."), ("quote", quote)]


@pytest.mark.parametrize(
    "reply",
    [
        "On the jump host please run:",
        "On Monday we ship:",
        "The plan for 4 March 2025 is this:",
        "From: Monday to Friday\nTo: all of you",
        "I wrote to Kim on 4 March 2025. Answer below",
        "See https://example.com/2025/03:",
        "Subject: to change",
        "-- not a signature",
        "---\nA rule, and more words",
        "This message is important to me.",
        "Sent from my iPhone this would be hard to read, so I use a laptop.",
        "Forwarded message handling is broken:",
        "Date: 4 March\nFrom: Rome\nTo: Paris",
    ],
)
def test_words_of_the_author(reply: str) -> None:
    assert marked(f"{reply}\n\nAnd so on.\n") == [("body", f"{reply}\n\nAnd so on.")]
    sections = marked(f"{reply}\n\n> A quoted line\n")
    assert sections == [("body", reply), ("quote", "> A quoted line")]


def test_answers_between_quotes() -> None:
    text = "Kim wrote:\n> Is it done?\n\nYes.\n\n> And tested?\n> All of it?\nAlso yes.\n\n> Thanks\n"
    assert marked(text) == [
        ("quote", "Kim wrote:\n> Is it done?"),
        ("body", "Yes."),
        ("quote", "> And tested?\n> All of it?"),
        ("body", "Also yes."),
        ("quote", "> Thanks"),
    ]


def test_what_looks_like_a_quote() -> None:
    session = "Try this:\n\n>>> import kbmesh\n>>> kbmesh.version\n\nIt works."
    assert marked(session) == [("body", session)]
    escaped = "He said:\n>From now on\nand left"
    assert marked(escaped) == [("body", escaped)]


@pytest.mark.parametrize(
    "quote",
    [
        "-----Original Message-----\nFrom: Kim\nSent: Monday\nTo: Ana\nSubject: ssh\n\nIt fails.\n\nKim",
        "----- Original Message ----- \nFrom: Kim\nSubject: ssh\n\nIt fails.",
        "-----Ursprüngliche Nachricht-----\nVon: Kim\nGesendet: Montag\nAn: Ana\nBetreff: ssh\n\nEs geht nicht.",
        "________________________________\nFrom: Kim <kim@example.com>\nSent: Monday\nTo: A; Bob\nSubject: ssh\n\nNo",
        "From: Kim <kim@example.com>\nDate: Monday, 3 March 2025\nTo: A <a@example.com>,\n B\nCc: C\nSubject: s\n\nX",
        "*From:* Kim\n*Sent:* Monday\n*To:* Ana\n*Subject:* ssh\n\nFails",
        "**From:** Kim\n**Sent:** Monday\n**To:** Ana\n**Subject:** ssh\n\nFails",
        "De : Kim <kim@example.com>\nEnvoyé : lundi 3 mars 2025\nÀ : Ana\nObjet : ssh\n\nÇa échoue",
        "De: Kim\nEnviado el: lunes\nPara: Ana\nAsunto: ssh\n\nFalla",
        "Da: Kim\nInviato: lunedì\nA: Ana\nOggetto: ssh\n\nNon va",
        "Van: Kim\nVerzonden: maandag\nAan: Ana\nOnderwerp: ssh\n\nWerkt niet",
        "Od: Kim\nWysłano: poniedziałek\nDo: Ana\nTemat: ssh\n\nNie działa",
        "От: Kim\nОтправлено: понедельник\nКому: Ana\nТема: ssh\n\nНе работает",
        "发件人: Kim\n发送时间: 2025年3月4日\n收件人: Ana\n主题: ssh\n\n失败",
        "差出人: Kim\n送信日時: 2025年3月4日\n宛先: Ana\n件名: ssh\n\n失敗",
        "Begin forwarded message:\n\nFrom: Kim\nSubject: ssh\nDate: 3 March 2025\nTo: Ana\n\nIt fails",
        "---------- Forwarded message ---------\nFrom: Kim <kim@example.com>\nDate: Mon\nSubject: s\nTo: A\n\nFails",
        "---------- Weitergeleitete Nachricht ----------\nVon: Kim\n\nText",
    ],
)
def test_quoted_mails(quote: str) -> None:
    assert marked(f"See below.\n\n{quote}\n") == [("body", "See below."), ("quote", quote)]


@pytest.mark.parametrize(
    "signature",
    [
        "-- \nKim Lee\nExample Inc.",
        "--\nKim Lee",
        "Sent from my iPhone",
        "Von meinem iPhone gesendet",
        "Envoyé de mon iPhone",
        "Enviado desde mi iPhone",
        "Inviato da iPhone",
        "iPhoneから送信",
        "发自我的iPhone",
        "Get Outlook for iOS<https://aka.ms/o0ukef>",
        "This e-mail and any attachments are confidential and intended only for the addressee.",
        "CONFIDENTIALITY NOTICE: do not read this.",
        "_______________________________________________\nOps mailing list\nOps@lists.example.com",
        "-- \nKim\n_______________________________________________\nOps mailing list\nOps@lists.example.com",
        "Sent from my iPhone\n\nThis message is confidential; if you are not the addressee, delete it.",
    ],
)
@pytest.mark.parametrize("quote", ["", "On Tue, 4 Mar 2025, Kim wrote:\n> Hm"])
def test_signatures(signature: str, quote: str) -> None:
    text = f"It works.\n\n{signature}\n\n{quote}\n"
    assert marked(text) == [("body", "It works."), ("signature", signature)] + ([("quote", quote)] if quote else [])


def test_two_hyphens_within_a_long_text_are_no_signature() -> None:
    text = "Part one\n--\n" + "\n".join(f"Line {number} of part two" for number in range(40))
    assert marked(text) == [("body", text)]


def test_quotes_keep_their_own_signatures() -> None:
    assert marked("Yes\n\n> No\n> -- \n> Kim") == [("body", "Yes"), ("quote", "> No\n> -- \n> Kim")]


LINES = st.sampled_from(
    ["", "> q", ">", "word:", "On 4 Mar Kim wrote:", "-- ", "--", "From: a", "Subject: b", "Sent: c",
     "Sent from my iPhone", "-----Original Message-----", "_" * 40, "a mailing list", "\u2028", "😀"]
)  # fmt: skip


@given(st.lists(LINES, max_size=30), st.sampled_from(["\n", "\r\n", "\r"]))
@settings(max_examples=300, deadline=None)
def test_sections_cover_every_text(lines: list[str], end: str) -> None:
    text = end.join(lines)
    sections = find_sections(text)
    assert "".join(text[section.start : section.end] for section in sections) == text
    assert all(left.kind is not right.kind for left, right in pairwise(sections))
    for section in sections:
        quoted = text[section.start : section.end].startswith(">") and "wrote" not in text
        assert not (quoted and section.kind is MailSectionKind.SIGNATURE)
