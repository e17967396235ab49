"""PDF: what a reader of the pages would read, with the page each chunk is on."""

import io
import zlib
from collections.abc import Callable

import pytest
from chunker.conftest import Chunk
from chunker.laws import check_laws
from hypothesis import given, settings
from hypothesis import strategies as st
from kbmesh_chunker.config import Strategy
from kbmesh_chunker.documents.pdf_text import Words, clean
from kbmesh_chunker.documents.reader import read
from kbmesh_chunker.documents.reading import ReadingLimits
from kbmesh_chunker.documents.source import ExtractedDocument, HeadingLayout, SourceDocument
from kbmesh_rpc.errors import DocumentTooLarge, DocumentUnreadable, KbmeshError, Reason
from reportlab.lib.pagesizes import A4, landscape
from reportlab.lib.pdfencrypt import StandardEncryption
from reportlab.lib.utils import simpleSplit
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.cidfonts import UnicodeCIDFont
from reportlab.pdfgen.canvas import Canvas

WIDTH, HEIGHT = A4
PROSE = (
    "The pump is started by hand after each change of the filter and runs until the tank holds forty litres. "
    "Whoever starts it writes the hour into the book that lies beside the door. The warden reads the book once a week "
    "and orders a new filter when the pump has run for more than ninety hours since the last change. "
)


def write(draw: Callable[[Canvas], None], **options: object) -> bytes:
    """A PDF whose pages `draw` paints."""
    buffer = io.BytesIO()
    canvas = Canvas(buffer, pagesize=A4, invariant=1, **options)
    draw(canvas)
    canvas.save()
    return buffer.getvalue()


def paragraph(canvas: Canvas, text: str, x: float, y: float, *, width: float, size: float = 10) -> float:
    """Sets a paragraph and gives the height at which the next may begin."""
    canvas.setFont("Helvetica", size)
    for line in simpleSplit(text, "Helvetica", size, width):
        canvas.drawString(x, y, line)
        y -= 1.2 * size
    return y - size


def heading(canvas: Canvas, text: str, y: float, size: float) -> float:
    canvas.setFont("Helvetica-Bold", size)
    canvas.drawString(72, y, text)
    return y - 1.5 * size


def extract(content: bytes, **limits: float) -> ExtractedDocument:
    return read(SourceDocument(content=content, filename="a.pdf"), limits=ReadingLimits(**limits))  # type: ignore[arg-type] # numbers of either kind


def titles(document: ExtractedDocument) -> list[tuple[int, str]]:
    layout = document.main.layout
    assert isinstance(layout, HeadingLayout)
    return [(heading.level, heading.title) for heading in layout.headings]


def test_lines_of_a_paragraph_are_put_together_again() -> None:
    def draw(canvas: Canvas) -> None:
        y = paragraph(canvas, PROSE, 72, 700, width=300)
        paragraph(canvas, "A second paragraph. " * 8, 72, y, width=300)

    document = extract(write(draw))
    assert document.text == f"{PROSE.strip()}\n\n{('A second paragraph. ' * 8).strip()}"
    assert document.media_type == "application/pdf"


@pytest.mark.parametrize("order", ["by column", "by row", "upside down"])
def test_two_columns_are_read_one_after_the_other(order: str) -> None:
    left = simpleSplit("left " + PROSE * 3, "Helvetica", 10, 210)
    right = simpleSplit("right " + PROSE * 3, "Helvetica", 10, 210)
    marks = [(72, 700 - 12 * row, line) for row, line in enumerate(left)]
    marks += [(312, 700 - 12 * row, line) for row, line in enumerate(right)]
    if order == "by row":
        marks.sort(key=lambda mark: -mark[1])
    elif order == "upside down":
        marks.reverse()

    def draw(canvas: Canvas) -> None:
        canvas.setFont("Helvetica-Bold", 18)
        canvas.drawString(72, 760, "A title that stands across both of the columns")
        canvas.setFont("Helvetica", 10)
        for x, y, line in marks:
            canvas.drawString(x, y, line)

    document = extract(write(draw))
    assert document.title == "A title that stands across both of the columns"
    text = " ".join(document.text.split())
    assert text.index("left The pump") < text.index("right The pump")
    assert text.count(" ".join(PROSE.split())) == 6


