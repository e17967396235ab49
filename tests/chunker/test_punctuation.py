"""Punctuation is no chunk of its own, however small the minimum."""

import pytest
import regex
from chunker.conftest import Chunk
from chunker.laws import check_laws, check_windows
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kbmesh_chunker import graphemes
from kbmesh_chunker.blank import last_substance, substance_end
from kbmesh_chunker.config import Strategy
from kbmesh_chunker.cutter import Cutter, Limits
from kbmesh_chunker.measure import CharacterMeasure

CHINESE = "数据库迁移前必须先做备份再执行脚本，然后检查日志并确认没有错误再进行下一步骤。\n\n。"
WORDS = "Words here and more of them now.\n\n***"


@pytest.mark.parametrize("strategy", [Strategy.FIXED, Strategy.SEMANTIC, Strategy.DOCUMENT])
@pytest.mark.parametrize("minimum", [0, 1, 4, None])
@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("Para. " * 6 + "\n\n.", 36),
        (WORDS, 32),
        (CHINESE, 32),
        (CHINESE, 39),
        ("***\n\n# Title\n\nText of it.\n\n# Next\n\n***", 20),
        ("First point.  . Second point.   \n\n . \n\nThird point.", 14),
        ("call(\n  one,\n  two\n)\n\n}\n\n}\n\nnext", 14),
    ],
)
async def test_sem_08_no_chunk_is_punctuation_alone(
    chunk: Chunk, text: str, size: int, minimum: int | None, strategy: Strategy
) -> None:
    for overlap in (0, None):
        chunked = await chunk(
            text, strategy=strategy, size=size, overlap=overlap, minimum=minimum, media_type="text/markdown"
        )
        check_laws(chunked)
        for found in chunked.chunks:
            assert any(character.isalnum() for character in found.text), [each.text for each in chunked.chunks]
            assert not found.oversize


async def test_a_document_of_punctuation_is_a_chunk(chunk: Chunk) -> None:
    for strategy in (Strategy.FIXED, Strategy.SEMANTIC, Strategy.DOCUMENT):
        chunked = await chunk("...\n\n***", strategy=strategy, size=12, minimum=0)
        check_laws(chunked)
        assert [found.text for found in chunked.chunks] == ["...\n\n***"]


@given(
    text=st.lists(
        st.sampled_from(["word", "a", "é", "e\u0301", " ", ". ", ".", "***", "\n", "\n\n", "。", "中"]), max_size=60
    ).map("".join),
    size=st.integers(1, 60),
    minimum=st.floats(0, 1),
)
@example(text="Para. " * 6 + "\n\n.", size=36, minimum=0.0)
@example(text="wordworda. ***word. ", size=9, minimum=0.0)
@example(text="***************a. ", size=16, minimum=0.0)
@example(text="word***a . ", size=3, minimum=0.0)
@settings(max_examples=500, deadline=None)
def test_punctuation_stands_alone_only_where_no_letter_before_it_can_be_spared(
    text: str, size: int, minimum: float
) -> None:
    """Of two letters beside each other the second can go with the punctuation that follows, if there is room for both.

    A single letter between two runs of punctuation may be needed by the one or the other. So with overlap, where a
    window may have but one letter that is new.
    """
    limits = Limits(size=size, overlap=0, minimum=int(minimum * size))
    spans = list(Cutter(text=text, limits=limits, measure=CharacterMeasure(text_length=len(text))).cut(0, len(text)))
    check_windows(text, spans)
    for start, end in spans:
        letter = last_substance(text, 0, start)
        if substance_end(text, start, end) is not None or letter is None:
            continue
        following = regex.compile(r"[^\p{L}]*").match(text, end)
        assert following is not None
        room = len(text[letter : following.end()].rstrip()) <= size
        beside = letter > 0 and last_substance(text, graphemes.floor(text, letter - 1), letter) is not None
        assert not (room and beside), [text[first:last] for first, last in spans]
