"""What `kbmesh eval` found, as a picture: SVG, written out by hand."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from xml.sax.saxutils import escape

from kbmesh_cli.bootstrap import Interval
from kbmesh_cli.evaluation import Measurement

PANELS: Mapping[str, str] = {"ndcg@10": "nDCG@10", "recall@20": "recall@20", "mrr": "MRR"}
"""Figures that have a panel each, with their titles."""
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""Told apart by the colour-blind too: Okabe and Ito, "Color Universal Design" (2008)."""

_ROW = 26
_PANEL = 190
_GAP = 36
_TOP = 58
_CHARACTER = 7.2
"""Width of a character, about."""


def draw(title: str, measured: Sequence[Measurement]) -> str:
    """An SVG document: a row for each way to look, or lines over the values where one option with two values or more
    is swept. Lines around a dot are 95 % intervals over the queries."""
    swept = {option for one in measured for option in one.variant.swept}
    if len(swept) == 1:
        (option,) = swept
        values = {one.variant.swept[option] for one in measured if option in one.variant.swept}
        if len(values) > 1:
            return _curves(title, measured, option)
    return _rows(title, measured)


@dataclass(kw_only=True)
class _Canvas:
    parts: list[str] = field(default_factory=list)

    def line(
        self, x1: float, y1: float, x2: float, y2: float, colour: str, *, width: float = 1, dash: str = ""
    ) -> None:
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(
            f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" '
            f'stroke="{colour}" stroke-width="{width:g}"{dashes}/>'
        )

    def dot(self, x: float, y: float, colour: str) -> None:
        self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>')

    def text(
        self,
        x: float,
        y: float,
        said: str,
        *,
        anchor: str = "start",
        size: int = 12,
        colour: str = "#222",
        bold: bool = False,
    ) -> None:
        weight = ' font-weight="bold"' if bold else ""
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{colour}"{weight}>'
            f"{escape(said)}</text>"
        )

    def document(self, width: float, height: float) -> str:
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
            f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="sans-serif">'
        )
        ground = f'<rect width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>'
        return "\n".join([head, ground, *self.parts, "</svg>", ""])


@dataclass(frozen=True, kw_only=True)
class _Scale:
    """From values to places."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        span = self.high - self.low
        share = (value - self.low) / span if span else 0.5
        return self.start + share * (self.end - self.start)

    def ticks(self) -> Iterator[float]:
        """About four round values."""
        span = self.high - self.low
        if span <= 0:
            yield self.low
            return
        rough = span / 4
        power = 10 ** math.floor(math.log10(rough))
        step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
        for number in range(math.ceil(self.low / step), math.floor(self.high / step) + 1):
            yield number * step


def _scale(intervals: Sequence[Interval], start: float, end: float, *, most: float = math.inf) -> _Scale:
    low = min(min(one.low, one.estimate) for one in intervals)
    high = max(max(one.high, one.estimate) for one in intervals)
    room = max((high - low) * 0.08, 0.005 if most <= 1 else 0.5)
    return _Scale(low=max(0.0, low - room), high=min(most, high + room), start=start, end=end)


def _latency(one: Measurement) -> Interval:
    """From p50, the dot, to p95, the end of the line."""
    p50, p95 = one.figures["p50_ms"].estimate, one.figures["p95_ms"].estimate
    return Interval(estimate=p50, low=p50, high=p95)


def _rows(title: str, measured: Sequence[Measurement]) -> str:
    canvas = _Canvas()
    left = max(80.0, max(len(one.variant.name) for one in measured) * _CHARACTER + 24)
    bottom = _TOP + _ROW * len(measured)
    canvas.text(12, 22, title, size=15, bold=True)
    for row, one in enumerate(measured):
        canvas.text(12, _TOP + _ROW * row + _ROW / 2 + 4, one.variant.name)
    panels = [(shown, [one.figures[metric] for one in measured], 1.0) for metric, shown in PANELS.items()]
    panels.append(("ms, p50 to p95", [_latency(one) for one in measured], math.inf))
    for number, (shown, intervals, most) in enumerate(panels):
        start = left + number * (_PANEL + _GAP)
        scale = _scale(intervals, start, start + _PANEL, most=most)
        canvas.text(start, _TOP - 12, shown, bold=True)
        for tick in scale.ticks():
            canvas.line(scale.at(tick), _TOP, scale.at(tick), bottom, "#ddd")
            canvas.text(scale.at(tick), bottom + 16, f"{tick:.4g}", anchor="middle", size=10, colour="#666")
        for row, interval in enumerate(intervals):
            y = _TOP + _ROW * row + _ROW / 2
            colour = COLOURS[row % len(COLOURS)]
            canvas.line(scale.at(interval.low), y, scale.at(interval.high), y, colour, width=2)
            canvas.dot(scale.at(interval.estimate), y, colour)
    return canvas.document(left + len(panels) * (_PANEL + _GAP), bottom + 30)


def _curves(title: str, measured: Sequence[Measurement], option: str) -> str:
    canvas = _Canvas()
    width, height, left = 300, 220, 60
    canvas.text(12, 22, title, size=15, bold=True)
    families = list(dict.fromkeys(one.variant.family for one in measured))
    values = sorted({one.variant.swept[option] for one in measured if option in one.variant.swept})
    for number, (metric, shown) in enumerate(PANELS.items()):
        start = left + number * (width + left)
        across = _Scale(low=values[0], high=values[-1], start=start, end=start + width)
        up = _scale([one.figures[metric] for one in measured], _TOP + height, _TOP, most=1.0)
        canvas.text(start, _TOP - 12, shown, bold=True)
        for tick in up.ticks():
            canvas.line(start, up.at(tick), start + width, up.at(tick), "#ddd")
            canvas.text(start - 6, up.at(tick) + 4, f"{tick:.4g}", anchor="end", size=10, colour="#666")
        for value in values:
            canvas.text(across.at(value), _TOP + height + 16, f"{value:g}", anchor="middle", size=10, colour="#666")
        canvas.text(start + width / 2, _TOP + height + 32, option, anchor="middle", size=11)
        for which, family in enumerate(families):
            colour = COLOURS[which % len(COLOURS)]
            of_family = [one for one in measured if one.variant.family == family]
            _curve(
                canvas, across, up, [(one.variant.swept.get(option), one.figures[metric]) for one in of_family], colour
            )
    for which, family in enumerate(families):
        y = _TOP + height + 54 + which * 18
        canvas.dot(18, y - 4, COLOURS[which % len(COLOURS)])
        canvas.text(30, y, family)
    return canvas.document(left + len(PANELS) * (width + left), _TOP + height + 60 + len(families) * 18)


def _curve(
    canvas: _Canvas, across: _Scale, up: _Scale, points: Sequence[tuple[float | None, Interval]], colour: str
) -> None:
    """A family without the option is a line from side to side, to compare with."""
    for value, interval in points:
        if value is None:
            canvas.line(
                across.start, up.at(interval.estimate), across.end, up.at(interval.estimate), colour, dash="5 4"
            )
    known = sorted(((value, interval) for value, interval in points if value is not None), key=lambda point: point[0])
    for (first, one), (second, other) in itertools.pairwise(known):
        canvas.line(across.at(first), up.at(one.estimate), across.at(second), up.at(other.estimate), colour, width=1.5)
    for value, interval in known:
        canvas.line(across.at(value), up.at(interval.low), across.at(value), up.at(interval.high), colour)
        canvas.dot(across.at(value), up.at(interval.estimate), colour)