def test_a_table_is_read_row_by_row() -> None:
    def draw(canvas: Canvas) -> None:
        y = paragraph(canvas, PROSE, 72, 700, width=450)
        for row in range(8):
            canvas.drawString(72, y - 14 * row, f"name {row}")
            canvas.drawString(300, y - 14 * row, f"value {row}")

    assert "\n".join(f"name {row}\tvalue {row}" for row in range(8)) in extract(write(draw)).text


def test_hyphens_that_divided_a_word_go_and_others_stay() -> None:
    lines = [
        "Whoever reads this docu-",
        "mentation finds a well-",
        "known rule, and a self-",
        "contained one. This self-contained rule is about state-of-the-",
        "art pumps.",
    ]

    def draw(canvas: Canvas) -> None:
        for row, line in enumerate(lines):
            canvas.drawString(72, 700 - 14 * row, line)

    text = " ".join(extract(write(draw)).text.split())
    for word in ("this documentation finds", "well-known", "a self-contained one", "state-of-the-art pumps"):
        assert word in text


@pytest.mark.parametrize(
    ("first", "second", "known", "joined"),
    [
        ("a debuggabil-", "ity test", "", "a debuggability test"),
        ("a data-", "base", "database of the city", "a database"),
        ("the post-", "hoc test", "a post-hoc test", "the post-hoc test"),
        ("a red-", "green tree", "red trees, green trees, more green trees", "a red-green tree"),
        ("the Half\ufffe", "Installed state", "", "the Half-Installed state"),
        ("soft\xad", "ware", "", "software"),
        ("1990-", "2000", "", "1990-2000"),
    ],
)
def test_joining_a_divided_word(first: str, second: str, known: str, joined: str) -> None:
    assert Words([f"x {known}", first, second]).join(first, second) == joined


def test_running_lines_are_left_out_and_named() -> None:
    def draw(canvas: Canvas) -> None:
        for page in range(1, 7):
            canvas.setFont("Helvetica", 9)
            canvas.drawString(72, 810, "Manual of the pump, release 3")
            canvas.drawCentredString(WIDTH / 2, 30, f"Page {page} of 6")
            paragraph(canvas, f"Number {page}. {PROSE}", 72, 700, width=450)
            canvas.showPage()

    document = extract(write(draw))
    assert "Manual of the pump" not in document.text
    assert "of 6" not in document.text
    (warning,) = document.warnings
    assert warning.metadata["count"] == "12"
    assert "Manual of the pump, release 3" in warning.metadata["left_out"]


def test_what_opens_every_page_and_says_something_else_stays() -> None:
    def draw(canvas: Canvas) -> None:
        for name in ("Oil", "Water", "Air", "Steam"):
            y = heading(canvas, f"{name} pumps", 780, 20)
            paragraph(canvas, PROSE, 72, y, width=450)
            canvas.showPage()

    document = extract(write(draw))
    assert titles(document) == [(1, f"{name} pumps") for name in ("Oil", "Water", "Air", "Steam")]
    assert document.warnings == ()


def test_headings_are_found_by_how_they_are_set() -> None:
    def draw(canvas: Canvas) -> None:
        y = heading(canvas, "The pump", 760, 24)
        for chapter in (1, 2):
            y = heading(canvas, f"{chapter} Chapter", y - 10, 16)
            y = paragraph(canvas, PROSE, 72, y, width=450)
            for section in (1, 2):
                y = heading(canvas, f"{chapter}.{section} Section", y, 12)
                y = paragraph(canvas, PROSE, 72, y, width=450)

    document = extract(write(draw))
    assert document.title == "The pump"
    assert titles(document) == [
        (1, "The pump"),
        *((level, title) for chapter in (1, 2) for level, title in (
            (2, f"{chapter} Chapter"), (3, f"{chapter}.1 Section"), (3, f"{chapter}.2 Section")
        )),
    ]  # fmt: skip


