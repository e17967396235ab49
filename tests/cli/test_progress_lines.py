"""How far long work is, in a log."""

import pytest
from kbmesh_cli.progress_lines import PAUSE_SECONDS, ProgressLines


def test_a_line_comes_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    now = 0.0
    lines = ProgressLines("asked {done} of {total} queries", total=2000, clock=lambda: now)
    for _ in range(70):
        now += PAUSE_SECONDS / 32  # a power of two: sums are exact
        lines.advance()
    assert capsys.readouterr().err.splitlines() == ["asked 32 of 2,000 queries", "asked 64 of 2,000 queries"]


def test_short_work_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    ProgressLines("{done} of {total}", total=1).advance()
    assert capsys.readouterr().err == ""
