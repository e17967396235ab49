"""Word files: as Word and others write them, edited by several people, damaged, or made to do harm."""

import contextlib
import io
import zipfile

import pytest
from docx import Document
from docx.document import Document as WordDocument
from kbmesh_chunker.documents.reader import read
from kbmesh_chunker.documents.reading import ReadingLimits
from kbmesh_chunker.documents.source import ExtractedDocument, Grammar, SourceDocument
from kbmesh_rpc.errors import (
    DocumentEmpty,
    DocumentTooLarge,
    DocumentUnreadable,
    KbmeshError,
    UnsupportedMediaType,
)

W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
RELATIONSHIPS = "http://schemas.openxmlformats.org/package/2006/relationships"
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"


def reading(data: bytes, **limits: float) -> ExtractedDocument:
    return read(SourceDocument(content=data, filename="report.docx"), limits=ReadingLimits(**limits))


def saved(document: WordDocument) -> bytes:
    data = io.BytesIO()
    document.save(data)
    return data.getvalue()


def handmade(body: str, parts: dict[str, str] | None = None, *, namespace: str = W) -> bytes:
    """A file of few parts. `parts` are those that the document refers to, by name; the id of each is its name."""
    parts = parts or {}
    kinds = {name: name.partition(".")[0].rstrip("0123456789") for name in parts}
    references = "".join(f'<Relationship Id="{n}" Type="{OFFICE}/{k}" Target="{n}"/>' for n, k in kinds.items())
    files = {
        "[Content_Types].xml": "<Types/>",
        "_rels/.rels": f'<Relationships xmlns="{RELATIONSHIPS}"><Relationship Id="a" Type="{OFFICE}/officeDocument" '
        'Target="word/document.xml"/></Relationships>',
        "word/document.xml": f'<w:document xmlns:w="{namespace}" xmlns:r="{OFFICE}"><w:body>{body}</w:body>'
        "</w:document>",
        "word/_rels/document.xml.rels": f'<Relationships xmlns="{RELATIONSHIPS}">{references}</Relationships>',
        **{f"word/{name}": content for name, content in parts.items()},
    }
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return data.getvalue()


def paragraph(*runs: str, properties: str = "") -> str:
    return f"<w:p><w:pPr>{properties}</w:pPr>{''.join(runs)}</w:p>"


def run(text: str, properties: str = "") -> str:
    return f'<w:r><w:rPr>{properties}</w:rPr><w:t xml:space="preserve">{text}</w:t></w:r>'


def test_a_report_keeps_its_structure() -> None:
    word = Document()
    word.core_properties.title = "Yearly report"
    word.core_properties.author = "Ana Lee"
    word.add_heading("Backups", 1)
    text = word.add_paragraph("Run every ")
    text.add_run("n").bold = True
    text.add_run("ight.\nAlways.")
    for item in ("one", "two"):
        word.add_paragraph(item, style="List Bullet")
    word.add_paragraph("inner", style="List Bullet 2")
    for item in ("first", "second"):
        word.add_paragraph(item, style="List Number")
    word.add_heading("Sizes", 2)
    table = word.add_table(rows=3, cols=3)
    for row in range(3):
        for column in range(3):
            table.cell(row, column).text = f"r{row}|c{column}"
    word.add_paragraph("# no heading")
    word.add_paragraph("said", style="Quote")
    document = reading(saved(word))
    assert document.text == (
        "# Backups\n\nRun every night.\nAlways.\n\n- one\n- two\n  - inner\n\n1. first\n2. second\n\n## Sizes\n\n"
        "| r0\\|c0 | r0\\|c1 | r0\\|c2 |\n| --- | --- | --- |\n| r1\\|c0 | r1\\|c1 | r1\\|c2 |\n"
        "| r2\\|c0 | r2\\|c1 | r2\\|c2 |\n\n\\# no heading\n\n> said"
    )
    assert (document.title, document.main.grammar) == ("Yearly report", Grammar.MARKDOWN)
    assert document.metadata["author"] == "Ana Lee"
    assert document.warnings == ()


def test_merged_cells_stay_in_their_columns() -> None:
    word = Document()
    table = word.add_table(rows=3, cols=3)
    for column, name in enumerate("ABC"):
        table.cell(0, column).text = name
    table.cell(1, 0).merge(table.cell(2, 0)).text = "both"
    table.cell(1, 1).merge(table.cell(1, 2)).text = "wide"
    table.cell(2, 1).text = "x"
    table.cell(2, 2).text = "y"
    assert reading(saved(word)).text == ("| A | B | C |\n| --- | --- | --- |\n| both | wide |\n| both | x | y |")


def test_insertions_are_text_and_deletions_are_not() -> None:
    body = paragraph(
        run("kept "),
        f"<w:ins>{run('added')}</w:ins>",
        "<w:del><w:r><w:delText>struck out</w:delText></w:r></w:del>",
        f"<w:moveFrom>{run('moved')}</w:moveFrom>",
        run("secret", "<w:vanish/>"),
        run(" end", '<w:vanish w:val="0"/>'),
    )
    document = reading(handmade(body))
    assert document.text == "kept added end"
    (warning,) = document.warnings
    assert set(warning.metadata["left_out"].split(", ")) == {"deleted text", "hidden text"}