def test_the_outline_names_the_headings() -> None:
    def draw(canvas: Canvas) -> None:
        for number, (level, title) in enumerate([(0, "Oil"), (1, "Care"), (1, "Repair"), (0, "Water")], start=1):
            canvas.bookmarkPage(f"b{number}")
            canvas.addOutlineEntry(title, f"b{number}", level)
            # Nothing in how it is set says that it is a heading.
            canvas.setFont("Helvetica", 10)
            canvas.drawString(72, 700, f"{number}. {title}")
            paragraph(canvas, PROSE, 72, 660, width=450)
            canvas.showPage()

    document = extract(write(draw))
    assert titles(document) == [(1, "1. Oil"), (2, "2. Care"), (2, "3. Repair"), (1, "4. Water")]


async def test_chunks_carry_pages_and_headings(chunk: Chunk) -> None:
    def draw(canvas: Canvas) -> None:
        for number in (1, 2, 3):
            y = heading(canvas, f"Part {number}", 760, 18)
            for _ in range(5):
                y = paragraph(canvas, PROSE, 72, y, width=450)
            canvas.showPage()

    chunked = await chunk(write(draw), strategy=Strategy.AUTO, size=600)
    check_laws(chunked)
    assert chunked.config.strategy == "document"
    for item in chunked.chunks:
        (page,) = item.pages
        assert item.piece.heading_path == (f"Part {page}",)


async def test_what_looks_like_markdown_is_none(chunk: Chunk) -> None:
    def draw(canvas: Canvas) -> None:
        y = heading(canvas, "Part", 760, 18)
        for line in ("# apt update", "* starred", "| a | b |", "1. one"):
            canvas.setFont("Courier", 10)
            canvas.drawString(72, y, line)
            y -= 12
        paragraph(canvas, PROSE, 72, y - 20, width=450)

    chunked = await chunk(write(draw), strategy="document", size=300, minimum=0)
    check_laws(chunked)
    assert {item.piece.heading_path for item in chunked.chunks} == {("Part",)}
    assert "# apt update\n* starred\n| a | b |\n1. one" in chunked.document.text


def test_a_paragraph_goes_on_across_pages_and_notes() -> None:
    def draw(canvas: Canvas) -> None:
        paragraph(
            canvas, PROSE.replace("forty litres", "forty litres1") + "The key of the pump hangs", 72, 400, width=450
        )
        canvas.setFont("Helvetica", 7)
        canvas.drawString(72, 120, "1 Measured at twenty degrees.")
        canvas.showPage()
        paragraph(canvas, "beside the door of the warden. " + PROSE, 72, 760, width=450)

    document = extract(write(draw))
    assert "The key of the pump hangs beside the door of the warden." in document.text
    assert "1 Measured at twenty degrees." in document.text


def test_pages_without_a_text_layer_are_named() -> None:
    def draw(canvas: Canvas) -> None:
        for page in range(1, 6):
            if page in (2, 3, 5):
                canvas.rect(50, 50, 400, 700, fill=1)
            else:
                paragraph(canvas, PROSE, 72, 700, width=450)
            canvas.showPage()

    document = extract(write(draw))
    (warning,) = document.warnings
    assert (warning.reason, warning.metadata["page"]) == (Reason.DOCUMENT_UNREADABLE, "2-3, 5")
    assert document.main.pages is not None
    assert document.main.pages.within(0, len(document.text)) == (1, 4)


