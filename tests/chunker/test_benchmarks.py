"""The benchmarks run on a few small files and print what they promise. Nothing is timed here."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tiny_models

REPOSITORY = Path(__file__).parent.parent.parent
sys.path.insert(0, str(REPOSITORY))

from benchmarks.answer_spans import Passage  # noqa: E402 - found by the line above
from benchmarks.boundaries import judge, place  # noqa: E402
from benchmarks.corpus import CorpusFile, Kind  # noqa: E402
from benchmarks.questions import find_answer, find_documents, read_questions  # noqa: E402
from benchmarks.ranking import fuse, rank_by_vectors, rank_by_words  # noqa: E402
from benchmarks.splitters import Cut  # noqa: E402
from benchmarks.units import find_units  # noqa: E402

GUIDE = """# Guide

The first section tells how to begin. It has two sentences.

| port | use |
|---|---|
| 80 | web |
| 25 | mail |

## Later

Nothing follows here.
"""
MODULE = '''"""A module."""


def greet(name: str) -> str:
    return f"Hello, {name}"


class Counter:
    @property
    def total(self) -> int:
        return 1
'''


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    (tmp_path / "guide.md").write_text(GUIDE)
    (tmp_path / "greet.py").write_text(MODULE)
    (tmp_path / "notes.txt").write_text("One note. Another note, a little longer.\n\nThe last note of all.\n")
    return tmp_path


def _run(*arguments: str) -> dict[str, object]:
    command = [sys.executable, "-m", *arguments]
    finished = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=100, check=False)
    assert finished.returncode == 0, finished.stderr
    printed: dict[str, object] = json.loads(finished.stdout)
    return printed


def test_the_comparison_prints_speed_and_quality_of_every_strategy(corpus: Path) -> None:
    printed = _run("benchmarks.chunk", "--json", "--rounds", "1", "--corpus", str(corpus))
    assert set(printed) == {"mb_per_s", "boundary", "ratio_to_fastest", "peers", "files", "machine", "settings"}
    assert set(printed["mb_per_s"]) == {"fixed", "semantic", "document", "code"}
    for strategy, speeds in printed["mb_per_s"].items():
        assert speeds["kbmesh"] > 0
        boundary = printed["boundary"][strategy]["kbmesh"]
        assert boundary["text_lost"]["count"] == 0
        assert boundary["chunks"] > 0
        assert printed["peers"]["splitters"][strategy]["kbmesh"]["offsets"] == "exact"
    assert len(printed["files"]) == 3


def test_the_search_for_answers_prints_scores_and_intervals(corpus: Path, tmp_path: Path) -> None:
    asked = [
        {"document": "guide.md", "question": "Which port does mail use?", "answer": "| 25 | mail |"},
        {"document": "notes.txt", "question": "Which note comes last?", "answer": "The last note"},
        {"document": "elsewhere.md", "question": "Is it skipped?", "answer": "Yes"},
    ]
    questions = corpus / "questions.jsonl"
    questions.write_text("".join(json.dumps(one) + "\n" for one in asked))
    model = tiny_models.write_tiny_encoder(tmp_path / "tiny")
    given = (
        "--questions",
        str(questions),
        "--corpus",
        str(corpus),
        "--model",
        str(model),
        "--models",
        str(tmp_path / "models"),
    )
    printed = _run("benchmarks.answer_spans", "--json", *given)
    assert printed["questions"] == 2
    assert printed["skipped"]["not_there"] == ["elsewhere.md"]
    assert set(printed["scores"]) == {"vector", "bm25", "hybrid"}
    assert set(printed["scores"]["hybrid"]) == {"fixed", "auto"}
    assert set(printed["by_kind"]) == {"markdown", "plain text"}
    difference = printed["difference"]["hybrid"]["auto"]["hit@5"]
    assert difference["low"] <= difference["mean"] <= difference["high"]
    assert printed["documents"]["guide.md"] == {"fixed": "fixed", "auto": "document"}


def test_every_unit_of_a_file_is_found() -> None:
    units = find_units(CorpusFile(name="guide.md", text=GUIDE, kind=Kind.MARKDOWN))
    assert [GUIDE[row.start : row.end] for row in units.rows] == ["| 80 | web |", "| 25 | mail |"]
    assert units.rows[0].header_cells == ("port", "use")
    assert [GUIDE[heading.start : heading.end] for heading in units.headings] == [
        "# Guide\n\nThe first section tells how to begin. It",
        "## Later\n\nNothing follows here.",
    ]
    functions = find_units(CorpusFile(name="a.py", text=MODULE, kind=Kind.CODE, language="python")).functions
    assert [MODULE[span.start : span.end].split("(")[0] for span in functions] == [
        "def greet",
        "@property\n    def total",
    ]


def test_what_a_cut_breaks_is_counted() -> None:
    file = CorpusFile(name="guide.md", text=GUIDE, kind=Kind.MARKDOWN)
    units = find_units(file)
    middle = GUIDE.index("| 25")
    pieces = [(0, middle), (middle, GUIDE.index("Nothing")), (GUIDE.index("Nothing"), len(GUIDE))]
    plain = [Cut(start=start, end=end, text=GUIDE[start:end]) for start, end in pieces]
    placed, offsets = place(GUIDE, plain)
    assert offsets == "exact"
    judged = judge(file, units, placed, size=1500)
    assert (judged.rows_orphaned.count, judged.rows_orphaned.of) == (1, 2)
    assert (judged.headings_separated.count, judged.headings_separated.of) == (1, 2)
    with_header = [*plain[:1], Cut(start=middle, end=pieces[1][1], text=plain[1].text, context="| port | use |")]
    placed, _ = place(GUIDE, [*with_header, plain[2]])
    assert judge(file, units, placed, size=1500).rows_orphaned.count == 0


def test_offsets_that_do_not_fit_are_told_from_none() -> None:
    shifted = [Cut(start=1, end=8, text=GUIDE[:7])]
    assert place(GUIDE, shifted)[1] == "wrong"
    placed, offsets = place(GUIDE, [Cut(start=None, end=None, text="The first\nsection")])
    assert offsets == "none"
    assert GUIDE[placed[0].start : placed[0].end] == "The first section"


def test_every_answer_stands_in_its_document() -> None:
    questions = read_questions()
    assert len(questions) >= 100
    assert len({question.question for question in questions}) == len(questions)
    found, _ = find_documents(questions, [REPOSITORY / "benchmarks" / "data", REPOSITORY / "examples" / "documents"])
    for question in questions:
        path = found.get(question.document)
        if path is not None and question.kind in {"markdown", "code", "plain text"}:
            assert find_answer(path.read_text(encoding="utf-8"), question.answer), question


def test_a_passage_answers_where_it_holds_more_than_half_of_the_answer() -> None:
    passage = Passage(document="a", start=10, end=20, context_and_text="", embedded="")
    assert passage.answers("a", [(12, 18)])
    assert passage.answers("a", [(15, 24)])
    assert not passage.answers("a", [(15, 25)])
    assert not passage.answers("b", [(12, 18)])


def test_passages_are_ranked_by_vectors_by_words_and_by_both() -> None:
    vectors = np.array([[1, 0], [0, 0], [0, 1]], dtype=np.float32)
    by_vectors = rank_by_vectors(vectors, np.array([[0, 1]], dtype=np.float32))
    assert by_vectors == [[2, 0]], "what is not embedded is not found"
    by_words = rank_by_words(["a retry delay", "the retry", "mail"], ["retry delay"])
    assert by_words == [[0, 1]]
    assert fuse(by_words, by_vectors) == [[0, 2, 1]]
