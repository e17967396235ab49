"""Panels as SVG, for the docs: lines over time, as Grafana draws them, without Grafana."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT, COLUMNS = 330, 230, 3
LEFT, TOP, RIGHT, PLOT = 46, 34, 10, 118
COLOURS = ("#1f77b4", "#d95f02", "#1b9e77", "#7570b3", "#e7298a", "#66a61e", "#a6761d", "#666666")
MOST_SERIES = 8
LEGEND_CHARACTERS = 22


@dataclass(frozen=True, kw_only=True)
class Line:
    """A series. `points` are (second, value); what is not finite is a gap."""

    name: str
    points: Sequence[tuple[float, float]]

    @property
    def highest(self) -> float:
        return max((value for _, value in self.points if math.isfinite(value)), default=0.0)


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A panel and what it showed."""

    title: str
    unit: str
    lines: Sequence[Line]


def page(title: str, pictures: Sequence[Picture], *, seconds: float) -> str:
    """All panels of a dashboard in one SVG. `seconds` is the time they span."""
    rows = math.ceil(len(pictures) / COLUMNS)
    width, height = WIDTH * COLUMNS, HEIGHT * rows + 24
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"',
        ' font-family="sans-serif" font-size="9">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text x="8" y="16" font-size="13" font-weight="bold">{escape(title)}</text>',
    ]
    for place, picture in enumerate(pictures):
        x, y = place % COLUMNS * WIDTH, place // COLUMNS * HEIGHT + 24
        parts.append(f'<g transform="translate({x} {y})">{_panel(picture, seconds)}</g>')
    return "\n".join([*parts, "</svg>\n"])


def _panel(picture: Picture, seconds: float) -> str:
    lines = sorted(picture.lines, key=lambda line: -line.highest)
    shown, left_out = lines[:MOST_SERIES], len(lines[MOST_SERIES:])
    top = _round_up(max((line.highest for line in shown), default=0.0)) or 1.0
    right = WIDTH - RIGHT
    parts = [f'<text x="{LEFT}" y="{TOP - 12}" font-size="11">{escape(picture.title)}</text>']
    for share in (0.0, 0.5, 1.0):
        y = TOP + PLOT * (1 - share)
        parts.append(f'<path d="M{LEFT} {y:g}H{right}" stroke="#dddddd"/>')
        parts.append(f'<text x="{LEFT - 4}" y="{y + 3:g}" text-anchor="end">{_said(top * share, picture.unit)}</text>')
    for second in (0.0, seconds / 2, seconds):
        x = LEFT + (right - LEFT) * second / seconds
        anchor = "end" if second == seconds else "middle"
        parts.append(f'<text x="{x:.0f}" y="{TOP + PLOT + 12}" text-anchor="{anchor}">{second:.0f} s</text>')
    for place, line in enumerate(shown):
        colour = COLOURS[place]
        drawn = _path(line, seconds, top, right - LEFT)
        parts.append(f'<path d="{drawn}" fill="none" stroke="{colour}" stroke-width="1.4"/>')
        x, y = LEFT + place % 2 * 142, TOP + PLOT + 26 + place // 2 * 11
        name = line.name if len(line.name) <= LEGEND_CHARACTERS else line.name[: LEGEND_CHARACTERS - 1] + "…"
        parts.append(f'<rect x="{x}" y="{y - 6}" width="8" height="3" fill="{colour}"/>')
        parts.append(f'<text x="{x + 11}" y="{y}">{escape(name)}</text>')
    if left_out:
        parts.append(f'<text x="{right}" y="{TOP - 12}" text-anchor="end" fill="#888888">and {left_out} more</text>')
    return "".join(parts)


def _path(line: Line, seconds: float, top: float, width: float) -> str:
    commands, down = [], False
    for second, value in line.points:
        if not math.isfinite(value):
            down = False
            continue
        x, y = LEFT + width * second / seconds, TOP + PLOT * (1 - max(0.0, min(value, top)) / top)
        commands.append(f"{'L' if down else 'M'}{x:.0f} {y:.1f}")
        down = True
    return "".join(commands)


def _round_up(value: float) -> float:
    if value <= 0:
        return 0.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 5, 10) if value <= step * power * 1.0001)


_UNITS: Mapping[str, Sequence[tuple[float, str]]] = {
    "s": ((1.0, " s"), (1e-3, " ms"), (1e-6, " µs")),
    "bytes": ((1e9, " GB"), (1e6, " MB"), (1e3, " kB"), (1.0, " B")),
    "percentunit": ((0.01, " %"),),
}
_PLAIN = ((1e6, " M"), (1e3, " k"), (1.0, ""))


def _said(value: float, unit: str) -> str:
    """A value as a person reads it."""
    if value == 0:
        return "0"
    steps = _UNITS.get(unit, _PLAIN)
    size, name = next(((size, name) for size, name in steps if abs(value) >= size), steps[-1])
    return f"{value / size:.3g}{name}"