def test_an_empty_page_is_no_loss() -> None:
    def draw(canvas: Canvas) -> None:
        canvas.showPage()
        paragraph(canvas, PROSE, 72, 700, width=450)

    assert extract(write(draw)).warnings == ()


def test_a_scan_says_that_it_has_no_text_layer() -> None:
    with pytest.raises(DocumentUnreadable, match="text layer"):
        extract(write(lambda canvas: canvas.rect(50, 50, 400, 700, fill=1)))


def test_an_encrypted_document_needs_a_password() -> None:
    encryption = StandardEncryption("secret", ownerPassword="owner", strength=128)
    with pytest.raises(DocumentUnreadable, match="password"):
        extract(write(lambda canvas: canvas.drawString(72, 700, "hidden"), encrypt=encryption))


def test_one_that_may_be_read_without_a_password_is_read() -> None:
    encryption = StandardEncryption("", ownerPassword="owner", strength=128)
    assert extract(write(lambda canvas: canvas.drawString(72, 700, "open"), encrypt=encryption)).text == "open"


def test_only_so_many_pages_are_read() -> None:
    def draw(canvas: Canvas) -> None:
        for page in range(1, 6):
            canvas.drawString(72, 500, f"text of {page}")
            canvas.showPage()

    document = extract(write(draw), max_pages=3)
    assert "text of 3" in document.text
    assert "text of 4" not in document.text
    (warning,) = document.warnings
    assert (warning.reason, warning.metadata["page"]) == (Reason.DOCUMENT_TOO_LARGE, "4-5")


def test_too_much_text_is_refused() -> None:
    def draw(canvas: Canvas) -> None:
        paragraph(canvas, PROSE * 5, 72, 700, width=450)

    with pytest.raises(DocumentTooLarge):
        extract(write(draw), max_text_bytes=1_000)


@pytest.mark.parametrize("damage", ["header only", "cut off", "no xref", "noise"])
def test_damage_is_an_error_or_what_can_be_read(damage: str) -> None:
    whole = write(lambda canvas: canvas.drawString(72, 700, "still here"))
    broken = {
        "header only": b"%PDF-1.7\n",
        "cut off": whole[: len(whole) // 3],
        "no xref": whole[: whole.rindex(b"xref")],
        "noise": b"%PDF-1.4\n" + bytes(range(256)) * 40,
    }[damage]
    try:
        assert extract(broken).text == "still here"
    except DocumentUnreadable as error:
        assert error.metadata == {"media_type": "application/pdf"}  # noqa: PT017 - either of the two is right


@settings(max_examples=30, deadline=None)
@given(places=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=20))
def test_no_damage_is_an_unforeseen_error(places: list[tuple[int, int]]) -> None:
    content = bytearray(write(lambda canvas: canvas.drawString(72, 700, "damaged")))
    for place, value in places:
        content[place % len(content)] = value
    try:
        read(SourceDocument(content=bytes(content), media_type="application/pdf"), limits=ReadingLimits(max_pages=100))
    except KbmeshError:
        return


def make_pdf(*objects: bytes) -> bytes:
    """A PDF of objects as they are written; the first is the catalogue."""
    body = b"%PDF-1.7\n"
    places = []
    for number, content in enumerate(objects, start=1):
        places.append(len(body))
        body += b"%d 0 obj\n%s\nendobj\n" % (number, content)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    size = len(objects) + 1
    return body + b"xref\n0 %d\n0000000000 65535 f \n%strailer\n<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF" % (
        size,
        table,
        size,
        len(body),
    )


def test_pages_that_are_not_there_end_soon() -> None:
    bomb = make_pdf(b"<</Type/Catalog/Pages 2 0 R>>", b"<</Type/Pages/Count 2000000000/Kids[]>>")
    with pytest.raises(DocumentUnreadable):
        extract(bomb)


