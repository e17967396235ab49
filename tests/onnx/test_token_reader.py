"""Looking at a model's tokens, and cutting pairs as `tokenizers` itself does."""

import asyncio
import threading

import pytest
import tiny_models
from hypothesis import given, settings
from hypothesis import strategies as st
from kbmesh_onnx.batcher import QueueFullError
from kbmesh_onnx.errors import TextTooLong
from kbmesh_onnx.token_reader import TokenReader, UnknownTokenError
from kbmesh_onnx.tokenizer import ModelTokenizer, TokenizedPair

WORDS = tiny_models.WORDS.split()


def reader(**options: int) -> TokenReader:
    return TokenReader(ModelTokenizer(tiny_models.tiny_tokenizer()), **options)


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet="aé的日 .port👩\u200d\t", max_size=30))
def test_each_token_says_where_it_stands_in_bytes(text: str) -> None:
    tokens = reader()._read(text, True)
    encoded = text.encode()
    assert [token.text for token in (tokens[0], tokens[-1])] == ["[CLS]", "[SEP]"]
    place = 0
    for token in tokens[1:-1]:
        assert not token.special
        assert token.start is not None
        assert token.end is not None
        assert place <= token.start < token.end <= len(encoded)
        assert encoded[token.start : token.end].decode() == token.text
        place = token.end


@pytest.mark.parametrize("look", ["places", "tokens"])
async def test_a_long_text_does_not_hold_the_process_while_it_is_read(look: str) -> None:
    tokenizer = ModelTokenizer(tiny_models.tiny_tokenizer())
    text = "x" * 600_000  # one token, so that all the time goes into reading it
    work = (lambda: tokenizer.offsets(text)) if look == "places" else (lambda: TokenReader(tokenizer)._read(text, True))
    reading = asyncio.get_running_loop().run_in_executor(None, work)
    turns = 0
    while not reading.done():
        await asyncio.sleep(0.001)
        turns += 1
    await reading
    assert turns > 10


async def test_a_token_that_does_not_exist_is_named() -> None:
    tokens = reader()
    size = len(tiny_models.tiny_vocabulary())
    assert await tokens.text([5, size - 1], skip_special_tokens=True)
    for ids, position in (([size], 0), ([5, -1], 1), ([5, 5, 2**32 - 1], 2)):
        with pytest.raises(UnknownTokenError) as error:
            await tokens.text(ids, skip_special_tokens=True)
        assert error.value.position == position
    tokens.close()


async def test_characters_that_wait_are_limited() -> None:
    tokens = reader(limit_characters=10)
    held = threading.Event()
    tokens._thread.submit(held.wait)
    # Larger than the limit, but alone.
    first = asyncio.create_task(tokens.tokens("x" * 12, special_tokens=False))
    await asyncio.sleep(0)
    with pytest.raises(QueueFullError) as refusal:
        await tokens.tokens("y", special_tokens=False)
    assert refusal.value.retry_after_seconds > 0
    held.set()
    await first
    assert await tokens.tokens("y", special_tokens=False)
    tokens.close()


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 30), st.integers(0, 30), st.integers(6, 24), st.sampled_from(["end", "start"]))
def test_pairs_are_cut_as_the_library_cuts_them(query: int, document: int, limit: int, side: str) -> None:
    first, second = (" ".join((WORDS * 2)[:count]) for count in (query, document))
    library = tiny_models.tiny_tokenizer()
    library.no_padding()
    library.enable_truncation(limit, strategy="longest_first", direction="right" if side == "end" else "left")
    expected = library.encode(first, second)
    model = ModelTokenizer(tiny_models.tiny_tokenizer())
    (pair,) = model.try_encode_pairs(first, [second], max_tokens=limit, truncation=side)
    assert isinstance(pair, TokenizedPair)
    (window,) = pair.windows
    assert window.ids.tolist() == expected.ids
    assert window.type_ids.tolist() == expected.type_ids
    assert (pair.tokens + pair.tokens_cut, pair.query_tokens + pair.query_tokens_cut) == (document, query)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 30), st.lists(st.integers(0, 30), min_size=1, max_size=4), st.integers(6, 40))
def test_pairs_that_may_not_be_cut_are_whole_or_refused(query: int, documents: list[int], limit: int) -> None:
    model = ModelTokenizer(tiny_models.tiny_tokenizer())
    texts = [" ".join((WORDS * 2)[:count]) for count in (query, *documents)]
    pairs = model.try_encode_pairs(texts[0], texts[1:], max_tokens=limit, truncation="none")
    for index, (pair, count) in enumerate(zip(pairs, documents, strict=True)):
        tokens = query + count + 3
        if tokens > limit:
            assert isinstance(pair, TextTooLong)
            assert (pair.index, pair.tokens, pair.limit) == (index, tokens, limit)
        else:
            assert isinstance(pair, TokenizedPair)
            assert (pair.windows[0].tokens, pair.tokens_cut, pair.query_tokens_cut) == (tokens, 0, 0)
