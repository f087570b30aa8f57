"""Small charts as SVG, for notebooks: curves over rounds, and a map of counts."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from numpy.typing import NDArray

from unskew.utils.html import theme_color
from unskew.utils.palette import COLORS

_WIDTH, _HEIGHT = 460, 190
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 8, 8, 32
_DASHES = ("", "6 3", "2 2", "6 2 2 2")
"""Lines of the same colour differ in their dashes."""


@dataclass(frozen=True)
class Line:
    """A line of a chart, with the band around it; values may be NaN."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None


def curves_svg(lines: Sequence[Line], *, x: str, y: str, percent: bool) -> str:
    """Draw lines over a common axis; empty if there is nothing to draw."""
    points = [value for line in lines for value in line.y if math.isfinite(value)]
    if not points:
        return ""
    across = [value for line in lines for value in line.x]
    plot = _Plot(min(across), max(across), *_padded(min(points), max(points)))
    parts = [plot.grid(percent=percent), *(plot.band(i, line) for i, line in enumerate(lines))]
    parts += [plot.path(i, line) for i, line in enumerate(lines)]
    parts += [
        _text(_LEFT + (_WIDTH - _LEFT - _RIGHT) / 2, _HEIGHT - 4, x, "middle"),
        f"<title>{escape(y)}</title>",
    ]
    return _svg(_WIDTH, _HEIGHT, "".join(parts), y)


def counts_svg(counts: NDArray[np.int64], *, rows: Sequence[str], columns: str, label: str) -> str:
    """Draw a map of counts, one column per client: the darker, the more samples.

    ``rows`` are the names of the rows, and ``columns`` is what a column is.
    """
    names, size = [name[:16] for name in rows], 14
    left = 8 + 6.2 * max((len(name) for name in names), default=1)
    height, width = size * counts.shape[1], size * counts.shape[0]
    top = max(1, int(counts.max(initial=0)))
    cells = [
        f'<rect x="{left + size * k:.1f}" y="{size * c}" width="{size - 1}" height="{size - 1}" '
        f'fill="{theme_color(0)}" fill-opacity="{0.06 + 0.94 * count / top:.2f}">'
        f"<title>{escape(columns)} {k}, {escape(rows[c])}: {count}</title></rect>"
        for k, row in enumerate(counts.tolist())
        for c, count in enumerate(row)
    ]
    labels = [_text(left - 5, size * c + 10.5, name, "end") for c, name in enumerate(names)]
    below = _text(left, height + 13, f"{columns} 0 to {len(counts) - 1}", "start")
    return _svg(left + max(width, 90), height + 18, "".join([*cells, *labels, below]), label)


@dataclass(frozen=True)
class _Plot:
    """The mapping of values to positions on the chart."""

    x_min: float
    x_max: float
    y_min: float
    y_max: float

    def x(self, value: float) -> float:
        span = (self.x_max - self.x_min) or 1.0
        return _LEFT + (value - self.x_min) / span * (_WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        share = (value - self.y_min) / (self.y_max - self.y_min)
        return _TOP + (1 - share) * (_HEIGHT - _TOP - _BOTTOM)

    def grid(self, *, percent: bool) -> str:
        bottom = _HEIGHT - _BOTTOM
        parts = []
        for tick in _ticks(self.y_min, self.y_max):
            parts.append(
                f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{self.y(tick):.1f}" '
                f'y2="{self.y(tick):.1f}" stroke="currentColor" stroke-opacity=".15"/>'
            )
            text = f"{100 * tick:g} %" if percent else f"{tick:g}"
            parts.append(_text(_LEFT - 6, self.y(tick) + 4, text, "end"))
        for value, anchor in ((self.x_min, "start"), (self.x_max, "end")):
            parts.append(_text(self.x(value), bottom + 14, f"{value:g}", anchor))
        return "".join(parts)

    def band(self, index: int, line: Line) -> str:
        if line.low is None or line.high is None or list(line.low) == list(line.high):
            return ""
        edges = [*zip(line.x, line.low, strict=True)]
        edges += reversed([*zip(line.x, line.high, strict=True)])
        if not all(math.isfinite(y) for _, y in edges):
            return ""
        clipped = [(x, min(max(y, self.y_min), self.y_max)) for x, y in edges]
        points = " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in clipped)
        return f'<polygon points="{points}" fill="{theme_color(index)}" fill-opacity=".12"/>'

    def path(self, index: int, line: Line) -> str:
        steps, pen = [], "M"
        for x, y in zip(line.x, line.y, strict=True):
            if not math.isfinite(y):
                pen = "M"
                continue
            steps.append(f"{pen}{self.x(x):.1f} {self.y(y):.1f}")
            pen = "L"
        dash = _DASHES[index // len(COLORS) % len(_DASHES)]
        return (
            f'<path d="{" ".join(steps)}" fill="none" stroke="{theme_color(index)}" '
            f'stroke-width="1.8" stroke-linecap="round" stroke-dasharray="{dash}">'
            f"<title>{escape(line.name)}</title></path>"
        )


def _padded(low: float, high: float) -> tuple[float, float]:
    margin = 0.05 * ((high - low) or abs(high) or 1.0)
    return low - margin, high + margin


def _ticks(low: float, high: float) -> list[float]:
    """Return at least three round numbers between two values, as few as possible."""
    unit = 10.0 ** math.floor(math.log10(high - low))
    steps = (factor * unit for factor in (5, 2, 1, 0.5, 0.2, 0.1))
    for step in steps:
        first, last = math.ceil(low / step), math.floor(high / step)
        if last - first >= 2:
            return [round(i * step, 12) for i in range(first, last + 1)]
    return []


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="currentColor" '
        f'fill-opacity=".8">{escape(text)}</text>'
    )


def _svg(width: float, height: float, content: str, label: str) -> str:
    return (
        f'<svg viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}" '
        f'role="img" aria-label="{escape(label)}" xmlns="http://www.w3.org/2000/svg" '
        f'style="max-width:100%;height:auto;font:11px sans-serif">{content}</svg>'
    )