def test_one_page_a_million_times_is_bounded() -> None:
    page = b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 100 100]>>"
    bomb = make_pdf(
        b"<</Type/Catalog/Pages 2 0 R>>", b"<</Type/Pages/Count 100000/Kids[%s]>>" % (b"3 0 R " * 100_000), page
    )
    with pytest.raises(KbmeshError):
        extract(bomb, max_pages=50)


def test_deep_nesting_is_an_error() -> None:
    deep = make_pdf(
        b"<</Type/Catalog/Pages 2 0 R/X %s%s>>" % (b"[" * 50_000, b"]" * 50_000), b"<</Type/Pages/Count 0>>"
    )
    with pytest.raises(DocumentUnreadable):
        extract(deep)


def test_a_page_that_unpacks_to_very_much_text_is_refused() -> None:
    stream = zlib.compress(b"BT /F 10 Tf 1 0 0 1 10 50 Tm " + b"(aaaa bbbb) Tj " * 40_000 + b"ET")
    bomb = make_pdf(
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Count 1/Kids[3 0 R]>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 100 100]/Contents 4 0 R"
        b"/Resources<</Font<</F<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>>>>>>>",
        b"<</Length %d/Filter/FlateDecode>>stream\n%s\nendstream" % (len(stream), stream),
    )
    with pytest.raises(DocumentTooLarge):
        extract(bomb, max_text_bytes=100_000)


def test_japanese_lines_are_joined_without_a_space() -> None:
    pdfmetrics.registerFont(UnicodeCIDFont("HeiseiKakuGo-W5"))
    text = "".join(
        f"第{number}ポンプは手で始動し、水槽に四十リットルが溜まるまで動きます。" for number in "一二三四五六七"
    )

    def draw(canvas: Canvas) -> None:
        canvas.setFont("HeiseiKakuGo-W5", 10)
        for row in range(0, len(text), 40):
            canvas.drawString(72, 700 - 14 * row / 40, text[row : row + 40])

    assert extract(write(draw)).text == text


def test_a_page_on_its_side_is_read_as_it_is_shown() -> None:
    def draw(canvas: Canvas) -> None:
        canvas.setPageSize(landscape(A4))
        paragraph(canvas, PROSE, 72, 500, width=600)
        canvas.setPageRotation(180)

    # The page is turned, so what is upright on it is not upright as it is shown: it is read, in some order.
    assert sorted(extract(write(draw)).text.split()) == sorted(PROSE.split())


def test_text_that_stands_sideways_comes_after_the_rest() -> None:
    def draw(canvas: Canvas) -> None:
        canvas.saveState()
        canvas.rotate(90)
        canvas.drawString(200, -30, "stamp of the archive")
        canvas.restoreState()
        paragraph(canvas, PROSE, 72, 700, width=450)

    assert extract(write(draw)).text == f"{PROSE.strip()}\n\nstamp of the archive"


def test_what_a_form_was_filled_with_is_read() -> None:
    def draw(canvas: Canvas) -> None:
        canvas.drawString(72, 700, "Name of the warden:")
        canvas.acroForm.textfield(value="Ida Field", x=200, y=690, width=200, height=24)

    assert "Ida Field" in extract(write(draw)).text


@pytest.mark.parametrize(
    ("drawn", "read_as"),
    [
        ("e\ufb03cient \ufb01lter", "efficient filter"),
        ("\uf0b7 one", "• one"),
        ("soft\xadware", "software"),
        ("a\u00a0b\u2009c", "a b c"),
        ("e\u0301", "é"),
        ("\u2f08\u2f1d", "人口"),
        ("bell\x07 null\x00", "bell null"),
        ("\ue123", "\ufffd"),
        ("plain", "plain"),
    ],
)
def test_characters_are_those_that_are_read(drawn: str, read_as: str) -> None:
    assert clean(drawn) == read_as


