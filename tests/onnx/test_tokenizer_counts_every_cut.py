"""What is cut is counted, a prefix and a query stay, and one bad text fails alone."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kbmesh_onnx.errors import TextError, TextTooLong
from kbmesh_onnx.tokenizer import TokenizedPair, Truncation
from opened_model import OpenedModel

CLS, SEP = 101, 102

texts_of_any_script = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=40)


def test_a_text_over_the_limit_is_cut_and_counted(minilm: OpenedModel) -> None:
    """EMB-03: two texts that differ after the limit get the same ids, and both say that they were cut."""
    texts = ["alpha " * 600 + "ENDS WITH CATS", "alpha " * 600 + "ENDS WITH SHIPS"]
    cats, ships = minilm.tokenizer.encode(texts, max_tokens=256)
    whole = minilm.tokenizer.count(texts)
    for row, tokens in zip((cats, ships), whole, strict=True):
        assert row.tokens == len(row.ids) == 256
        assert row.tokens_cut == tokens - 256
        assert (row.ids[0], row.ids[-1]) == (CLS, SEP)
    np.testing.assert_array_equal(cats.ids, ships.ids)


def test_cutting_the_start_keeps_the_end_and_the_prefix(minilm: OpenedModel) -> None:
    encode = minilm.tokenizer.encode
    (row,) = encode(["filler " * 100 + "the port is 8443"], prefix="passage: ", max_tokens=16, truncation="start")
    (prefix,) = encode(["passage: "], max_tokens=16)
    (end,) = encode(["the port is 8443"], max_tokens=16)
    assert row.ids[: prefix.tokens - 1].tolist() == prefix.ids[:-1].tolist()
    assert row.ids[-(end.tokens - 1) :].tolist() == end.ids[1:].tolist()
    assert row.tokens + row.tokens_cut == minilm.tokenizer.count(["filler " * 100 + "the port is 8443"], "passage: ")[0]


def test_refusing_truncation_names_the_text_and_spares_the_others(minilm: OpenedModel) -> None:
    texts = ["short", "long " * 30, "also short"]
    with pytest.raises(TextTooLong) as caught:
        minilm.tokenizer.encode(texts, max_tokens=8, truncation="none")
    assert (caught.value.index, caught.value.tokens, caught.value.limit) == (1, 32, 8)
    first, second, third = minilm.tokenizer.try_encode(texts, max_tokens=8, truncation="none")
    assert not isinstance(first, TextError)
    assert isinstance(second, TextTooLong)
    assert not isinstance(third, TextError)


@pytest.mark.parametrize("bad", ["half \ud83d of a pair", "\udc80"])
def test_half_a_surrogate_pair_fails_alone(minilm: OpenedModel, bad: str) -> None:
    good, broken, last = minilm.tokenizer.try_encode(["good", bad, "also good"], max_tokens=16)
    assert isinstance(broken, TextError)
    assert broken.index == 1
    expected = minilm.tokenizer.encode(["good", "also good"], max_tokens=16)
    for row, alone in zip((good, last), expected, strict=True):
        assert not isinstance(row, TextError)
        np.testing.assert_array_equal(row.ids, alone.ids)
    for call in (minilm.tokenizer.count, lambda texts: minilm.tokenizer.encode(texts, max_tokens=16)):
        with pytest.raises(TextError) as caught:
            call(["good", bad])
        assert caught.value.index == 1
    with pytest.raises(TextError):
        minilm.tokenizer.offsets(bad)


def test_a_bad_document_fails_alone_and_a_bad_query_at_all(minilm: OpenedModel) -> None:
    pairs = minilm.tokenizer.try_encode_pairs("query", ["good", "\ud800"], max_tokens=32)
    assert isinstance(pairs[0], TokenizedPair)
    assert isinstance(pairs[1], TextError)
    with pytest.raises(TextError) as caught:
        minilm.tokenizer.try_encode_pairs("\ud800", ["good"], max_tokens=32)
    assert caught.value.index is None


def test_one_character_an_emoji_and_nothing_are_texts(minilm: OpenedModel) -> None:
    """EMB-02."""
    rows = minilm.tokenizer.encode(["a", "?", "1", "é", "的", "🙂", ""], max_tokens=256)
    assert [row.tokens for row in rows] == [3, 3, 3, 3, 3, 3, 2]
    assert all(row.tokens_cut == 0 for row in rows)


@settings(max_examples=60, deadline=None)
@given(
    texts=st.lists(texts_of_any_script, max_size=4),
    prefix=st.sampled_from(["", "query: ", "passage: "]),
    max_tokens=st.integers(8, 24),
    truncation=st.sampled_from(["end", "start"]),
)
def test_tokens_read_and_cut_add_up(
    minilm: OpenedModel, texts: list[str], prefix: str, max_tokens: int, truncation: Truncation
) -> None:
    rows = minilm.tokenizer.encode(texts, prefix=prefix, max_tokens=max_tokens, truncation=truncation)
    for row, tokens in zip(rows, minilm.tokenizer.count(texts, prefix), strict=True):
        assert row.tokens + row.tokens_cut == tokens
        assert row.tokens == min(tokens, max_tokens) == len(row.ids) == len(row.type_ids)
        assert (row.ids[0], row.ids[-1]) == (CLS, SEP)


@settings(max_examples=40, deadline=None)
@given(text=texts_of_any_script)
def test_offsets_are_code_points_in_order(minilm: OpenedModel, text: str) -> None:
    starts, ends = minilm.tokenizer.offsets(text)
    assert len(starts) == len(ends) == minilm.tokenizer.count([text])[0] - 2
    assert (starts <= ends).all()
    assert (np.diff(starts) >= 0).all()
    assert not len(ends) or ends.max() <= len(text)


def test_offsets_point_at_the_words(minilm: OpenedModel) -> None:
    text = "né 日本 🙂 reset"
    starts, ends = minilm.tokenizer.offsets(text)
    assert [text[start:end] for start, end in zip(starts, ends, strict=True)] == ["né", "日", "本", "🙂", "reset"]


def test_a_long_query_keeps_its_share_and_the_separator_is_last(minilm: OpenedModel) -> None:
    """RRK-05: only the document is cut while the query fits its share."""
    (pair,) = minilm.tokenizer.encode_pairs("q " * 40 + "KEYWORD", ["filler " * 2000], max_tokens=256)
    keyword = minilm.tokenizer.encode(["keyword"], max_tokens=256)[0].ids[1:-1].tolist()
    assert pair.query_tokens_cut == 0
    assert (pair.tokens, pair.tokens_cut) == (minilm.tokenizer.count(["filler " * 2000])[0] - 2, 0)
    for window in pair.windows:
        ids = window.ids.tolist()
        assert len(ids) <= 256
        assert ids[-1] == SEP
        assert ids[: pair.query_tokens + 2][-1 - len(keyword) : -1] == keyword
        assert window.type_ids.tolist() == [0] * (pair.query_tokens + 2) + [1] * (len(ids) - pair.query_tokens - 2)


def test_a_query_beyond_its_share_is_cut_and_counted(minilm: OpenedModel) -> None:
    (pair,) = minilm.tokenizer.encode_pairs("q " * 500, ["the port is 8443"], max_tokens=64)
    assert (pair.query_tokens, pair.query_tokens_cut) == (32, 468)
    (pair,) = minilm.tokenizer.encode_pairs("q " * 500, ["the port is 8443"], max_tokens=64, min_query_share=0.25)
    assert (pair.query_tokens, pair.query_tokens_cut) == (16, 484)


def test_the_tail_of_a_long_document_stands_in_a_window(minilm: OpenedModel) -> None:
    """RRK-06."""
    documents = ["pad " * 900 + "the port is 8443", "unrelated text"]
    long, short = minilm.tokenizer.encode_pairs("which port", documents, max_tokens=256)
    tail = minilm.tokenizer.encode(["the port is 8443"], max_tokens=256)[0].ids[1:].tolist()
    assert long.windows[-1].ids[-len(tail) :].tolist() == tail
    assert long.tokens_cut == 0
    assert len(short.windows) == 1


def test_windows_beyond_the_limit_are_counted_as_cut(minilm: OpenedModel) -> None:
    (pair,) = minilm.tokenizer.encode_pairs("which port", ["pad " * 2000], max_tokens=64, windows=3)
    assert len(pair.windows) == 3
    assert pair.tokens + pair.tokens_cut == 2000
    assert [window.tokens_cut for window in pair.windows] == [0, 0, pair.tokens_cut]


@settings(max_examples=60, deadline=None)
@given(
    words=st.integers(0, 400),
    query_words=st.integers(0, 60),
    max_tokens=st.integers(16, 64),
    windows=st.integers(1, 40),
    overlap=st.sampled_from([0.0, 0.25, 0.9]),
)
def test_windows_cover_the_document_without_a_gap(
    minilm: OpenedModel, words: int, query_words: int, max_tokens: int, windows: int, overlap: float
) -> None:
    (pair,) = minilm.tokenizer.encode_pairs(
        "q " * query_words,
        [" ".join(f"{number % 10}" for number in range(words))],
        max_tokens=max_tokens,
        windows=windows,
        overlap_share=overlap,
    )
    assert 1 <= len(pair.windows) <= windows
    assert pair.tokens + pair.tokens_cut == words
    assert pair.query_tokens + pair.query_tokens_cut == query_words
    assert pair.query_tokens >= min(query_words, max_tokens // 2 - 3)
    pieces = [window.ids[pair.query_tokens + 2 : -1] for window in pair.windows]
    assert all(window.tokens == len(window.ids) <= max_tokens for window in pair.windows)
    assert sum(len(piece) for piece in pieces) >= pair.tokens
    if words:
        ids = minilm.tokenizer.encode([" ".join(f"{number % 10}" for number in range(words))], max_tokens=10_000)[0].ids
        assert pieces[0].tolist() == ids[1 : 1 + len(pieces[0])].tolist()
        end = 1 + pair.tokens
        assert pieces[-1].tolist() == ids[end - len(pieces[-1]) : end].tolist()


def test_one_tokenizer_serves_many_threads(minilm: OpenedModel) -> None:
    texts = [f"text number {number} " * (number % 7) for number in range(40)]
    alone = [minilm.tokenizer.encode([text], max_tokens=16, truncation="start")[0].ids.tolist() for text in texts]
    with ThreadPoolExecutor(8) as pool:
        runs = pool.map(lambda _: minilm.tokenizer.encode(texts, max_tokens=16, truncation="start"), range(40))
        for rows in runs:
            assert [row.ids.tolist() for row in rows] == alone


@pytest.mark.parametrize(
    ("option", "value"), [("windows", 0), ("min_query_share", 1.0), ("overlap_share", 1.0), ("max_tokens", 4)]
)
def test_an_impossible_option_is_refused(minilm: OpenedModel, option: str, value: float) -> None:
    with pytest.raises(ValueError, match=option):
        minilm.tokenizer.encode_pairs("query", ["document"], **{"max_tokens": 64, option: value})  # type: ignore[arg-type] # one of several types