def test_notes_and_comments_follow_the_paragraph_that_refers_to_them() -> None:
    note = f'<w:footnotes xmlns:w="{W}"><w:footnote w:id="2">{paragraph(run("the note"))}</w:footnote></w:footnotes>'
    asked = f'<w:comment w:id="0" w:author="Ana">{paragraph(run("why?"))}</w:comment>'
    comment = f'<w:comments xmlns:w="{W}">{asked}</w:comments>'
    body = paragraph(
        run("text"), '<w:r><w:footnoteReference w:id="2"/><w:commentReference w:id="0"/></w:r>', run(" goes on")
    ) + paragraph(run("next"))
    document = reading(handmade(body, {"footnotes.xml": note, "comments.xml": comment}))
    assert document.text == "text[^2][^c0] goes on\n\n[^2] the note\n\n[^c0] Ana: why?\n\nnext"


def test_text_boxes_are_read_once() -> None:
    box = f"<w:txbxContent>{paragraph(run('in the box'))}</w:txbxContent>"
    alternate = (
        '<mc:AlternateContent xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006">'
        f"<mc:Choice><w:drawing>{box}</w:drawing></mc:Choice><mc:Fallback><w:pict>{box}</w:pict></mc:Fallback>"
        "</mc:AlternateContent>"
    )
    body = paragraph(run("before "), f"<w:r>{alternate}</w:r>", run("after")) + paragraph(run("next"))
    assert reading(handmade(body)).text == "before after\n\nin the box\n\nnext"


def test_links_and_fields() -> None:
    body = paragraph(
        '<w:hyperlink w:anchor="here">', run("inner"), "</w:hyperlink>",
        run(" "),
        '<w:r><w:fldChar w:fldCharType="begin"/><w:instrText> HYPERLINK "https://x.org/" </w:instrText>'
        '<w:fldChar w:fldCharType="separate"/></w:r>',
        run("outer"),
        '<w:r><w:fldChar w:fldCharType="end"/></w:r>',
        f'<w:fldSimple w:instr=" PAGE ">{run(" 7")}</w:fldSimple>',
    )  # fmt: skip
    assert reading(handmade(body)).text == "inner [outer](https://x.org/) 7"


def test_numbers_of_headings_and_clauses_are_part_of_the_text() -> None:
    levels = "".join(
        f'<w:lvl w:ilvl="{level}"><w:start w:val="1"/><w:numFmt w:val="{kind}"/><w:lvlText w:val="{text}"/></w:lvl>'
        for level, (kind, text) in enumerate([("decimal", "%1."), ("decimal", "%1.%2"), ("lowerLetter", "(%3)")])
    )
    numbering = (
        f'<w:numbering xmlns:w="{W}"><w:abstractNum w:abstractNumId="0">{levels}</w:abstractNum>'
        '<w:num w:numId="1"><w:abstractNumId w:val="0"/></w:num></w:numbering>'
    )

    def numbered(level: int, extra: str = "") -> str:
        return f'{extra}<w:numPr><w:ilvl w:val="{level}"/><w:numId w:val="1"/></w:numPr>'

    body = (
        paragraph(run("Scope"), properties=numbered(0, '<w:pStyle w:val="Heading1"/>'))
        + paragraph(run("Parties"), properties=numbered(1, '<w:pStyle w:val="Heading2"/>'))
        + paragraph(run("the buyer"), properties=numbered(2))
        + paragraph(run("the seller"), properties=numbered(2))
        + paragraph(run("Terms"), properties=numbered(1, '<w:pStyle w:val="Heading2"/>'))
    )
    assert reading(handmade(body, {"numbering.xml": numbering})).text == (
        "# 1. Scope\n\n## 1.1 Parties\n\n- (a) the buyer\n- (b) the seller\n\n## 1.2 Terms"
    )


def test_pages_are_known_where_word_has_stored_them() -> None:
    body = paragraph(run("one")) + paragraph("<w:r><w:lastRenderedPageBreak/></w:r>", run("two"))
    document = reading(handmade(body))
    assert document.main.pages is not None
    assert document.main.pages.within(0, 3) == (1,)
    assert document.main.pages.within(document.text.index("two"), len(document.text)) == (2,)
    assert reading(handmade(paragraph(run("one")))).main.pages is None


def test_headers_and_footers_are_told_apart_from_the_text() -> None:
    word = Document()
    word.add_paragraph("text")
    word.sections[0].header.paragraphs[0].text = "CONFIDENTIAL"
    document = reading(saved(word))
    assert document.text == "text"
    assert document.metadata["header"] == "CONFIDENTIAL"
    assert [warning.metadata["left_out"] for warning in document.warnings] == ["page header"]


