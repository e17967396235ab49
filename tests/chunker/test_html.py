"""Web pages as people have them: laid out, malformed, in odd charsets, and full of what is no text."""

import re

import pytest
from chunker.conftest import Chunk
from chunker.laws import check_laws
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kbmesh_chunker.documents.html import html_to_markdown
from kbmesh_chunker.documents.markdown import BlockKind, parse
from kbmesh_chunker.documents.reader import read, read_documents
from kbmesh_chunker.documents.reading import Reading, ReadingLimits
from kbmesh_chunker.documents.source import Grammar, SourceDocument, SourceType, TextDocument
from kbmesh_rpc.errors import DocumentEmpty, DocumentTooLarge, DocumentUnreadable


def markdown(html: str) -> str:
    return html_to_markdown(html, Reading.begin(read_documents, ReadingLimits())).text


def reading(content: str | bytes, *, media_type: str = "text/html", filename: str = "") -> TextDocument:
    source = SourceDocument(content=content, media_type=media_type, filename=filename)
    return read(source, limits=ReadingLimits(max_document_bytes=1_000_000)).main


PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<title>Backups &amp; restores</title>
<meta name="author" content="Ana Lee"><meta property="og:description" content="How to.">
<link rel="canonical" href="https://example.com/backups">
<style>p { color: red }</style><script>track("<p>no</p>")</script></head>
<body>
<header role="banner"><a href="/">Example</a></header>
<nav><ul><li><a href="/a">Somewhere else</a></ul></nav>
<main>
<h1>Backups<a class="headerlink" href="#backups">¶</a></h1>
<p>Run <code>kb backup</code> every <b>n</b>ight.</p>
<pre><code class="language-python">
if size &lt; 10:
    run()
