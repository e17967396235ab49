"""The shorter way to plain windows gives the windows of the long way."""

from pathlib import Path

import pytest
from chunker.test_spans_and_coverage import PROSE, TEXTS, limits
from hypothesis import given, settings
from hypothesis import strategies as st
from kbmesh_chunker.breaks import Breaks
from kbmesh_chunker.code.lines import graded_line_breaks
from kbmesh_chunker.cutter import Cutter, Limits
from kbmesh_chunker.measure import CharacterMeasure
from kbmesh_chunker.strategies.semantic import paragraph_breaks

DATA = Path(__file__).parent.parent / "data"
FILES = [path for folder in ("documents", "code") for path in sorted((DATA / folder).iterdir())]
SEALS = st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 80)), max_size=6)


class LongWay(Cutter):
    _plain_step = None


def check_same(text: str, limits: Limits, breaks: Breaks) -> int:
    """Fails where the two differ. Gives how many windows were plain."""
    measure = CharacterMeasure(text_length=len(text))
    short, long = (kind(text=text, limits=limits, measure=measure, breaks=breaks) for kind in (Cutter, LongWay))
    plain = 0
    step = short._plain_step

    def counting(start: int, fresh: int, end: int) -> object:
        nonlocal plain
        found = step(start, fresh, end)
        plain += found is not None
        return found

    if step is not None:
        short.__dict__["_plain_step"] = counting
    assert list(short.cut(0, len(text))) == list(long.cut(0, len(text)))
    return plain


@given(text=st.one_of(PROSE, TEXTS, st.tuples(PROSE, TEXTS, PROSE).map("".join)), limits=limits(), seals=SEALS)
@settings(max_examples=300, deadline=None)
def test_any_text(text: str, limits: Limits, seals: list[tuple[int, int]]) -> None:
    sealed = Breaks(seals=[(first, first + length) for first, length in seals])
    for breaks in (Breaks(), sealed, paragraph_breaks(text, 1), graded_line_breaks(text)):
        check_same(text, limits, breaks)


# The rest of a text is never plain, so short texts have little that is.
@given(text=st.lists(PROSE, min_size=3, max_size=8).map(lambda parts: "".join(parts * 3)), limits=limits(smallest=20))
@settings(max_examples=100, deadline=None)
def test_long_prose(text: str, limits: Limits) -> None:
    for breaks in (Breaks(), paragraph_breaks(text, 1), graded_line_breaks(text)):
        check_same(text, limits, breaks)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_real_files(path: Path) -> None:
    text = path.read_text()
    for size, overlap, minimum in ((100, 0, 30), (300, 100, 0), (1500, 150, 500), (1500, 0, 500)):
        limits = Limits(size=size, overlap=overlap, minimum=minimum)
        check_same(text, limits, paragraph_breaks(text, 1))
        check_same(text, limits, Breaks())
        check_same(text, limits, graded_line_breaks(text))


def test_most_windows_of_prose_are_plain() -> None:
    text = (DATA / "documents" / "us-declaration.txt").read_text() * 4
    assert check_same(text, Limits(size=600, overlap=60, minimum=200), Breaks()) > 40
    assert check_same(text, Limits(size=600, overlap=0, minimum=200), paragraph_breaks(text, 1)) > 20