def test_page_numbers_beside_titles_that_change_are_left_out() -> None:
    def draw(canvas: Canvas) -> None:
        for page, name in enumerate(("Oil", "Water", "Air", "Steam", "Salt"), start=7):
            paragraph(canvas, f"On {name}. {PROSE}", 72, 700, width=450)
            canvas.setFont("Helvetica", 9)
            canvas.drawString(72, 40, f"Chapter {page - 6}. {name}")
            canvas.drawRightString(WIDTH - 72, 40, str(page))
            canvas.showPage()

    document = extract(write(draw))
    assert "Chapter" not in document.text
    assert document.warnings[0].metadata["count"] == "5"


def test_a_table_of_contents_is_a_table() -> None:
    def draw(canvas: Canvas) -> None:
        paragraph(canvas, PROSE, 72, 760, width=450)
        for row in range(8):
            canvas.drawString(72, 600 - 14 * row, f"{row}.1 Pumps " + ". " * 60 + f"{row + 10}")

    assert "\n".join(f"{row}.1 Pumps\t{row + 10}" for row in range(8)) in extract(write(draw)).text


def test_a_title_in_the_middle_is_no_part_of_the_heading_below_it() -> None:
    def draw(canvas: Canvas) -> None:
        canvas.setFont("Helvetica-Bold", 18)
        canvas.drawCentredString(WIDTH / 2, 760, "Pumps, third quarter of the year")
        heading(canvas, "Summary", 732, 18)
        y = paragraph(canvas, PROSE * 3, 72, 705, width=450)
        y = heading(canvas, "A heading that goes on", y, 18)
        y = heading(canvas, "in a second line", y + 6, 18)
        paragraph(canvas, PROSE * 3, 72, y, width=450)

    found = [title for _, title in titles(extract(write(draw)))]
    assert found == ["Pumps, third quarter of the year", "Summary", "A heading that goes on in a second line"]


@pytest.mark.parametrize("lines", [["Ana Lee, Platform team"], ["Ana Lee", "3 May 2026"]])
def test_who_wrote_it_is_no_heading(lines: list[str]) -> None:
    def draw(canvas: Canvas) -> None:
        y = heading(canvas, "Pumps and how to care for them", 760, 22) - 20
        for number, line in enumerate(lines):
            y = heading(canvas, line, y, 13 - number) - 10
        for title in ("Care", "Filters"):
            y = heading(canvas, title, y - 20, 16)
            y = paragraph(canvas, PROSE * 3, 72, y, width=450)

    document = extract(write(draw))
    assert titles(document) == [(1, "Pumps and how to care for them"), (2, "Care"), (2, "Filters")]
    assert all(line in document.text for line in lines)


def test_an_entry_of_a_contents_page_that_takes_two_lines_is_no_heading() -> None:
    def draw(canvas: Canvas) -> None:
        y = heading(canvas, "Contents", 760, 16) - 20
        canvas.setFont("Helvetica-Bold", 12)
        for number in range(3):
            canvas.drawString(72, y, f"Care of the pump that stands in the cellar of house {number}")
            canvas.drawString(72, y - 14, "and of its filters")
            canvas.drawString(500, y - 14, str(number + 3))
            y -= 40
        canvas.showPage()
        y = heading(canvas, "Care", 760, 16)
        paragraph(canvas, PROSE * 9, 72, y, width=450)

    document = extract(write(draw))
    assert [title for _, title in titles(document)] == ["Contents", "Care"]
    assert "house 1" in document.text


def test_one_page_is_named_as_one() -> None:
    def draw(canvas: Canvas, scanned: int) -> None:
        paragraph(canvas, PROSE, 72, 700, width=400)
        for _ in range(scanned):
            canvas.showPage()
            canvas.rect(10, 10, 400, 500, fill=1)

    for scanned, message in ((1, "page 2 has no text"), (2, "pages 2-3 have no text")):
        (warning,) = extract(write(lambda canvas, scanned=scanned: draw(canvas, scanned))).warnings  # type: ignore[misc] # binds now
        assert warning.message.startswith(message)