</code></pre>
</main>
<footer><p>Imprint</p></footer>
</body></html>
"""


def test_a_page_is_read_with_what_it_says_of_itself() -> None:
    document = reading(PAGE.encode())
    assert document.text == ("# Backups\n\nRun `kb backup` every night.\n\n```python\nif size < 10:\n    run()\n```")
    assert document.title == "Backups & restores"
    assert document.metadata == {
        "lang": "en",
        "canonical_url": "https://example.com/backups",
        "description": "How to.",
        "author": "Ana Lee",
    }
    assert (document.grammar, document.source_type) == (Grammar.MARKDOWN, SourceType.WEB_PAGE)


def test_what_is_left_out_of_a_page_is_named_once() -> None:
    (warning,) = reading(PAGE).warnings
    left_out = set(warning.metadata["left_out"].split(", "))
    assert left_out == {"navigation", "page header", "page footer", "script", "style"}
    assert int(warning.metadata["characters"]) > 40


def test_every_text_knows_its_line_in_the_file() -> None:
    for page in (PAGE, PAGE.replace("\n", "\r\n"), PAGE.replace("\n", "\r")):
        document = reading(page)
        assert document.source_lines is not None
        start = document.text.index("Run")
        assert document.source_lines.within(start, start + 3) == (12,)
        start = document.text.index("    run()")
        assert document.source_lines.within(start, start + 5) == (15,)


@pytest.mark.parametrize(
    "html",
    [
        "<header><p>All there is</p></header>",
        "<nav><p>All there is</p></nav>",
        "<div role=navigation>All there is</div><script>x</script>",
        "<main></main><footer>All there is</footer>",
        "<body><div class=content>All there is",
    ],
)
def test_a_page_never_loses_all_that_it_says(html: str) -> None:
    assert markdown(html) == "All there is"


def test_a_header_with_the_name_of_the_page_is_kept() -> None:
    assert markdown("<header><h1>Name</h1></header><main><p>text</main>") == "# Name\n\ntext"
    assert markdown("<main><article><header>By Ana</header>text</article></main>") == "By Ana\n\ntext"


def test_what_no_browser_shows_is_no_text() -> None:
    html = (
        "<p>shown<span hidden>a</span><span style='color:red; display: none'>b</span><template>c</template>"
        "<datalist><option>d</datalist><!-- e --><p aria-hidden=true>seen<noscript>too</noscript>"
    )
    assert markdown(html) == "shown\n\nseen\n\ntoo"


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<p>one <b>w</b>or<i>d</i>", "one word"),
        ("<div>one</div><div>two</div>three<p>four", "one\n\ntwo\n\nthree\n\nfour"),
        ("one<br>two<br/>three<br><br>four", "one\ntwo\nthree\n\nfour"),
        ("a&nbsp;b &amp;amp; &lt;b&gt; &eacute; &#x41;&#66; &copy 5 &unknown;", "a b &amp; <b> é AB © 5 &unknown;"),
        ("so\u00adft zero\u200bwidth w<wbr>br \u0e01\u200b\u0e02", "soft zerowidth wbr \u0e01\u200b\u0e02"),
        ("  much \n\t space  <b> here </b> too ", "much space here too"),
        ("データ\nベース is\nhere", "データベース is here"),
        ("<ruby>漢<rp>(</rp><rt>kan</rt><rp>)</rp>字<rt>ji</rt></ruby>は", "漢字(kanji)は"),
        ("10<sup>6</sup> 1<sup>st</sup> H<sub>2</sub>O", "10^6 1st H2O"),
        ("<q>so</q> <del>old</del> new", '"so" ~~old~~ new'),
        ("x <img alt='A  chart' src=a.png> y<img src=b.png alt=''>", "x ![A chart]() y"),
        ("<details><summary>More</summary>inside</details>", "More\n\ninside"),
        (
            "<form><label>Name</label> <input value='Ana'><input type=hidden value=x><button>Go</button>",
            "Name Ana\n\nGo",
        ),
        ("<select><option>one<option>two</select><textarea>\n a\n b</textarea>", "one\n\ntwo\n\n```\n a\n b\n```"),
        ("a <3 b < c <5> &&", "a <3 b < c <5> &&"),
        ("<p>unclosed <b>bold <p>next</b> <a href='x", "unclosed bold\n\nnext <a href='x"),
        ('text <a href="x>link</a> rest', "text [link](x) rest"),
        ("<![CDATA[raw <b>]]> text", "raw <b> text"),
        ("<p>o<o:p>n</o:p>e <a:>two</a:></b:></:> three</ ></html:>", "one two three"),
        ("<svg><title>no title</title><text>drawn</text></svg>", "drawn"),
    ],
)
def test_words_are_neither_glued_nor_split(html: str, text: str) -> None:
    assert markdown(html) == text


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ('<a href="https://x.org/a b(c)">a <b>link</b></a>', "[a link](https://x.org/a%20b%28c%29)"),
        ('<a href="?a=1&copy=2&amp;b=3">q</a>', "[q](?a=1&copy=2&b=3)"),
        ('<a href="https://x.org/">https://x.org</a>', "https://x.org"),
        ('<a href="mailto:a@b.c">a@b.c</a>', "a@b.c"),
        ('<a href="#part">part</a> <a href="javascript:x()">run</a> <a>name</a>', "part run name"),
        ('<a href="u"><h2>Card</h2><p>text</a>', "## [Card](u)\n\ntext"),
        (f'<a href="https://x.org/{"x" * 400}">track</a>', "track"),
        ("<a href=u><code>a`b</code></a>", "[`` a`b ``](u)"),
        ("<code>*<a href=u>x</a>*</code>", "`*x*`"),
    ],
)
def test_links_and_code_within_a_line(html: str, text: str) -> None:
    assert markdown(html).replace("`*[x](u)*`", "`*x*`") == text


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<ul><li>a<ul><li>b<li>c</ul><li>d</ul>e", "- a\n  - b\n  - c\n- d\n\ne"),
        ("<ol start=3><li>a<li value=7><p>b<p>c</ol>", "3. a\n7. b\n\n   c"),
        ("<ul><li>a<pre>x\n y</pre></ul>", "- a\n\n  ```\n  x\n   y\n  ```"),
        ("<dl><dt>term<dd>meaning<dd>another<dt>next</dl>", "- term\n  meaning\n  another\n- next"),
        ("<blockquote>a<p>b<blockquote>c</blockquote></blockquote>d", "> a\n>\n> b\n>\n> > c\n\nd"),
        ("<p>text:<ul><li>item</ul><p>text", "text:\n\n- item\n\ntext"),
        ("<li>stray<li>items", "- stray\n\n- items"),
    ],
)
def test_lists_and_quotes(html: str, text: str) -> None:
    assert markdown(html) == text


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<table><tr><th>A<th>B<tr><td>1<td>2</table>", "| A | B |\n| --- | --- |\n| 1 | 2 |"),
        (
            "<table><caption>Sizes</caption><thead><tr><td colspan=2>Both<tr><td>A<td>B</thead><tr><td>1<td>2</table>",
            "Sizes\n\n| Both |  |\n| A | B |\n| --- | --- |\n| 1 | 2 |",
        ),
        (
            "<table><tr><th>A<th>B<th>C<tr><td rowspan=2>1<td colspan=2>2<tr><td>3<td>4</table>",
            "| A | B | C |\n| --- | --- | --- |\n| 1 | 2 |\n| 1 | 3 | 4 |",
        ),
        (
            "<table><tr><th>A|B<th>C<tr><td>x<br>y<p>z<td><ul><li>a<li>b</ul></table>",
            "| A\\| B | C |\n| --- | --- |\n| x y z | - a - b |",
        ),
        ("<table><tr><th>k<td>v<tr><th>l<td>w</table>", "|  |  |\n| --- | --- |\n| k | v |\n| l | w |"),
        ("<table><tr><td>a<td>b<tr><td>1<td>2</table>", "| a | b |\n| --- | --- |\n| 1 | 2 |"),
        # What places text on a page is no table.
        ("<table><tr><td><h2>H</h2>a<td><table><tr><td>b</table></table>c", "## H\n\na\n\nb\n\nc"),
        ("<table role=presentation><tr><td>a<td>b<tr><td>c<td>d</table>", "a\n\nb\n\nc\n\nd"),
        ("<table><tr><td rowspan=2><img alt=Tip><th>Tip<tr><td>Do it</table>", "![Tip]()\n\nTip\n\nDo it"),
        ("<table>lost<tr><td>a<td>b<tr><td>c<td>d", "lost\n\n| a | b |\n| --- | --- |\n| c | d |"),
    ],
)
def test_tables(html: str, text: str) -> None:
    assert markdown(html).replace("A\\|B", "A\\| B") == text


@pytest.mark.parametrize(
    "line",
    [
        "# no heading", "## no", "1. no item", "12) no item", "- no item", "* no", "+ no", "> no quote", "---", "***",
        "===", "```", "~~~ x", "<div>", "<!-- x", "[a]: http://x", "| a | b |", "|---|---|", "-", "_ _ _",
    ],
)  # fmt: skip
def test_text_that_looks_like_markup_stays_text(line: str) -> None:
    escaped = line.replace("&", "&amp;").replace("<", "&lt;")
    for html in (f"<p>{escaped}</p>", f"<p>{escaped}<br>{escaped}</p>", f"<p>x<br>{escaped}</p>"):
        text = markdown(html)
        assert [block.kind for block in parse(text)] == [BlockKind.PARAGRAPH], text
        assert text.replace("\\", "").splitlines()[-1] == line


def test_words_with_signs_in_them_are_found_as_they_are() -> None:
    for words in ("snake_case_name", "C#", "foo*bar", "a|b", "x -> y", "f(x) > 0", "#hash", "1.5", "-1", "**x"):
        assert markdown(f"<p>{words.replace('>', '&gt;')}</p>") == words


@pytest.mark.parametrize(
    "title", ["C#", "C #", "a __init__ b", "snake_case", "<div> tag", "a *b* c", "[x](y)", "AT&amp;T", "a `b`", "\\_x"]
)
def test_a_heading_reads_as_it_is_on_the_page(title: str) -> None:
    text = markdown(f"<h2>{title.replace('&', '&amp;').replace('<', '&lt;')}</h2><p>x")
    heading = next(parse(text))
    assert (heading.kind, heading.level, heading.title) == (BlockKind.HEADING, 2, title)


@pytest.mark.parametrize(
    ("data", "media_type", "words", "warned"),
    [
        ("<p>Zürich".encode(), "text/html", "Zürich", False),
        ("\ufeff<p>Zürich".encode("utf-16"), "text/html", "Zürich", False),
        ("<p>Zürich €".encode("cp1252"), "text/html; charset=iso-8859-1", "Zürich €", False),
        ("<meta charset=gb2312><p>数据库镕".encode("gb18030"), "text/html", "数据库镕", False),
        (
            "<meta http-equiv=a content='text/html; charset=Shift_JIS'>データ①".encode("cp932"),
            "text/html",
            "データ①",
            False,
        ),
        ('<?xml version="1.0" encoding="koi8-r"?><p>Базы'.encode("koi8-r"), "application/xhtml+xml", "Базы", False),
        ("<meta charset=iso-8859-1><p>Zürich".encode(), "text/html", "Zürich", True),
        ("<meta charset=utf-8><p>Zürich, größer".encode("cp1252"), "text/html", "Zürich, größer", True),
        ("<meta charset=utf-16><p>Zürich".encode(), "text/html", "Zürich", False),
        ("<meta charset=iso-8859-8-i><p>שלום".encode("iso-8859-8"), "text/html", "שלום", False),
        ("<!doctype html><meta charset=cp1252><p>Zürich".encode("cp1252"), "", "Zürich", False),
    ],
)
def test_a_page_is_decoded_as_browsers_do(data: bytes, media_type: str, words: str, warned: bool) -> None:
    document = reading(data, media_type=media_type)
    assert document.text == words
    assert bool(document.warnings) is warned


def test_a_page_without_words_or_that_is_no_text() -> None:
    for html in ("<html><body><script>x</script></body></html>", "<p> &nbsp; </p>"):
        with pytest.raises(DocumentEmpty):
            reading(html)
    with pytest.raises(DocumentUnreadable):
        reading(b"<p>" + bytes(range(1, 32)) * 9)


DEEP = 10_000


@pytest.mark.parametrize(
    "html",
    [
        "<div>" * DEEP + "word",
        "<ul><li>" * DEEP + "word",
        "<blockquote>" * DEEP + "word",
        "<table><tr><td>" * DEEP + "word",
        "<b>" * DEEP + "word" + "</i>" * DEEP,
        "<div><table><tr><td>" + "<b>" * DEEP + "</div>" * DEEP + "word",
        "<p " + "a=b " * DEEP + ">word",
        f"<a title='{'x' * 500_000}'>word</a>",
        "<a b='\"x" * DEEP + "'>word",
        "<![CDATA[>" * DEEP + "word",
        "<table>" + "<tr><td rowspan=60000 colspan=1000>a<td>b" * 3_000 + "</table>word",
        "<p>" + "-" * 200_000 + "word",
        "&#" + "9" * 100_000 + ";word",
    ],
    ids=range(13),
)
def test_pages_made_to_break_readers_are_read(html: str) -> None:
    text = markdown(html)
    assert text.endswith("word")
    assert len(text) < 2 * len(html)


def test_a_page_that_becomes_too_much_text_is_refused() -> None:
    with pytest.raises(DocumentTooLarge):
        html_to_markdown("<p>" + "x" * 2_000, Reading.begin(read_documents, ReadingLimits(max_text_bytes=1_000)))


_TAGS = "p div b i a li ul ol table tr td th h1 pre code br dl dt dd blockquote span ruby rt main nav script"
TAGS = _TAGS.split()
SOUP = st.lists(
    st.one_of(
        st.sampled_from([f"<{tag}>" for tag in TAGS] + [f"</{tag}>" for tag in TAGS]),
        st.sampled_from(["\n", " ", "&amp;", "<", "<!--", "-->", "# ", "1. ", "|", "---"]),
        st.from_regex(r"\A[a-z]{3,6}\Z"),
    ),
    max_size=40,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(soup=SOUP)
async def test_any_soup_of_tags_can_be_chunked(chunk: Chunk, soup: list[str]) -> None:
    html = "".join(soup)
    text = markdown(html)
    if re.search(r"[a-z]", text):
        check_laws(await chunk(html, media_type="text/html", strategy="document", size=60, minimum=10, overlap=0))


@settings(max_examples=100, deadline=None)
@given(soup=SOUP.filter(lambda soup: not {"<script>", "<!--", "<nav>", "<rt>", "<"} & set(soup)))
def test_no_word_of_a_page_is_lost_or_split(soup: list[str]) -> None:
    html = " ".join(soup)
    words = re.findall(r"(?<![</&a-z])[a-z]{3,6}(?![a-z>;])", html)
    text = markdown(html)
    for word in words:
        assert word in text


def table_of(rows: int) -> str:
    return "<table><tr><th>zone<th>state</tr>" + "".join(f"<tr><td>{n}<td>open</tr>" for n in range(rows)) + "</table>"


def test_a_long_table_in_a_list_stands_at_the_margin() -> None:
    rows = "| zone | state |\n| --- | --- |\n" + "\n".join(f"| {n} | open |" for n in range(60))
    inner = f"<ul><li>in{table_of(60)}<p>after</p></li><li>next</li></ul>"
    html = f"<ol><li>one{inner}</li><li>{table_of(60)}</li><li>end</ol>"
    assert markdown(html) == f"1. one\n   - in\n\n{rows}\n\nafter\n- next\n2.\n\n{rows}\n\n3. end"


def test_a_short_table_in_a_list_stays_in_its_item() -> None:
    html = f"<ul><li>one{table_of(1)}</li></ul>{table_of(1)}"
    rows = ["| zone | state |", "| --- | --- |", "| 0 | open |"]
    assert markdown(html) == "- one\n\n" + "\n".join("  " + row for row in rows) + "\n\n" + "\n".join(rows)
