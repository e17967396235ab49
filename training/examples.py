"""Questions with the passage that answers each, in pools of the same kind, free of what is tested.

A pool's other passages are where a question's wrong ones are looked for.
"""

import gzip
import json
import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbmesh_cli.beir import RetrievalSet, open_retrieval_set

from training.functions import Function, functions_of
from training.leaks import SeenTexts
from training.sections import Section, sections_of
from training.sources import MANUALS, PACKAGES, Role, modules, pages

_SENTENCES = re.compile(r"(?<=[a-z0-9)%][.!?])\s+(?=[A-Z])")
_WORDS = re.compile(r"[^\W\d_]{3,}")
_CLAIM_WORDS = range(8, 40)

PASSAGE_CHARACTERS = 900
"""Of a section or an answer; longer ones are cut."""
DEVELOPMENT_SHARE = 0.15
"""Of the questions of a pool, with which nothing is trained."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """Something asked, and the place in the pool of what answers it."""

    text: str
    place: int


@dataclass(frozen=True, kw_only=True)
class Pool:
    """Passages of one kind, and questions that they answer."""

    name: str
    passages: tuple[str, ...]
    questions: tuple[Question, ...]


@dataclass(frozen=True, kw_only=True)
class Found:
    """What was built, and what was left out as it is tested."""

    pools: tuple[Pool, ...]
    left_out: dict[str, int]
    """By pool."""


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """The most questions of each pool."""

    claims: int = 650
    conclusions: int = 400
    abstracts: int = 300
    answers: int = 350
    functions: int = 450
    sections: int = 400
    searches: int = 400


Pair = tuple[str, str]
"""A question, and the passage that answers it."""


def build(data: Path, sources: Path, tested: Sequence[Path], *, sizes: Sizes, seed: int) -> Found:
    """Of the folder with `train/` and `retrieval/`, and of the manuals and packages in `sources`. Nothing in it is
    near a question or a document of a tested set; of scifact, whose abstracts are one corpus for training and test,
    near a document that answers a tested claim."""
    chosen = random.Random(seed)
    everything: list[str] = []
    scifact: list[tuple[str, str, bool]] = []
    for path in tested:
        with open_retrieval_set(path) as one:
            everything += one.queries.values()
            documents = list(one.documents())
            everything += [text for _, text in documents]
            if one.name == "scifact":
                scifact = _answering(one, documents)
    seen = SeenTexts(everything)
    seen_answers = SeenTexts([text for _, text, answers in scifact if answers] + _queries(tested))
    pairs = _read_pairs(data / "train")
    left_out: dict[str, int] = {}
    pools: list[Pool] = []

    def add(name: str, found: Iterable[Pair], most: int, against: SeenTexts, others: Iterable[str] = ()) -> None:
        kept, dropped = _clean(found, against)
        chosen.shuffle(kept)
        left_out[name] = dropped
        pools.append(_pool(name, kept[:most], [text for text in others if against.near(text) is None]))

    abstracts = [text for _, text, answers in scifact if not answers]
    add("claims", pairs["scifact/train"], sizes.claims, seen_answers, abstracts)
    add("conclusions", _conclusions(abstracts[::2]), sizes.conclusions, seen_answers, abstracts[1::2])
    add("abstracts", pairs["pubmedqa/train"], sizes.abstracts, seen)
    add("searches", pairs["cosqa/dev"], sizes.searches, seen)
    add("answers", _answers(data / "train" / "medquad.jsonl.gz", chosen, sizes.answers), sizes.answers, seen)
    add("functions", function_pairs(sources, "train", chosen), sizes.functions, seen)
    add("sections", section_pairs(sources, "train", chosen), sizes.sections, seen)
    return Found(pools=tuple(pools), left_out=left_out)


def section_pairs(sources: Path, role: Role, chosen: random.Random) -> list[Pair]:
    """Headings and the sections under them, as many of each manual as the smallest three have on average, shuffled."""
    of_manuals = []
    for manual in MANUALS:
        if manual.role == role:
            found = [section for page in pages(sources, manual) for section in sections_of(page)]
            sections = [section for section in found if len(_WORDS.findall(section.asked)) >= 2]
            of_manuals.append([(section.asked, _cut(section)) for section in _once(sections, lambda one: one.asked)])
    return _evenly(of_manuals, chosen)


def function_pairs(sources: Path, role: Role, chosen: random.Random) -> list[Pair]:
    """Docstrings and the functions without them; in training every other question is a name instead, and the function
    whole."""
    of_packages = []
    for package in PACKAGES:
        if package.role == role:
            functions = [one for source in modules(sources, package) for one in functions_of(source)]
            of_packages.append([_asked(one, role, chosen) for one in _once(functions, lambda one: one.sentence)])
    return _evenly(of_packages, chosen)


def _asked(one: Function, role: Role, chosen: random.Random) -> Pair:
    return (one.asked, one.whole) if role == "train" and chosen.random() < 0.5 else (one.sentence, one.bare)


def _cut(section: Section) -> str:
    return section.text[:PASSAGE_CHARACTERS]


def _once(values: Sequence[Any], key: Callable[[Any], str]) -> list[Any]:
    """Those whose key no other has: a question with several answers would judge all but one of them wrong."""
    counts: dict[str, int] = defaultdict(int)
    for value in values:
        counts[key(value).lower()] += 1
    return [value for value in values if counts[key(value).lower()] == 1]


def _evenly(lists: Sequence[list[Pair]], chosen: random.Random) -> list[Pair]:
    for pairs in lists:
        chosen.shuffle(pairs)
    sizes = sorted(len(pairs) for pairs in lists if pairs)[:3]
    most = max(1, sum(sizes) // max(1, len(sizes)))
    drawn = [pair for pairs in lists for pair in pairs[:most]]
    chosen.shuffle(drawn)
    return drawn


def _answering(one: RetrievalSet, documents: Sequence[tuple[str, str]]) -> list[tuple[str, str, bool]]:
    answers = {document for grades in one.judgements.values() for document, grade in grades.items() if grade > 0}
    return [(document, text, document in answers) for document, text in documents]


def _queries(tested: Sequence[Path]) -> list[str]:
    found: list[str] = []
    for path in tested:
        with open_retrieval_set(path) as one:
            found += one.queries.values()
    return found


def _read_pairs(folder: Path) -> dict[str, list[Pair]]:
    found: dict[str, list[Pair]] = defaultdict(list)
    for line in _lines(folder / "pairs.jsonl.gz"):
        found[line["source"]].append((line["query"], line["passage"]))
    for line in _lines(folder / "cosqa_qa_dev.jsonl.gz"):
        if int(line["label"]) == 1:
            found["cosqa/dev"].append((line["query"], line["passage"]))
    return found


def _answers(path: Path, chosen: random.Random, most: int) -> list[Pair]:
    """All questions on some subjects, so that a wrong answer is on the right subject."""
    subjects: dict[str, list[Pair]] = defaultdict(list)
    for line in _lines(path):
        if line["positive"]:
            subjects[line["focus"]].append((line["query"], line["positive"][:PASSAGE_CHARACTERS]))
    names = sorted(subjects)
    chosen.shuffle(names)
    found: list[Pair] = []
    for name in names:
        if len(found) >= most:
            break
        found += subjects[name]
    return found


def _conclusions(abstracts: Iterable[str]) -> list[Pair]:
    """The last sentence of an abstract, and the abstract without it."""
    found = []
    for abstract in abstracts:
        *before, last = _SENTENCES.split(abstract)
        if len(last.split()) in _CLAIM_WORDS and len(before) >= 3:
            found.append((re.sub(r"^(?:CONCLUSIONS?|INTERPRETATION|SIGNIFICANCE)\S*\s+", "", last), " ".join(before)))
    return found


def _clean(pairs: Iterable[Pair], seen: SeenTexts) -> tuple[list[Pair], int]:
    kept, dropped = [], 0
    for question, passage in pairs:
        if seen.near(question) is None and seen.near(passage) is None:
            kept.append((question, passage))
        else:
            dropped += 1
    return kept, dropped


def _pool(name: str, pairs: Sequence[Pair], others: Iterable[str]) -> Pool:
    places: dict[str, int] = {}
    questions = [Question(text=question, place=places.setdefault(passage, len(places))) for question, passage in pairs]
    for text in others:
        places.setdefault(text, len(places))
    return Pool(name=name, passages=tuple(places), questions=tuple(questions))


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)
