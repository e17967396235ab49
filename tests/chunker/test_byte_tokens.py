"""Models whose tokens are bytes: a character may be several tokens, whose places then repeat or overlap."""

from collections.abc import Sequence
from concurrent.futures import Executor
from functools import cache

import pytest
from chunker.laws import check_windows
from hypothesis import given, settings
from hypothesis import strategies as st
from kbmesh_chunker.chunking import Chunker
from kbmesh_chunker.config import ConfigRequest, SizeUnit, Strategy
from kbmesh_chunker.cutter import Cutter, Limits, TokenCap
from kbmesh_chunker.documents.reading import ReadingLimits
from kbmesh_chunker.documents.source import SourceDocument
from kbmesh_chunker.graphemes import is_boundary
from kbmesh_chunker.measure import BoundedTokenMeasure
from kbmesh_chunker.token_counter import TokenCount, TokenCounts, measure_tokens
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

TEXTS = ["The words of a text, and more of them.", "naïve café", "Wörter und Sätze."] * 4
WORDS = st.sampled_from(
    ["word ", "a", "é", "中", "漢字。", "👩\u200d👧", "🇩🇪", "e\u0301", ". ", "\n\n", "ไทย", "the ", "  "]
)


@cache
def tokenizer() -> Tokenizer:
    """A small byte-level BPE: letters of English are joined, what else there is falls apart into bytes."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(TEXTS, trainers.BpeTrainer(vocab_size=320, initial_alphabet=alphabet, show_progress=False))
    return made


class ByteCounter:
    """Counts with that tokenizer; two special tokens are around each text."""

    def __init__(self, max_tokens: int) -> None:
        self.max_tokens = max_tokens

    async def count(self, texts: Sequence[str], *, model: str, offsets: bool) -> TokenCounts:
        counts = []
        for encoding in tokenizer().encode_batch(list(texts)):
            places = encoding.offsets if offsets else []
            counts.append(
                TokenCount(
                    tokens=len(encoding.ids) + 2,
                    starts=[start for start, _ in places],
                    ends=[end for _, end in places],
                )
            )
        return TokenCounts(counts=counts, max_tokens=self.max_tokens, model_fingerprint="bytes-1")


def tokens_of(text: str) -> int:
    return len(tokenizer().encode(text).ids)


def test_tokens_split_characters() -> None:
    """What the rest is about: tokens of one character have the same place."""
    offsets = tokenizer().encode("👩").offsets
    assert offsets == [(0, 1)] * 4


@given(text=st.lists(WORDS, min_size=1, max_size=60).map("".join), size=st.integers(1, 40), cap=st.integers(1, 40))
@settings(max_examples=150, deadline=None)
async def test_windows_hold_no_more_tokens_than_asked_for(text: str, size: int, cap: int) -> None:
    if not text.strip():
        return
    tokens = await measure_tokens(ByteCounter(512), text, model="bytes")
    assert tokens.measure.total == tokens_of(text)
    cutter = Cutter(
        text=text,
        limits=Limits(size=size, overlap=size // 4, minimum=0),
        measure=BoundedTokenMeasure(tokens=tokens.measure),
        cap=TokenCap(measure=tokens.measure, tokens=cap),
    )
    spans = list(cutter.cut(0, len(text)))
    check_windows(text, spans)
    for start, end in spans:
        counted = tokens.measure.length(start, end)
        single = not any(is_boundary(text, place, start) for place in range(start + 1, end))
        assert counted <= min(size, cap) or single


@pytest.mark.parametrize("strategy", [Strategy.FIXED, Strategy.SEMANTIC, Strategy.DOCUMENT])
@pytest.mark.parametrize("unit", [SizeUnit.CHARACTERS, SizeUnit.TOKENS])
async def test_no_chunk_has_more_tokens_than_the_model_reads(
    executor: Executor, strategy: Strategy, unit: SizeUnit
) -> None:
    counter = ByteCounter(max_tokens=48)
    chunker = Chunker(limits=ReadingLimits(), counter=counter, executor=executor)
    text = "# Über naïve Wörter\n\n" + "漢字の文章。 Some words, 👩\u200d👩\u200d👧 and more. ไทย ภาษา\n\n" * 40
    request = ConfigRequest(strategy=strategy, size=600, unit=unit, embedding_model="bytes")
    chunked = await chunker.chunk(SourceDocument(content=text, media_type="text/markdown"), request, deadline=None)
    assert len(chunked.chunks) > 20
    for chunk in chunked.chunks:
        embedded = f"{chunk.piece.context}\n\n{chunk.text}" if chunk.piece.context else chunk.text
        assert chunk.token_count == tokens_of(embedded) + 2 <= 48
