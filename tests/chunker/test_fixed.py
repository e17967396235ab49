"""FIXED: windows of one size, on texts that have made other chunkers fail."""

import itertools
from collections.abc import Sequence

import pytest
from chunker.conftest import Chunk
from chunker.laws import check_laws, check_windows
from kbmesh_chunker.config import Strategy
from kbmesh_chunker.cutter import Cutter, Limits
from kbmesh_chunker.measure import CharacterMeasure
from kbmesh_rpc.errors import InvalidField


def windows(text: str, size: int, overlap: int = 0, minimum: int = 0) -> list[str]:
    """The windows of a text, checked."""
    limits = Limits(size=size, overlap=overlap, minimum=minimum)
    spans = list(Cutter(text=text, limits=limits, measure=CharacterMeasure(text_length=len(text))).cut(0, len(text)))
    check_windows(text, spans)
    return [text[start:end] for start, end in spans]


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({"size": 8, "overlap": 8}, "config.overlap"),
        ({"size": 8, "overlap": 9}, "config.overlap"),
        ({"size": 0, "overlap": 0}, "config.size"),
        ({"size": 8, "overlap": -1}, "config.overlap"),
    ],
)
async def test_fix_01_a_step_that_is_not_forward_is_refused_before_the_work(
    chunk: Chunk, config: dict[str, int], field: str
) -> None:
    with pytest.raises(InvalidField) as refused:
        await chunk("abcdefghij" * 3, strategy=Strategy.FIXED, **config)
    assert refused.value.metadata["field"] == field


async def test_fix_10_a_short_tail_is_kept(chunk: Chunk) -> None:
    text = "Ordinary filler sentence number one is here. " * 8 + "Rollback code: 7741."
    chunked = await chunk(text, strategy=Strategy.FIXED, size=120, minimum=50)
    assert "Rollback code: 7741." in chunked.chunks[-1].text
    assert len(chunked.chunks[-1].text) >= 50
    alone = await chunk("Rollback code: 7741.", strategy=Strategy.FIXED, size=120, minimum=50)
    assert [piece.text for piece in alone.chunks] == ["Rollback code: 7741."]


async def test_fix_11_chinese_without_spaces_keeps_the_models_limit(chunk: Chunk) -> None:
    chunked = await chunk(
        "数据库迁移前必须先做备份再执行脚本" * 300, strategy=Strategy.FIXED, embedding_model="word-pieces"
    )
    check_laws(chunked)
    counts = [piece.token_count for piece in chunked.chunks]
    assert all(count is not None and count <= 256 for count in counts)
    # As few chunks as the limit allows, more or less.
    assert len(counts) < 300 * 17 / 256 * 1.4


def test_fix_12_words_are_not_glued() -> None:
    text = "alpha bravo charlie delta echo foxtrot " * 10
    for window in windows(text, size=40):
        assert window in text
        assert set(window.split()) <= set(text.split()), "no word is cut where there are spaces"


def test_windows_end_at_sentences_and_repeat_whole_ones() -> None:
    sentences = [f"Sentence number {number} tells of backups." for number in range(30)]
    found = windows(" ".join(sentences), size=200, overlap=60)
    for window in found:
        assert window.endswith("backups.")
        assert window.startswith("Sentence")
    for before, after in itertools.pairwise(found):
        repeated = next(sentence for sentence in sentences if after.startswith(sentence))
        assert before.endswith(repeated)


async def test_no_overlap_where_no_word_fits_it(chunk: Chunk) -> None:
    text = "alpha bravo charlie delta echo foxtrot " * 3
    chunked = await chunk(text, strategy=Strategy.FIXED, size=40)
    check_laws(chunked)
    assert len(chunked.chunks) > 1
    assert all(set(found.text.split()) <= set(text.split()) for found in chunked.chunks)


def test_text_without_spaces_overlaps_between_characters() -> None:
    for text in ("数据库迁移前必须先做备份再执行脚本" * 10, "x" * 200):
        for before, after in itertools.pairwise(windows(text, size=40, overlap=5)):
            assert before.endswith(after[:5])


@pytest.mark.parametrize("text", ["က\u102c" * 40, "က\u102b\u1038" * 40, "x" * 9 + "\u102c" * 300 + "y" * 50])
def test_no_window_starts_with_a_spacing_mark(text: str) -> None:
    found = windows(text, size=7, overlap=2)
    assert sum(text.startswith(("\u102c", "\u102b", "\u1038")) for text in found) <= len(text) // 128
    if "x" not in text:
        assert all(window.startswith("က") for window in found)


def test_lines_of_code_keep_their_indentation() -> None:
    code = "class Backup:\n" + "".join(f"    def step_{i}(self):\n        return self.run({i})\n" for i in range(40))
    found = windows(code, size=200, overlap=0, minimum=50)
    assert all(window.startswith(("class", "    def", "        return")) for window in found)
    assert any(window.startswith("    def") for window in found)


def test_a_word_that_is_longer_than_a_window_is_cut_and_kept() -> None:
    text = "start " + "x" * 100_000 + " end"
    found = windows(text, size=1500, overlap=0, minimum=500)
    assert sum(window.count("x") for window in found) == 100_000
    assert max(map(len, found)) <= 2000


@pytest.mark.parametrize(
    "text",
    [
        "a" + " " * 200_000 + "b",
        "\n" * 100_000 + "a",
        "." * 100_000,
        "\u0301" * 50_000,
        "🇩🇪" * 3_000,
        "क्षि" * 20_000,
        "\u1112" * 50_000,
        "👩\u200d" * 30_000,
        "\u102c" * 50_000,
        "x. " * 60_000,
        "ไทย " * 50_000,
    ],
    ids=[
        "spaces",
        "lines",
        "dots",
        "marks",
        "flags",
        "conjuncts",
        "jamo",
        "joiners",
        "vowels",
        "short-sentences",
        "thai",
    ],
)
def test_long_runs_of_one_thing_end(text: str) -> None:
    """Each takes a fraction of a second; one that took quadratic time would meet the test's time limit."""
    found: Sequence[str] = windows(text, size=1500, overlap=150, minimum=500)
    assert found


async def test_an_overlap_that_multiplies_a_document_is_refused(chunk: Chunk) -> None:
    with pytest.raises(InvalidField) as refused:
        await chunk("word " * 100_000, strategy=Strategy.FIXED, size=1500, overlap=1499)
    assert refused.value.metadata["field"] == "config.overlap"
