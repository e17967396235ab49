"""Tokens of a model that runs elsewhere: counted by its tokenizer, or estimated; texts cut and taken apart by them."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kbmesh_onnx.errors import ModelFolderError
from kbmesh_onnx.token_counter import EstimatingCounter, ExactCounter, TokenCounter, cut_text, open_counter, windows
from opened_model import OpenedModel

TEXTS = st.text(alphabet=st.characters(codec="utf-8"), max_size=120)
WORDS = " ".join(f"word{number}" for number in range(100))


@pytest.fixture(params=["estimated", "exact"])
def counter(request: pytest.FixtureRequest) -> TokenCounter:
    if request.param == "estimated":
        return EstimatingCounter()
    model: OpenedModel = request.getfixturevalue("minilm")
    return ExactCounter(model.tokenizer)


def test_a_tokenizer_counts_as_the_model_does(minilm: OpenedModel) -> None:
    counter = ExactCounter(minilm.tokenizer)
    assert counter.exact
    assert counter.count(["hello world", ""]) == [4, 2]
    assert counter.places("hello world") == ([0, 6], [5, 11])


def test_an_estimate_is_more_than_a_tokenizer_makes_of_prose(minilm: OpenedModel) -> None:
    prose = "The quick brown fox jumps over the lazy dog, and nobody knows why it does so every single morning."
    chinese = "为这个句子生成表示以用于检索相关文章"
    for text in (prose, chinese):
        assert EstimatingCounter().count([text])[0] >= ExactCounter(minilm.tokenizer).count([text])[0]


@pytest.mark.parametrize("from_start", [False, True])
@pytest.mark.parametrize("most", [3, 10, 64, 1000])
def test_a_cut_text_fits_and_is_the_beginning_or_the_end(counter: TokenCounter, from_start: bool, most: int) -> None:
    cut = cut_text(counter, WORDS, max_tokens=most, from_start=from_start)
    (whole,) = counter.count([WORDS])
    assert cut.tokens == counter.count([cut.text])[0] <= max(most, counter.special_tokens + 1)
    assert cut.tokens + cut.tokens_cut == whole
    assert WORDS.endswith(cut.text) if from_start else WORDS.startswith(cut.text)
    if most < 1000:
        assert cut.tokens >= most - 3


@given(text=TEXTS, most=st.integers(min_value=3, max_value=30))
@settings(max_examples=60)
def test_whatever_is_cut_fits(text: str, most: int) -> None:
    counter = EstimatingCounter()
    cut = cut_text(counter, text, max_tokens=most)
    assert counter.count([cut.text])[0] <= most
    assert text.startswith(cut.text)


@pytest.mark.parametrize(("window", "overlap"), [(10, 2), (50, 0), (1, 0), (7, 6)])
def test_windows_hold_every_token_and_overlap(counter: TokenCounter, window: int, overlap: int) -> None:
    parts, tokens, cut = windows(counter, WORDS, window_tokens=window, overlap_tokens=overlap, max_windows=10_000)
    assert cut == 0
    assert tokens == len(counter.places(WORDS)[0])
    at = reached = 0
    for part in parts:
        at = WORDS.index(part, at if overlap else reached)
        assert not WORDS[reached:at].strip()
        reached = max(reached, at + len(part))
    assert reached == len(WORDS)


def test_windows_beyond_the_most_are_counted_as_cut(counter: TokenCounter) -> None:
    parts, tokens, cut = windows(counter, WORDS, window_tokens=10, overlap_tokens=2, max_windows=3)
    assert (len(parts), tokens) == (3, 26)
    assert tokens + cut == len(counter.places(WORDS)[0])


def test_a_tokenizer_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    broken = tmp_path / "tokenizer.json"
    broken.write_text("{}")
    for path in (broken, tmp_path / "absent.json"):
        with pytest.raises(ModelFolderError, match=path.name):
            open_counter(path)
    assert not open_counter(None).exact
