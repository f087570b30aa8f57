"""Pictures drawn by matplotlib, for papers: maps, bubbles and points."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from unskew.report.charts.chart import Chart
from unskew.report.data_page import counts_figure
from unskew.report.palette import COLORS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

_NAMED = 60
"""Up to so many points have their client's number beside them."""


def draw_maps(chart: Chart, methods: Sequence[str]) -> "Figure":
    """Draw maps on one scale, three in a row."""
    del methods
    figure, images = _maps(chart, cmap="cividis", vmin=0, vmax=chart.data["top"])
    top = chart.data["top"]
    rows = [row for one in chart.data["maps"] for row in one["values"]]
    beyond = any(value is not None and value > 1.0001 * top for row in rows for value in row)
    figure.colorbar(
        images[-1], ax=figure.axes, label=chart.data["value"], pad=0.01, aspect=30,
        extend="max" if beyond else "neither",
    )  # fmt: skip
    return figure


def draw_clusters(chart: Chart, methods: Sequence[str]) -> "Figure":
    """Draw maps of clusters, a colour each."""
    from matplotlib.colors import ListedColormap  # noqa: PLC0415 (slow to import)
    from matplotlib.patches import Patch  # noqa: PLC0415

    del methods
    colors = len(COLORS)
    figure, _ = _maps(chart, colors, cmap=ListedColormap(COLORS), vmin=0, vmax=colors - 1)
    rows = [row for one in chart.data["maps"] for row in one["values"]]
    found = sorted({cluster for row in rows for cluster in row if cluster is not None})
    figure.legend(
        handles=[Patch(color=COLORS[c % colors], label=str(c)) for c in found[:colors]],
        title="cluster", loc="outside right upper", frameon=False, fontsize=8, title_fontsize=8,
    )  # fmt: skip
    return figure


def draw_bubbles(chart: Chart, methods: Sequence[str]) -> "Figure":
    """Draw who holds what."""
    del methods
    counts, clients = np.array(chart.data["counts"]), chart.data["clients"]
    numbered = clients == [str(k) for k in range(len(clients))]
    return counts_figure(counts, None if numbered else clients, chart.data["classes"])


def draw_points(chart: Chart, methods: Sequence[str]) -> "Figure":
    """Draw clients as points, coloured by a figure."""
    from matplotlib.figure import Figure  # noqa: PLC0415

    del methods
    x, y, values, sizes = np.array(chart.data["points"], dtype=np.float64).T
    figure = Figure(figsize=(5.2, 3.8), layout="constrained")
    axes = figure.subplots()
    dots = axes.scatter(
        x, y, c=values, s=20 + 120 * sizes / max(1, sizes.max()), cmap="cividis", edgecolors="0.4",
        plotnonfinite=True,
    )  # fmt: skip
    if len(x) <= _NAMED:
        for client, place in enumerate(zip(x, y, strict=True)):
            axes.annotate(str(client), place, (5, 3), textcoords="offset points", fontsize=7)
    axes.set_xticks([])
    axes.set_yticks([])
    figure.colorbar(dots, label=chart.data["value"])
    return figure


def _maps(chart: Chart, period: float = np.inf, **options: Any) -> "tuple[Figure, list[AxesImage]]":
    """Draw each map; values that are colours by number start again after a period."""
    from matplotlib.figure import Figure  # noqa: PLC0415

    data, maps = chart.data, chart.data["maps"]
    across = min(3, len(maps))
    down = -(-len(maps) // across)
    figure = Figure(figsize=(2.6 * across + 1.4, 2.4 * down + 0.3), layout="constrained")
    grid = figure.subplots(down, across, squeeze=False).ravel()
    for axes in grid[len(maps) :]:
        axes.remove()
    images = []
    for axes, one in zip(grid, maps, strict=False):
        values = np.fmod(np.array(one["values"], dtype=np.float64), period)
        images.append(axes.imshow(values, aspect="auto", interpolation="nearest", **options))
        axes.set_title(one.get("method", ""), fontsize=9)
        axes.set_xlabel(data["x"], fontsize=9)
        axes.set_ylabel(data["y"], fontsize=9)
        _name_cells(axes, one, data)
    return figure, images


def _name_cells(axes: "Axes", one: dict[str, Any], data: dict[str, Any]) -> None:
    """Name some of the cells of a map's sides."""
    rows = one.get("rows") or data["rows"]
    places = range(0, len(rows), max(1, -(-len(rows) // 12)))
    axes.set_yticks(list(places), [rows[i] for i in places], fontsize=7)
    across, texts = _column_ticks(one, data)
    axes.set_xticks(across, texts, fontsize=7)


def _column_ticks(one: dict[str, Any], data: dict[str, Any]) -> tuple[list[float], list[str]]:
    """Return which places along a map are named, in columns, and how."""
    columns = one["columns"]
    if "ticks" in data:
        first, *_, last = data["edges"]
        scale = len(columns) / (last - first)
        places = [(place - first) * scale - 0.5 for place, _ in data["ticks"]]
        return places, [text for _, text in data["ticks"]]
    if "method" not in one:
        return [], []
    step = max(1, -(-len(columns) // 6))
    named = range(step - 1, len(columns), step)
    return [float(i) for i in named], [columns[i] for i in named]
