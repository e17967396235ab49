"""Files as people have them: in old charsets, with the wrong name, or not text at all."""

import codecs

import pytest
from kbmesh_chunker.documents.reader import read
from kbmesh_chunker.documents.reading import ReadingLimits
from kbmesh_chunker.documents.source import ExtractedDocument, SourceDocument, SourceType
from kbmesh_rpc.errors import (
    DocumentEmpty,
    DocumentTooLarge,
    DocumentUnreadable,
    KbmeshError,
    Reason,
    UnsupportedMediaType,
)

PROSE = "Zürich – Geneva: 5 € and “quotes”. " * 5


def reading(content: str | bytes, *, media_type: str = "", filename: str = "") -> ExtractedDocument:
    source = SourceDocument(content=content, media_type=media_type, filename=filename)
    return read(source, limits=ReadingLimits(max_document_bytes=100_000))


@pytest.mark.parametrize(
    ("data", "media_type"),
    [
        (PROSE.encode("utf-8"), ""),
        (codecs.BOM_UTF8 + PROSE.encode("utf-8"), ""),
        (codecs.BOM_UTF16_LE + PROSE.encode("utf-16-le"), ""),
        (codecs.BOM_UTF16_BE + PROSE.encode("utf-16-be"), "text/plain"),
        (PROSE.encode("utf-16-le"), "text/plain; charset=UTF-16LE"),
        (PROSE.encode("cp1252"), 'text/plain; charset="windows-1252"'),
        (PROSE.encode("cp1252"), "Text/Plain;Charset=cp1252"),
        ("Базы данных".encode("koi8-r"), "text/plain; charset=koi8-r"),
        ("データベース".encode("shift_jis"), "text/plain; charset=Shift_JIS"),
        ("数据库".encode("gb18030"), "text/plain; charset=GB18030"),
    ],
)
def test_what_is_declared_or_marked_is_decoded_without_a_warning(data: bytes, media_type: str) -> None:
    document = reading(data, media_type=media_type)
    assert document.text in {PROSE, "Базы данных", "データベース", "数据库"}
    assert document.media_type == "text/plain"
    assert document.warnings == ()


def test_an_undeclared_western_charset_is_read_with_a_warning() -> None:
    document = reading(PROSE.encode("cp1252"))
    assert document.text == PROSE
    assert [warning.metadata for warning in document.warnings] == [{"encoding": "windows-1252"}]


RUSSIAN = (
    "Система управления базами данных хранит документы и отвечает на запросы пользователей. Перед обновлением "
    "необходимо сделать резервную копию, иначе восстановление будет невозможно.\r\n"
)
JAPANESE = "データベースの移行を始める前に、必ずバックアップを取ってください。そうしないと復元できません。\n"
CHINESE = "数据库迁移之前必须先做备份，然后再执行脚本，否则数据将无法恢复。系统管理员会收到电子邮件的通知。\n"
TAIWANESE = "資料庫管理系統儲存文件並回答使用者的查詢。更新之前必須先進行備份，否則資料將無法復原。\n"
KOREAN = "데이터베이스를 옮기기 전에 반드시 백업을 해야 합니다. 그렇지 않으면 복구할 수 없습니다.\n"
POLISH = "Zażółć gęślą jaźń. Przed aktualizacją należy wykonać kopię zapasową; użytkownik otrzyma wiadomość.\n"
FRENCH = "Avant la mise à jour, il est nécessaire de créer une sauvegarde. Ça va, garçon ? L’été, où êtes-vous ?\n"
GREEK = "Πριν από την ενημέρωση πρέπει να δημιουργήσετε αντίγραφο ασφαλείας των δεδομένων σας.\n"
HEBREW = "לפני העדכון יש ליצור גיבוי, אחרת לא ניתן יהיה לשחזר את הנתונים של המשתמשים במערכת.\n"


