"""Charts drawn with matplotlib, for papers: maps, bubbles and points."""

from collections.abc import Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from unskew.report.charts.chart import Chart
from unskew.report.distribution_figure import counts_figure
from unskew.utils.palette import COLORS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

_MAX_LABELS = 60
"""The maximum number of points that are labelled with their client."""


def draw_maps(chart: Chart, methods: Sequence[str]) -> "Figure":
    """Draw maps on one scale, three per row."""
    del methods
    figure, images = _maps(chart, cmap="cividis", vmin=0, vmax=chart.data["top"])
    top = chart.data["top"]
    rows = [row for map_ in chart.data["maps"] for row in map_["values"]]
    beyond = any(value is not None and value > 1.0001 * top for row in rows for value in row)
    figure.colorbar(
        images[-1], ax=figure.axes, label=chart.data["value"], pad=0.01, aspect=30,
        extend="max" if beyond else "neither",
    )  # fmt: skip
    return figure


def draw_clusters(chart: Chart, methods: Sequence[str]) -> "Figure":
    """Draw maps of clusters, with one colour per cluster."""
    from matplotlib.colors import ListedColormap  # noqa: PLC0415 (slow to import)
    from matplotlib.patches import Patch  # noqa: PLC0415

    del methods
    colors = len(COLORS)
    figure, _ = _maps(chart, colors, cmap=ListedColormap(COLORS), vmin=0, vmax=colors - 1)
    rows = [row for map_ in chart.data["maps"] for row in map_["values"]]
    found = sorted({cluster for row in rows for cluster in row if cluster is not None})
    figure.legend(
        handles=[Patch(color=COLORS[c % colors], label=str(c)) for c in found[:colors]],
        title="cluster", loc="outside right upper", frameon=False, fontsize=8, title_fontsize=8,
    )  # fmt: skip
    return figure


def draw_bubbles(chart: Chart, methods: Sequence[str]) -> "Figure":
    """Draw the data distribution."""
    del methods
    counts, clients = np.array(chart.data["counts"]), chart.data["clients"]
    numbered = clients == [str(k) for k in range(len(clients))]
    return counts_figure(counts, None if numbered else clients, chart.data["classes"])


def draw_points(chart: Chart, methods: Sequence[str]) -> "Figure":
    """Draw clients as points, coloured by a metric."""
    from unskew.report.figure import Figure  # noqa: PLC0415

    del methods
    x, y, values, sizes = np.array(chart.data["points"], dtype=np.float64).T
    figure = Figure(figsize=(5.2, 3.8), layout="constrained")
    axes = figure.subplots()
    dots = axes.scatter(
        x, y, c=values, s=20 + 120 * sizes / max(1, sizes.max()), cmap="cividis", edgecolors="0.4",
        plotnonfinite=True,
    )  # fmt: skip
    if len(x) <= _MAX_LABELS:
        for client, point in enumerate(zip(x, y, strict=True)):
            axes.annotate(str(client), point, (5, 3), textcoords="offset points", fontsize=7)
    axes.set_xticks([])
    axes.set_yticks([])
    figure.colorbar(dots, label=chart.data["value"])
    return figure


def _maps(chart: Chart, period: float = np.inf, **options: Any) -> "tuple[Figure, list[AxesImage]]":
    """Draw each map; values are taken modulo ``period``, so that colours repeat."""
    from unskew.report.figure import Figure  # noqa: PLC0415

    data, maps = chart.data, chart.data["maps"]
    across = min(3, len(maps))
    down = -(-len(maps) // across)
    figure = Figure(figsize=(2.6 * across + 1.4, 2.4 * down + 0.3), layout="constrained")
    grid = figure.subplots(down, across, squeeze=False).ravel()
    for axes in grid[len(maps) :]:
        axes.remove()
    images = []
    for axes, map_ in zip(grid, maps, strict=False):
        values = np.fmod(np.array(map_["values"], dtype=np.float64), period)
        images.append(axes.imshow(values, aspect="auto", interpolation="nearest", **options))
        axes.set_title(fill(map_.get("label", map_.get("method", "")), 30), fontsize=9)
        axes.set_xlabel(data["x"], fontsize=9)
        axes.set_ylabel(data["y"], fontsize=9)
        _label_cells(axes, map_, data)
    return figure, images


def _label_cells(axes: "Axes", map_: dict[str, Any], data: dict[str, Any]) -> None:
    """Label some rows and columns of a map."""
    rows = map_.get("rows") or data["rows"]
    labelled = range(0, len(rows), max(1, -(-len(rows) // 12)))
    axes.set_yticks(list(labelled), [rows[i] for i in labelled], fontsize=7)
    across, texts = _column_ticks(map_, data)
    axes.set_xticks(across, texts, fontsize=7)


def _column_ticks(map_: dict[str, Any], data: dict[str, Any]) -> tuple[list[float], list[str]]:
    """Return the positions of the labels along a map, in columns, and their texts."""
    columns = map_["columns"]
    if "ticks" in data:
        first, *_, last = data["edges"]
        scale = len(columns) / (last - first)
        positions = [(position - first) * scale - 0.5 for position, _ in data["ticks"]]
        return positions, [text for _, text in data["ticks"]]
    if "method" not in map_:
        return [], []
    step = max(1, -(-len(columns) // 6))
    labelled = range(step - 1, len(columns), step)
    return [float(i) for i in labelled], [columns[i] for i in labelled]
