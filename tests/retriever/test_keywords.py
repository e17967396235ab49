"""Words are found as people write them: identifiers, scripts without spaces, accents and widths."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kbmesh_retriever.keywords.analyser import MAX_QUERY_TERMS, encode_document, encode_query
from kbmesh_retriever.keywords.terms import document_tokens


def score(query: str, document: str) -> float:
    """The dot product, as the store computes it without IDF."""
    vector = encode_document(document)
    weights = dict(zip(vector.indices, vector.values, strict=True))
    asked = encode_query(query)
    return sum(value * weights.get(index, 0.0) for index, value in zip(asked.indices, asked.values, strict=True))


def ranking(query: str, documents: list[str]) -> list[tuple[float, str]]:
    return sorted(((score(query, text), text) for text in documents), reverse=True)


def test_ret_10_a_japanese_word_inside_a_clause_is_found() -> None:
    """RET-10."""
    assert score("標準化", "国際標準化に関する動向を調査した") > 0
    assert score("標準化", "今日の昼食はうどん") == 0
    assert score("国", "国際標準化に関する動向を調査した") > 0, "a single character is found too"


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("JIRA-4815", "Ticket JIRA-4815 closed"),
        ("4815", "Ticket JIRA-4815 closed"),
        ("jira 4815", "Ticket JIRA-4815 closed"),
        ("JIRA4815", "Ticket JIRA-4815 closed"),
        ("6f1c2c1e-8a55-4b0e-9d0c-2f6d8f3a7b10", "trace 6f1c2c1e-8a55-4b0e-9d0c-2f6d8f3a7b10"),
        ("8a55", "trace 6f1c2c1e-8a55-4b0e-9d0c-2f6d8f3a7b10"),
        ("0x80070057", "error 0x80070057 and ORA-00942"),
        ("80070057", "error 0x80070057 and ORA-00942"),
        ("ORA-00942", "error 0x80070057 and ORA-00942"),
        ("E0425", "cannot find value (E0425) in this scope"),
    ],
)
def test_ret_11_identifiers_are_found_whole_and_in_parts(query: str, expected: str) -> None:
    """RET-11."""
    documents = [
        "Ticket JIRA-4815 closed",
        "Ticket JIRA-4816 open",
        "trace 6f1c2c1e-8a55-4b0e-9d0c-2f6d8f3a7b10",
        "error 0x80070057 and ORA-00942",
        "cannot find value (E0425) in this scope",
    ]
    (best, text), (second, _), *_ = ranking(query, documents)
    assert text == expected
    assert best > second


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("user by id", "def getUserById(id): ..."),
        ("getUserById", "def getUserById(id): ..."),
        ("parser pool", "class HTMLParserPool: ..."),
        ("html parser", "class HTMLParserPool: ..."),
        ("HTMLParserPool", "class HTMLParserPool: ..."),
        ("case name", "snake_case_name = 1"),
        ("snake_case_name", "snake_case_name = 1"),
        ("oauth", "enable OAuth2 first"),
        ("C++", "written in C++"),
    ],
)
def test_ret_12_subwords_of_identifiers_are_found(query: str, expected: str) -> None:
    """RET-12."""
    documents = [
        "def getUserById(id): ...",
        "class HTMLParserPool: ...",
        "snake_case_name = 1",
        "enable OAuth2 first",
        "written in C++",
        "written in C",
    ]
    assert ranking(query, documents)[0][1] == expected


@pytest.mark.parametrize(
    ("query", "document"),
    [
        ("café", "cafe\u0301 menu"),
        ("VPN設定", "ＶＰＮ設定 手順"),
        ("strasse", "straße"),
        ("file server", "ﬁle server"),
        ("サーバー停止", "ｻｰﾊﾞｰ停止"),
        ("cafe", "café"),
        ("Łódź", "lodz"),
    ],
)
def test_ret_13_forms_of_one_word_are_one_term(query: str, document: str) -> None:
    """RET-13."""
    assert score(query, document) > 0


@pytest.mark.parametrize(
    ("query", "document"),
    [
        ("servers failing", "the server failed"),
        ("серверы", "сервер не отвечает"),
        ("ล่ม", "ระบบล่มตั้งแต่เช้า"),
        ("서버", "서버가 멈췄다"),
        ("المكتبة", "المكتبات"),
        ("email", "e-mail"),
        ("1000000", "1,000,000 rows"),
        ("🎉", "shipped 🎉"),
    ],
)
def test_scripts_and_word_forms(query: str, document: str) -> None:
    assert score(query, document) > 0


def test_numbers_that_differ_stay_apart() -> None:
    assert ranking("1.5", ["15 apples", "version 1.5"])[0][1] == "version 1.5"


def test_a_query_of_stop_words_alone_still_finds() -> None:
    assert score("to be or not to be", "To be, or not to be: that is the question") > 0
    assert len(encode_query("what is the kraken").indices) == 1
    assert len(encode_query("IT department").indices) == 2, "an acronym is no stop word"


def test_ret_17_a_long_query_is_bounded() -> None:
    """RET-17."""
    long = " ".join(f"word{i} andmore" for i in range(2000))[:10_000]
    assert len(encode_query(long + " JIRA-4815").indices) == MAX_QUERY_TERMS
    repeated = encode_query(("why does service %d fail " * 400)[:10_000])
    assert len(repeated.indices) < 10
    assert max(repeated.values) <= 3


def test_a_passage_without_words_has_no_terms() -> None:
    assert encode_document(" — … ").indices == ()
    assert encode_query("?!").indices == ()


def test_a_repeated_word_saturates_and_a_longer_passage_weighs_less() -> None:
    once, often = score("kraken", "kraken"), score("kraken", "kraken " * 50)
    assert once < often < 2.2 * 1.0001
    assert score("kraken", "kraken " + "filler " * 500) < once


@given(st.text(max_size=200))
@settings(max_examples=150, deadline=None)
def test_any_text_gives_an_ordered_vector_and_finds_itself(text: str) -> None:
    vector = encode_document(text)
    assert list(vector.indices) == sorted(set(vector.indices))
    assert all(value > 0 for value in vector.values)
    assert all(0 <= index < 2**32 for index in vector.indices)
    assert (score(text, text) > 0) == bool(list(document_tokens(text)))