@pytest.mark.parametrize(
    ("text", "charset"),
    [
        (RUSSIAN, "cp1251"), (RUSSIAN, "koi8-r"), (RUSSIAN, "cp866"), (RUSSIAN, "utf-16-le"), (RUSSIAN, "utf-16-be"),
        (JAPANESE, "shift_jis"), (JAPANESE, "euc_jp"), (JAPANESE, "iso2022_jp"), (JAPANESE, "utf-16-le"),
        (CHINESE, "gbk"), (CHINESE, "gb18030"), (CHINESE, "utf-16-be"), (TAIWANESE, "big5"), (KOREAN, "euc_kr"),
        (POLISH, "cp1250"), (POLISH, "iso8859-2"), (FRENCH, "cp1252"), (GREEK, "cp1253"), (HEBREW, "cp1255"),
    ],
)  # fmt: skip
def test_a_charset_that_nobody_names_is_found_and_reported(text: str, charset: str) -> None:
    text = text * 3
    document = reading(text.encode(charset))
    assert document.text == text
    assert [warning.reason for warning in document.warnings] == [Reason.DOCUMENT_UNREADABLE]


def test_a_long_text_is_judged_by_the_lines_that_tell() -> None:
    text = "plain ASCII\n" * 4_000 + RUSSIAN * 2
    assert reading(text.encode("cp1251")).text == text


def test_a_table_names_its_columns_for_every_row() -> None:
    rows = "name,sales\n" + "".join(f"item {number},{number * 7}\n" for number in range(9))
    assert reading(rows, filename="sales.csv").main.context == ("name,sales",)
    assert reading(rows.replace(",", "\t"), filename="sales.tsv").main.context == ("name\tsales",)
    assert reading(rows, filename="sales.csv").text == rows
    for headless in ("item,7\nitem,8\n", "one line\nno cells\n", "a,a\n1,2\n", ",\n"):
        assert reading(headless, filename="sales.csv").main.context == ()


def test_one_foreign_byte_does_not_spoil_the_rest_of_a_utf8_file() -> None:
    document = reading(PROSE.encode() + b"caf\xe9")
    assert document.text == PROSE + "café"
    assert [warning.reason for warning in document.warnings] == [Reason.DOCUMENT_UNREADABLE]


def test_an_unknown_charset_is_guessed_with_a_warning() -> None:
    for charset in ("klingon", "punycode", "unicode_escape", "hex", "x" * 1000):
        document = reading(PROSE.encode(), media_type=f"text/plain; charset={charset}")
        assert document.text == PROSE
        assert len(document.warnings) == 1


def test_line_ends_stay_as_they_are() -> None:
    assert reading(b"one\r\ntwo\rthree\n").text == "one\r\ntwo\rthree\n"


@pytest.mark.parametrize(
    ("content", "media_type", "filename", "error"),
    [
        (b"", "", "", DocumentEmpty),
        (" \r\n\t\u200b\ufeff", "", "", DocumentEmpty),
        (codecs.BOM_UTF8, "", "", DocumentEmpty),
        (b"%PDF-1.7 ...", "", "", DocumentUnreadable),
        (b"%PDF-1.7 ...", "text/plain", "notes.txt", DocumentUnreadable),
        (b"text", "application/pdf", "", DocumentUnreadable),
        (b"text", "image/png", "", UnsupportedMediaType),
        (b"text", "", "paper.docx", DocumentUnreadable),
        ("text", "", "paper.docx", UnsupportedMediaType),
        (b"text", "", "paper.doc", UnsupportedMediaType),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1....", "", "paper.docx", UnsupportedMediaType),
        (b"PK\x03\x04....word/document.xml", "", "", DocumentUnreadable),
        (b"PK\x03\x04....xl/workbook.xml", "", "", UnsupportedMediaType),
        (b"PK\x03\x04....ppt/slides", "", "", UnsupportedMediaType),
        (b"PK\x03\x04....mimetypeapplication/vnd.oasis.opendocument.text", "", "", UnsupportedMediaType),
        (b"\x89PNG\r\n\x1a\n", "", "", UnsupportedMediaType),
        (b"{\\rtf1 text}", "", "", UnsupportedMediaType),
        (b"some\x00bytes", "", "", DocumentUnreadable),
        ("some\x00text", "", "", DocumentUnreadable),
        (bytes(range(1, 256)) * 4, "", "", DocumentUnreadable),
        (b"caf\xe9", "text/plain; charset=utf-8", "", DocumentUnreadable),
        (b"odd", "text/plain; charset=utf-16le", "", DocumentUnreadable),
        (b"x" * 100_001, "", "", DocumentTooLarge),
        ("x" * 100_001, "", "", DocumentTooLarge),
        ("€" * 33_334, "", "", DocumentTooLarge),
    ],
)
def test_what_cannot_be_read_is_refused_for_its_reason(
    content: str | bytes, media_type: str, filename: str, error: type[KbmeshError]
) -> None:
    with pytest.raises(error):
        reading(content, media_type=media_type, filename=filename)


