"""What is trained with has nothing of what is tested, and comes out alike each time."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from training.examples import Found, Sizes, build
from training.sources import MANUALS, PACKAGES, modules, pages

TESTED_CLAIM = "Zinc shortens the common cold in adults by about two days on average"
ANSWERING = "Zinc and the cold. Adults who took zinc had a cold that was two days shorter in this trial of ours."
OTHER = (
    "Iron and fatigue. Women who took iron felt less tired. We measured it twice. Iron lowers fatigue in women who "
    "menstruate."
)


def write_lines(path: Path, values: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(value) + "\n" for value in values)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text, encoding="utf-8")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    train = tmp_path / "train"
    pair = {"label": "1"}
    write_lines(
        train / "pairs.jsonl.gz",
        [
            {**pair, "source": "scifact/train", "query": "Iron helps tired women who menstruate", "passage": OTHER},
            {**pair, "source": "scifact/train", "query": "Zinc is good for those who sneeze", "passage": ANSWERING},
            {**pair, "source": "scifact/train", "query": TESTED_CLAIM.upper(), "passage": OTHER},
            {
                **pair,
                "source": "pubmedqa/train",
                "query": "Is a walk a day enough for a heart?",
                "passage": "A walk is.",
            },
        ],
    )
    write_lines(
        train / "cosqa_qa_dev.jsonl.gz",
        [
            {"query": "python sort dict by value", "passage": "def f(d): return sorted(d.items())", "label": 1},
            {"query": "python reverse list in place", "passage": "def g(d): return None", "label": 0},
        ],
    )
    write_lines(
        train / "medquad.jsonl.gz",
        [{"query": "What is gout?", "focus": "gout", "positive": "A disease of joints."}],
    )
    tested = tmp_path / "scifact"
    documents = [("d1", ANSWERING), ("d2", OTHER), ("d3", "Salt and water. Nothing of note was found here by us.")]
    write_lines(tested / "corpus.jsonl", [{"_id": name, "title": "", "text": text} for name, text in documents])
    write_lines(tested / "queries.jsonl", [{"_id": "q1", "text": TESTED_CLAIM}])
    (tested / "qrels").mkdir()
    (tested / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t1\n", encoding="utf-8")
    return tmp_path


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    folder = tmp_path / "sources"
    text = (
        "The server reads the file again when it is told to, and keeps the old rules where the new ones are broken. "
        * 3
    )
    for manual in MANUALS:
        place = folder / "manuals" / manual.name / "usr/share/doc/sqlite3/manual/en/html/library/api"
        place.mkdir(parents=True)
        page = f"<h1>The {manual.name} manual</h1><h2>How {manual.name} reads its rules</h2><p>{manual.name} {text}</p>"
        for name in ("rules.html", "usr.html"):
            (place / name).write_text(page, encoding="utf-8")
    for package in PACKAGES:
        place = folder / "packages" / package.name / "lib"
        (place / "tests").mkdir(parents=True)
        documented = f'"""Read all rules of {package.name} from a file."""'
        code = f"def read_{package.name[:2]}(path):\n    {documented}\n    a = 1\n    return a\n"
        (place / "rules.py").write_text(code, encoding="utf-8")
        (place / "tests" / "rules.py").write_text(code, encoding="utf-8")
    return folder


def built(data: Path, sources: Path) -> Found:
    return build(data, sources, [data / "scifact"], sizes=Sizes(), seed=1)


def test_no_question_and_no_answer_of_the_test_is_trained_with(data: Path, sources: Path) -> None:
    found = built(data, sources)
    claims = next(pool for pool in found.pools if pool.name == "claims")

    assert [question.text for question in claims.questions] == ["Iron helps tired women who menstruate"]
    assert found.left_out["claims"] == 2
    assert not any(ANSWERING in pool.passages for pool in found.pools)


def test_every_question_has_its_answer(data: Path, sources: Path) -> None:
    pools = {pool.name: pool for pool in built(data, sources).pools}

    iron = pools["claims"].questions[0]
    assert pools["claims"].passages[iron.place] == OTHER
    assert pools["searches"].questions[0].text == "python sort dict by value"
    assert len(pools["searches"].questions) == 1, "a function that does not answer is no answer"
    assert pools["answers"].questions[0].text == "What is gout?"


def test_a_manual_or_package_to_test_with_is_not_trained_with(data: Path, sources: Path) -> None:
    pools = {pool.name: pool for pool in built(data, sources).pools}
    tested = {one.name for one in (*MANUALS, *PACKAGES) if one.role == "test"}

    asked = " ".join(question.text for name in ("sections", "functions") for question in pools[name].questions)
    assert "postgresql" in asked
    assert not any(name in asked for name in tested)


def test_it_comes_out_alike(data: Path, sources: Path) -> None:
    assert built(data, sources) == built(data, sources)


def test_a_page_that_is_there_twice_is_read_once_and_tests_are_not_read(sources: Path) -> None:
    (sqlite,) = (manual for manual in MANUALS if manual.name == "sqlite")
    place = sources / "manuals" / "sqlite" / "usr/share/doc/sqlite3"
    for name in ("a.html", "b.html"):
        (place / name).write_text("<h1>x</h1>", encoding="utf-8")

    assert len(list(pages(sources, sqlite))) == 1
    assert len(list(modules(sources, PACKAGES[0]))) == 1
