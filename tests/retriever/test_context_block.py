"""A prompt gets as much as fits, in whole sentences, and never more."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kbmesh_retriever.attribution.context_block import ContextBlock, Source, build_context_block, estimate_tokens
from kbmesh_retriever.attribution.context_tokenizer import ContextTokenizers
from kbmesh_retriever.attribution.sentences import sentence_ends
from kbmesh_rpc.errors import DependencyInvalidResponse, DependencyUnavailable
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

Count = Callable[[Sequence[str]], Awaitable[Sequence[int]]]


async def words(texts: Sequence[str]) -> Sequence[int]:
    """A tokenizer: two special tokens and one for each word."""
    return [2 + len(text.split()) for text in texts]


def source(number: int, text: str, context: str = "") -> Source:
    return Source(chunk_id=UUID(int=number), label=f"Doc {number}", context=context, text=text)


def numbers(block: ContextBlock) -> list[int]:
    return [citation.chunk_id.int for citation in block.citations]


async def test_all_that_fits_is_numbered_in_order() -> None:
    block = await build_context_block([source(7, "First.", "In general"), source(9, "Second.")], 100, words)
    assert block.text == "[1] Doc 7\nIn general\nFirst.\n\n[2] Doc 9\nSecond."
    assert (block.tokens, block.estimated) == (12, False)
    assert [(one.number, one.chunk_id.int, one.label) for one in block.citations] == [(1, 7, "Doc 7"), (2, 9, "Doc 9")]
    assert (block.number_of(UUID(int=9)), block.number_of(UUID(int=8))) == (2, 0)


async def test_what_does_not_fit_is_cut_at_a_sentence() -> None:
    long = "One two three four. Five six seven eight. Nine ten eleven twelve. Thirteen fourteen fifteen."
    block = await build_context_block([source(1, "Short."), source(2, long)], 20, words)
    assert block.text == "[1] Doc 1\nShort.\n\n[2] Doc 2\nOne two three four. Five six seven eight."
    assert block.tokens <= 20


async def test_what_cannot_be_cut_is_left_out_and_a_smaller_one_after_it_comes_in() -> None:
    endless = "word " * 100
    block = await build_context_block([source(1, endless), source(2, "Small one.")], 20, words)
    assert numbers(block) == [2]
    assert block.text == "[1] Doc 2\nSmall one."


async def test_japanese_is_cut_at_its_own_full_stop() -> None:
    async def characters(texts: Sequence[str]) -> Sequence[int]:
        return [len(text) for text in texts]

    text = "障害が発生しました。原因は調査中です。" + "復旧の見込みは未定です。" * 5
    block = await build_context_block([source(1, text)], 30, characters)
    assert block.text == "[1] Doc 1\n障害が発生しました。原因は調査中です。"


async def test_without_a_tokenizer_the_tokens_are_estimated_and_say_so() -> None:
    async def down(texts: Sequence[str]) -> Sequence[int]:
        raise DependencyUnavailable("embedder", "down")

    block = await build_context_block([source(1, "First."), source(2, "Second.")], 100, down)
    assert block.estimated
    assert isinstance(block.uncounted, DependencyUnavailable)
    assert block.tokens == estimate_tokens(block.text)
    assert estimate_tokens("abcd" * 10) == 10
    assert estimate_tokens("障害発生") == 4


async def test_a_tokenizer_that_counts_fewer_texts_than_there_are_is_not_believed() -> None:
    async def forgetful(texts: Sequence[str]) -> Sequence[int]:
        return [1] * (len(texts) - 1)

    block = await build_context_block([source(1, "First."), source(2, "Second.")], 100, forgetful)
    assert isinstance(block.uncounted, DependencyInvalidResponse)
    assert block.tokens == estimate_tokens(block.text)


async def test_nothing_to_say() -> None:
    block = await build_context_block([], 100, words)
    assert (block.text, block.tokens, block.citations) == ("", 0, ())


async def test_a_text_with_its_neighbours_gives_way_to_the_text_alone() -> None:
    alone = source(2, "The answer is seven. It was always seven.")
    around = replace(alone, text=f"{'Before it. ' * 10}{alone.text}{' After it.' * 10}", shorter=alone)
    block = await build_context_block([source(1, "Short."), around], 100, words)
    assert block.text.endswith("After it.")
    block = await build_context_block([source(1, "Short."), around], 22, words)
    assert block.text == f"[1] Doc 1\nShort.\n\n[2] Doc 2\n{alone.text}"
    assert [citation.cut for citation in block.citations] == [False, False]
    block = await build_context_block([source(1, "Short."), around], 16, words)
    assert block.text == "[1] Doc 1\nShort.\n\n[2] Doc 2\nThe answer is seven."
    assert [citation.cut for citation in block.citations] == [False, True]


async def test_a_cut_is_the_last_sentence_that_fits_whatever_the_length() -> None:
    text = " ".join(f"Sentence number {number} has exactly these words." for number in range(200))
    calls: list[int] = []

    async def counted(texts: Sequence[str]) -> Sequence[int]:
        calls.append(len(texts))
        return await words(texts)

    for budget in (11, 12, 19, 300, 1404):
        calls.clear()
        block = await build_context_block([source(1, text)], budget, counted)
        assert (budget - 5) // 7 == len(block.text.splitlines()[1].split(". ")) if budget >= 12 else block.text == ""
        assert len(calls) <= 6


async def test_code_is_cut_between_lines() -> None:
    code = "def pay():\n    total = 1.5 * price. amount\n    return total\n\n\ndef refund():\n    return None"
    block = await build_context_block([replace(source(1, code), by_lines=True)], 14, words)
    assert block.text == "[1] Doc 1\ndef pay():\n    total = 1.5 * price. amount"


async def test_a_joined_text_that_counts_more_than_its_parts_still_fits() -> None:
    async def greedy(texts: Sequence[str]) -> Sequence[int]:
        """The gaps between sources count as well."""
        return [len(text.split()) + 5 * text.count("\n\n") for text in texts]

    three = [source(number, "One two. Three four.") for number in (1, 2, 3)]
    block = await build_context_block(three, 25, greedy)
    assert block.tokens <= 25
    assert numbers(block) == [1, 2]
    alone = source(2, "Yes.")
    around = replace(alone, text="Before it. Yes. After it.", shorter=alone)
    block = await build_context_block([source(1, "One two."), around], 14, greedy)
    assert block.text == "[1] Doc 1\nOne two.\n\n[2] Doc 2\nYes."


WRITTEN = {
    "en": ["Dr. Smith left at 5 p.m. on Monday.", "Did J. S. Bach write it?", 'He said "Stop!" and went on.', "Yes!"],
    "de": ["Am 3. Mai fiel z. B. Nr. 5 aus.", "Warum?", "Das ist Bd. 2 von Prof. Müller."],
    "ru": ["Он жил на ул. Ленина в г. Москве.", "Почему?", "Всё работает снова!"],
    "zh": ["系统发生了故障。", "他说“没有问题！”然后离开了。", "原因是什么？", "正在调查！"],
    "ja": ["障害が発生しました。", "「調査中です。」と言った。", "復旧しましたか？"],
    "ar": ["هل تعمل الخدمة؟", "نعم، إنها تعمل الآن.", "انتهى العطل!"],
    "hi": ["यह पहला वाक्य है।", "क्या यह दूसरा है?", "सेवा चल रही है।"],
    "th": ["ระบบล่มเมื่อเช้านี้", "ตอนนี้ใช้งานได้แล้ว", "กรุณาตรวจสอบอีกครั้ง"],
    "ko": ["서비스가 중단되었습니다.", "원인은 무엇입니까?", "복구되었습니다!"],
}
UNSPACED = {"zh", "ja"}


def joined(language: str, sentences: Sequence[str]) -> str:
    return ("" if language in UNSPACED else " ").join(sentences)


@pytest.mark.parametrize("language", WRITTEN)
def test_no_place_within_a_sentence_is_an_end(language: str) -> None:
    text = joined(language, WRITTEN[language])
    ends = set()
    place = 0
    for sentence in WRITTEN[language]:
        place = text.index(sentence, place) + len(sentence)
        ends.add(place)
    found = list(sentence_ends(text))
    assert found == sorted(found)
    assert set(found) <= ends
    assert len(found) >= len(ends) - 2, "most of them are found"


def test_a_line_that_was_full_is_no_end_and_an_item_of_a_list_is_one() -> None:
    text = (
        "The quick brown fox jumps over\nthe lazy dog and then it goes\nHome again. It sleeps.\n\nA title\n"
        "- one thing\n- another thing\n\nThe end of it"
    )
    parts, last = [], 0
    for end in [*sentence_ends(text), len(text)]:
        parts.append(text[last:end].strip())
        last = end
    assert parts == [
        "The quick brown fox jumps over\nthe lazy dog and then it goes\nHome again.",
        "It sleeps.",
        "A title",
        "- one thing",
        "- another thing",
        "The end of it",
    ]


@given(st.text(alphabet='aB1.。!?"」) \n\r\t-ก ำ\u0301…', max_size=60), st.booleans())
@settings(max_examples=200, deadline=None)
def test_ends_lie_behind_something_and_before_something(text: str, by_lines: bool) -> None:
    ends = list(sentence_ends(text, by_lines=by_lines))
    assert ends == sorted(set(ends))
    assert all(0 < end < len(text) and text[:end].strip() for end in ends)
    assert all(not text[end - 1].isspace() for end in ends)


@pytest.fixture(scope="module")
def tokenizer_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small byte-level BPE, as those of language models are; its file says that texts are cut and filled up."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    corpus = [joined(language, sentences) for language, sentences in WRITTEN.items()] * 3
    trainer = trainers.BpeTrainer(
        vocab_size=500, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(corpus, trainer)
    tokenizer.enable_truncation(8)
    tokenizer.enable_padding(length=8)
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    tokenizer.save(str(path))
    return path


async def characters(texts: Sequence[str]) -> Sequence[int]:
    return [len(text) for text in texts]


written = st.sampled_from(sorted(WRITTEN)).flatmap(
    lambda language: st.tuples(st.just(language), st.lists(st.sampled_from(WRITTEN[language]), min_size=1, max_size=8))
)


@pytest.mark.parametrize("counter", ["words", "characters", "bpe"])
@given(written=st.lists(written, max_size=5), budget=st.integers(0, 260))
@settings(max_examples=60, deadline=None)
async def test_the_budget_is_never_exceeded_and_no_sentence_is_cut(
    counter: str, tokenizer_file: Path, written: list[tuple[str, list[str]]], budget: int
) -> None:
    tokenizers = ContextTokenizers.load(f"small={tokenizer_file}")

    async def bpe(texts: Sequence[str]) -> Sequence[int]:
        return await tokenizers.count(texts, name="small")

    count: Count = {"words": words, "characters": characters, "bpe": bpe}[counter]
    sources = [
        source(number, joined(language, sentences), context="Guide > Install" if number % 2 else "")
        for number, (language, sentences) in enumerate(written, start=1)
    ]
    block = await build_context_block(sources, budget, count)
    assert block.tokens <= budget
    assert [block.tokens] == list(await count([block.text])) or not block.text
    assert [citation.number for citation in block.citations] == list(range(1, len(block.citations) + 1))
    assert numbers(block) == sorted(numbers(block))
    parts = block.text.split("\n\n") if block.text else []
    for place, (part, citation) in enumerate(zip(parts, block.citations, strict=True), start=1):
        language, sentences = written[citation.chunk_id.int - 1]
        original = sources[citation.chunk_id.int - 1]
        header = "\n".join(filter(None, [f"[{place}] {original.label}", original.context, ""]))
        assert part.startswith(header)
        text = part.removeprefix(header).removeprefix("\n")
        whole = [joined(language, sentences[:taken]) for taken in range(1, len(sentences) + 1)]
        assert text in whole
        assert citation.cut == (text != whole[-1])


async def test_tokenizers_are_known_by_their_names(tokenizer_file: Path) -> None:
    tokenizers = ContextTokenizers.load(f" small = {tokenizer_file} , other={tokenizer_file},")
    assert tokenizers.names == {"small", "other"}
    (long,) = await tokenizers.count(["word " * 100], name="small")
    assert long > 100, "what the file says of cutting does not hold"
    assert await tokenizers.count(["", "a"], name="other") == [0, 1]
    assert ContextTokenizers.load("").names == frozenset()


@pytest.mark.parametrize("setting", ["small", "=path", "small=", "a={file},a={file}", "a=/nowhere/tokenizer.json"])
def test_a_setting_that_is_wrong_is_told_at_the_start(setting: str, tokenizer_file: Path) -> None:
    with pytest.raises(ValueError, match="context_tokenizers"):
        ContextTokenizers.load(setting.format(file=tokenizer_file))