def test_a_document_at_the_limit_is_read() -> None:
    assert len(reading("€" * 33_333).text) == 33_333


SLACK = '[{"type": "message", "user": "U1", "text": "hello", "ts": "1454803200.000002"}]'


@pytest.mark.parametrize(
    ("content", "media_type", "filename", "found", "source_type"),
    [
        ("hello", "", "", "text/plain", SourceType.GENERIC),
        ("hello", "", "notes.TXT", "text/plain", SourceType.FILE),
        ("hello", "", "C:\\docs\\readme.md", "text/markdown", SourceType.FILE),
        ("hello", "text/x-markdown", "readme.md", "text/markdown", SourceType.FILE),
        ("# One\n\ntext\n\n## Two\n", "", "", "text/markdown", SourceType.GENERIC),
        ("# One\n\n- an item\n", "application/octet-stream", "", "text/markdown", SourceType.GENERIC),
        (
            "# Refunds\r\n\r\nA product may be returned within thirty days.\r\n",
            "",
            "",
            "text/markdown",
            SourceType.GENERIC,
        ),
        (
            "# 退款政策\n\n客户可以在三十天内退货，并且会得到全额退款，具体请参阅帮助页面。\n",
            "",
            "",
            "text/markdown",
            SourceType.GENERIC,
        ),
        ("# How the server works, and why.\n\nport = 80\n", "", "", "text/plain", SourceType.GENERIC),
        ("# Of the web.\n\nname: one that does it all, for all of us.\n", "", "", "text/plain", SourceType.GENERIC),
        (
            "# Set it up.\n\nset -e\nfor x in a b c d e f; do\n echo $x;\ndone\n",
            "",
            "",
            "text/plain",
            SourceType.GENERIC,
        ),
        ("# a comment\nset -e\n", "", "run.sh", "text/x-shellscript", SourceType.CODE),
        ("import os\n", "", "main.py", "text/x-python", SourceType.CODE),
        ("From: a@b.c\nTo: d@e.f\nSubject: hi\n\nhello", "", "", "message/rfc822", SourceType.EMAIL),
        ("hello", "", "mail.eml", "message/rfc822", SourceType.EMAIL),
        (SLACK, "", "2016-02-07.json", "application/json", SourceType.SLACK),
        (SLACK, "", "", "application/json", SourceType.SLACK),
        ('{"a": 1}', "", "", "application/json", SourceType.GENERIC),
        ("<!doctype html><p>hello", "", "", "text/html", SourceType.WEB_PAGE),
        ("hello", "", "page.html", "text/html", SourceType.WEB_PAGE),
        ("hello", "application/vnd.api+json", "", "application/vnd.api+json", SourceType.GENERIC),
    ],
)
def test_the_kind_of_a_document_is_found(
    content: str, media_type: str, filename: str, found: str, source_type: SourceType
) -> None:
    for form in (content, content.encode()):
        document = reading(form, media_type=media_type, filename=filename)
        assert (document.media_type, document.source_type) == (found, source_type)


def test_what_the_caller_says_of_the_source_stands() -> None:
    source = SourceDocument(content="hello", filename="main.py", source_type=SourceType.TICKET)
    assert read(source, limits=ReadingLimits(max_document_bytes=100)).source_type is SourceType.TICKET


