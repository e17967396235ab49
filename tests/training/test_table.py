"""What the table says, and when a trained model may be shipped."""

from pathlib import Path

import pytest
from kbmesh_cli.bootstrap import Interval

from training.hybrid import Found
from training.table import (
    NONE,
    Judged,
    Measured,
    compare,
    main,
    ndcg_of,
    read_set,
    render,
    verdict,
    write_between_marks,
)


def measured(gain: float, low: float, high: float) -> Measured:
    return Measured(
        ndcg=0.7 + gain,
        gain=Interval(estimate=gain, low=low, high=high),
        milliseconds=312.4,
        values=(1.0, 0.4),
    )


def table(gain: float, low: float, high: float, *, elsewhere: Measured) -> dict[str, dict[str, Measured]]:
    none = measured(0, 0, 0)
    return {
        "scifact": {NONE: none, "late interaction": none, "starter": measured(gain, low, high)},
        "cosqa": {NONE: none, "late interaction": none, "starter": elsewhere},
    }


def test_a_model_that_gains_and_harms_nothing_may_be_shipped() -> None:
    assert verdict(table(0.02, 0.01, 0.03, elsewhere=measured(-0.01, -0.03, 0.01)), "starter") == []


def test_a_model_whose_gain_on_scifact_may_be_chance_may_not() -> None:
    (reason,) = verdict(table(0.01, -0.01, 0.03, elsewhere=measured(0.1, 0.05, 0.15)), "starter")
    assert reason.startswith("scifact")


def test_a_model_that_harms_an_unseen_set_may_not() -> None:
    (reason,) = verdict(table(0.1, 0.05, 0.15, elsewhere=measured(-0.02, -0.03, -0.01)), "starter")
    assert reason.startswith("cosqa")


def test_gains_are_of_the_same_queries() -> None:
    """A way that is better by the same on every query is so beyond chance, however different the queries are."""
    none = [0.1, 0.9, 0.2, 0.8, 0.5]
    found = compare({NONE: none, "better": [value + 0.05 for value in none]}, {"better": 12.0})

    gain = found["better"].gain
    assert gain.estimate == pytest.approx(0.05)
    assert gain.low == pytest.approx(0.05)
    assert found["better"].milliseconds == 12.0
    assert found[NONE].gain.high == 0


def test_what_was_not_reranked_stays_behind() -> None:
    one = Judged(
        name="s", documents=("a", "b", "c"), passages=("", "", ""), queries=("q",), judgements=({"b": 1, "c": 1},)
    )
    found = Found(fused=[(0, 3.0), (1, 2.0), (2, 1.0)], cosines={}, keywords={})

    assert ndcg_of(one, 0, found, [0.1, 0.9]) > ndcg_of(one, 0, found, [0.9, 0.1])
    assert ndcg_of(one, 0, found, [0.1, 0.9]) < ndcg_of(one, 0, found, [0.1, 0.8, 0.9])


def test_the_table_stands_between_its_marks(tmp_path: Path) -> None:
    page = tmp_path / "quality.md"
    page.write_text("# Quality\n<!-- reranking: begin -->\nold\n<!-- reranking: end -->\nafter\n", encoding="utf-8")

    write_between_marks(page, render(table(0.01, -0.01, 0.03, elsewhere=measured(0, -0.01, 0.01))))
    text = page.read_text(encoding="utf-8")

    assert "old" not in text
    assert text.endswith("<!-- reranking: end -->\nafter\n")
    assert "| scifact | 2 | .700 | .700 +0.000 [+0.000, +0.000] | .710 +0.010 [-0.010, +0.030] |" in text
    assert "| scifact | 312 | 312 |" in text
    assert "int8" not in text, "a way that was not measured has no column"


def test_a_page_without_marks_is_not_written(tmp_path: Path) -> None:
    page = tmp_path / "quality.md"
    page.write_text("# Quality\n", encoding="utf-8")

    with pytest.raises(ValueError, match="reranking"):
        write_between_marks(page, "table")


def test_a_page_without_marks_is_told_before_anything_is_measured(tmp_path: Path) -> None:
    page = tmp_path / "quality.md"
    page.write_text("# Quality\n", encoding="utf-8")

    with pytest.raises(ValueError, match="reranking"):
        main(["--sets", str(tmp_path / "none"), "--models", str(tmp_path), "--write", str(page)])


def test_queries_are_drawn_alike_each_time(tmp_path: Path) -> None:
    (tmp_path / "qrels").mkdir()
    lines = [f'{{"_id": "{number}", "text": "text {number}"}}\n' for number in range(20)]
    (tmp_path / "corpus.jsonl").write_text("".join(lines), encoding="utf-8")
    (tmp_path / "queries.jsonl").write_text("".join(lines), encoding="utf-8")
    rows = "".join(f"{number}\t{number}\t1\n" for number in range(20))
    (tmp_path / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + rows, encoding="utf-8")

    drawn = read_set(tmp_path, most=5)
    assert len(drawn.queries) == 5
    assert drawn == read_set(tmp_path, most=5)
    assert len(read_set(tmp_path, most=None).queries) == 20