def test_the_strict_format_is_read_too() -> None:
    body = paragraph(run("Title"), properties='<w:pStyle w:val="Heading1"/>') + paragraph(run("text"))
    strict = "http://purl.oclc.org/ooxml/wordprocessingml/main"
    assert reading(handmade(body, namespace=strict)).text == "# Title\n\ntext"


def test_a_broken_part_that_is_not_the_text_is_named() -> None:
    document = reading(handmade(paragraph(run("text")), {"styles.xml": "<broken", "numbering.xml": "<n/>"}))
    assert document.text == "text"
    assert [warning.metadata["part"] for warning in document.warnings] == ["styles.xml"]


LAUGHS = '<!DOCTYPE a [<!ENTITY b "laugh"><!ENTITY c "&b;&b;&b;&b;">]>'


def replaced(data: bytes, name: str, content: bytes | None) -> bytes:
    """The file with another part of that name, or without it."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
        for entry in old.namelist():
            if entry != name:
                new.writestr(entry, old.read(entry))
        if content is not None:
            new.writestr(name, content)
    return out.getvalue()


GOOD = handmade(paragraph(run("text")))


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (handmade(paragraph(run("  "))), DocumentEmpty),
        (replaced(GOOD, "word/document.xml", None), DocumentUnreadable),
        (replaced(GOOD, "word/document.xml", b""), DocumentUnreadable),
        (replaced(GOOD, "word/document.xml", b"no xml"), DocumentUnreadable),
        (replaced(GOOD, "word/document.xml", f"{LAUGHS}<a>&c;</a>".encode()), DocumentUnreadable),
        (replaced(GOOD, "word/document.xml", f"{LAUGHS}<a/>".encode("utf-16")), DocumentUnreadable),
        (replaced(GOOD, "word/document.xml", b"<a>" * 5_000), DocumentUnreadable),
        (replaced(GOOD, "word/document.xml", b" " * 40_000_000), DocumentTooLarge),
        (GOOD[:200], DocumentUnreadable),
        (GOOD[:-30], DocumentUnreadable),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 600, UnsupportedMediaType),
    ],
    ids=range(11),
)  # fmt: skip
def test_what_cannot_be_read_is_refused_for_its_reason(data: bytes, error: type[KbmeshError]) -> None:
    with pytest.raises(error):
        reading(data)


def test_entities_and_files_outside_are_never_read() -> None:
    outside = b'<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/hostname">]><a>&x;</a>'
    with pytest.raises(DocumentUnreadable):
        reading(replaced(GOOD, "word/document.xml", outside))


def test_deep_nesting_is_read_without_its_structure() -> None:
    tables = "<w:tbl><w:tr><w:tc>" * 60 + paragraph(run("deep")) + "</w:tc></w:tr></w:tbl>" * 60
    controls = "<w:sdt><w:sdtContent>" * 100 + paragraph(run("deeper")) + "</w:sdtContent></w:sdt>" * 100
    assert reading(handmade(tables + controls)).text == "deep\n\ndeeper"


def test_a_damaged_file_never_fails_in_another_way() -> None:
    for place in range(0, len(GOOD), 7):
        for damaged in (GOOD[:place] + b"\xff" + GOOD[place + 1 :], GOOD[:place] + GOOD[place + 9 :]):
            with contextlib.suppress(KbmeshError):
                reading(damaged)


def two_by_two(word: WordDocument) -> None:
    table = word.add_table(rows=2, cols=2)
    for place, cell in enumerate(cell for row in table.rows for cell in row.cells):
        cell.text = f"cell {place}"


def test_what_follows_a_list_stands_at_the_margin() -> None:
    word = Document()
    word.add_paragraph("First wash", style="List Number")
    word.add_paragraph("Then escort", style="List Number")
    two_by_two(word)
    word.add_paragraph("Then leave", style="List Number")
    word.add_heading("Zones", 2)
    word.add_paragraph("point", style="List Bullet")
    word.add_paragraph("inner", style="List Bullet 2")
    two_by_two(word)
    word.add_paragraph("said", style="Quote")
    two_by_two(word)
    rows = "| cell 0 | cell 1 |\n| --- | --- |\n| cell 2 | cell 3 |"
    assert reading(saved(word)).text == (
        f"1. First wash\n2. Then escort\n\n{rows}\n\n3. Then leave\n\n## Zones\n\n- point\n  - inner\n\n{rows}\n\n"
        f"> said\n\n{rows}"
    )


def test_headings_stand_below_the_title() -> None:
    word = Document()
    word.add_heading("Pumps", 0)
    word.add_heading("Care", 1)
    word.add_heading("Filters", 2)
    assert reading(saved(word)).text == "# Pumps\n\n## Care\n\n### Filters"
    plain = Document()
    plain.add_heading("Care", 1)
    assert reading(saved(plain)).text == "# Care"


def test_breaks_that_were_set_by_hand_are_no_pages() -> None:
    word = Document()
    word.add_paragraph("one")
    word.add_page_break()
    word.add_paragraph("two").paragraph_format.page_break_before = True
    document = reading(saved(word))
    assert document.main.pages is None
    assert document.text.split() == ["one", "two"]