@pytest.mark.parametrize("cut", [b"\xe2", b"\xe2\x80", b"\xf0\x9f\x98", b"\xc3"])
def test_a_short_utf8_file_that_was_cut_within_a_character_is_utf8(cut: bytes) -> None:
    document = reading("plain words… ok – fine. ".encode() + cut)
    assert document.text == "plain words… ok – fine. \ufffd"
    assert [warning.metadata for warning in document.warnings] == [{"encoding": "utf-8"}]


def test_a_foreign_byte_or_two_are_no_foreign_script() -> None:
    document = reading(b"ok text \xff\xfe end")
    assert document.text == "ok text ÿþ end"
    assert [warning.metadata for warning in document.warnings] == [{"encoding": "windows-1252"}]


def test_a_page_that_is_not_what_it_says_is_warned_of_once() -> None:
    page = b"<html><meta charset=utf-8><p>caf\xe9 \xe0 la maison</p></html>"
    first, second = reading(page, media_type="text/html; charset=utf-8").warnings
    assert "utf-8" in first.message
    assert "names no charset" not in second.message


@pytest.mark.parametrize("filename", ["", "a.csv", "a.md", "a.py", "a.html", "a.json"])
def test_a_mark_at_the_head_of_a_text_is_no_part_of_it(filename: str) -> None:
    content = '["name", "zone"]' if filename == "a.json" else "name,zone"
    assert reading("\ufeff" + content, filename=filename).text == content
    with pytest.raises(DocumentEmpty):
        reading("\ufeff", filename=filename)


@pytest.mark.parametrize(
    "text",
    [
        "A slide\x0bof two lines\x0b" * 20,
        "A page\x0c\n" * 20,
        "N\x08NA\x08AM\x08ME\x08E\n" * 20,
        "one\x1ftwo\x1ethree\x1dfour\x1cfive\n" * 20,
        "8=FIX.4.4\x0135=8\x01" * 20,
        "\x1b[31mred\x1b[0m typ\x7fped\n" * 20,
    ],
)
def test_control_characters_that_people_have_in_texts_are_text(text: str) -> None:
    assert reading(text).text == text
    assert reading(text.encode()).text == text


@pytest.mark.parametrize("count", [300, 3_000])
def test_bytes_of_no_meaning_are_no_text(count: int) -> None:
    noise = bytes(1 + (number * number * 31 + number * 7 + (number >> 3) * 101) % 255 for number in range(count))
    with pytest.raises(DocumentUnreadable):
        reading(noise)
    with pytest.raises(DocumentUnreadable):
        reading(b"text \x00 with a hole")


@pytest.mark.parametrize("media_type", ["", "text/markdown", "text/html", "message/rfc822", "text/csv"])
def test_half_of_a_surrogate_pair_is_no_text(media_type: str) -> None:
    with pytest.raises(DocumentUnreadable):
        reading("half a face \ud83d here", media_type=media_type)


@pytest.mark.parametrize(
    "content", ["<!DOCTYPE html><html><p>Hi <b>there</b></html>", b"<html><p>Hi <b>there</b></html>"]
)
def test_a_type_that_nobody_knows_does_not_hide_what_a_page_is(content: str | bytes) -> None:
    document = reading(content, media_type="nonsense/foo; charset=utf-8")
    assert (document.text, document.media_type) == ("Hi there", "text/html")
    assert reading("# One\n\n# Two\n", media_type="nonsense/foo", filename="a.md").media_type == "text/markdown"
    assert reading("<html>", media_type="text/plain").text == "<html>"
    assert reading("BEGIN:VCARD\n", media_type="text/vcard").media_type == "text/vcard"


@pytest.mark.parametrize("filename", ["a.pdf", "a.docx", "a.html", "a.txt", ""])
def test_a_file_of_no_bytes_is_empty(filename: str) -> None:
    with pytest.raises(DocumentEmpty):
        reading(b"", filename=filename)


def test_a_picture_that_is_called_a_pdf_is_said_to_be_both() -> None:
    with pytest.raises(UnsupportedMediaType) as raised:
        reading(b"\x89PNG\r\n\x1a\n....", filename="a.pdf")
    assert raised.value.metadata == {"media_type": "image/png"}
    assert "application/pdf" in raised.value.message
