"""Charts drawn with matplotlib, for papers: lines, boxes and bars. Maps are in draw_maps."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from unskew.report.charts import Chart
from unskew.report.draw_maps import draw_bubbles, draw_clusters, draw_maps, draw_points
from unskew.utils.palette import color, dash

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw_chart(chart: Chart, methods: Sequence[str]) -> "Figure":
    """Draw a chart; the order of ``methods``, the list of all methods, defines their colours."""
    return _DRAW[chart.kind](chart, methods)


def _draw_curves(chart: Chart, methods: Sequence[str]) -> "Figure":
    figure, axes = _figure(5.2, 3.4)
    for series in chart.data["series"]:
        index = methods.index(series["method"])
        mean, low, high = (_numbers(series[name]) for name in ("mean", "low", "high"))
        axes.plot(series["x"], mean, dash(index), color=color(index), label=series["method"])
        axes.fill_between(series["x"], low, high, color=color(index), alpha=0.15, linewidth=0)
        if "points" in series:
            points = _numbers(series["points"])
            axes.plot(series["x"], points, "o", color=color(index), ms=3, alpha=0.6)
    axes.xaxis.set_major_locator(_whole_numbers())
    axes.set_xlabel(chart.data["x"])
    axes.set_ylabel(chart.data["y"])
    if chart.data["share"]:
        axes.yaxis.set_major_formatter(_percent())
    axes.legend(frameon=False, fontsize=8)
    return figure


def _draw_histograms(chart: Chart, methods: Sequence[str]) -> "Figure":
    figure, axes = _figure(5.2, 3.0)
    for series in chart.data["series"]:
        index = methods.index(series["method"])
        axes.stairs(
            series["shares"], chart.data["edges"], color=color(index), label=series["method"],
            linestyle=dash(index),
        )  # fmt: skip
    positions, texts = zip(*chart.data["ticks"], strict=True)
    axes.set_xticks(positions, texts)
    axes.yaxis.set_major_formatter(_percent())
    axes.set_xlabel(chart.data["x"])
    axes.set_ylabel(chart.data["y"])
    axes.legend(frameon=False, fontsize=8)
    return figure


def _draw_boxes(chart: Chart, methods: Sequence[str]) -> "Figure":
    boxes = chart.data["boxes"]
    figure, axes = _figure(6.0, 1.0 + 0.34 * len(boxes))
    for row, box in enumerate(boxes):
        method_color = color(methods.index(box["method"]))
        stats = {
            "med": box["median"], "q1": box["q1"], "q3": box["q3"], "whislo": box["low"],
            "whishi": box["high"], "mean": box["mean"], "fliers": [o[2] for o in box["outliers"]],
        }  # fmt: skip
        axes.bxp(
            [stats], [row], orientation="horizontal", widths=0.6, showmeans=True, patch_artist=True,
            boxprops={"facecolor": method_color + "40", "edgecolor": method_color},
            medianprops={"color": method_color, "linewidth": 2.5},
            whiskerprops={"color": method_color}, capprops={"color": method_color},
            flierprops={"markeredgecolor": method_color, "markersize": 3.5},
            meanprops={"marker": "D", "markerfacecolor": "black", "markeredgecolor": "black",
                       "markersize": 3.5},
        )  # fmt: skip
    _name_rows(axes, boxes)
    axes.set_xlabel(chart.data["y"])
    if chart.data["share"]:
        axes.xaxis.set_major_formatter(_percent())
    return figure


def _draw_bars(chart: Chart, methods: Sequence[str]) -> "Figure":
    from unskew.report.figure import Figure  # noqa: PLC0415 (slow to import)

    panels = chart.data["panels"]
    figure = Figure(figsize=(7.6, 1.0 + 0.34 * len(panels[0]["bars"])), layout="constrained")
    for axes, panel in zip(figure.subplots(1, len(panels), sharey=True), panels, strict=True):
        for row, bar in enumerate(panel["bars"]):
            _draw_bar(axes, row, bar, color(methods.index(bar["method"])))
        _style(axes)
        axes.set_xlabel(panel["label"])
        axes.margins(x=0.25)
        axes.set_xlim(left=0)
    _name_rows(figure.axes[0], panels[0]["bars"])
    return figure


def _draw_forest(chart: Chart, methods: Sequence[str]) -> "Figure":
    rows, margin = chart.data["rows"], chart.data["margin"]
    figure, axes = _figure(6.0, 1.0 + 0.3 * len(rows))
    axes.axvspan(-margin, margin, color="0.5", alpha=0.15, linewidth=0)
    axes.axvline(0, color="0.3", linewidth=1)
    for place, row in enumerate(rows):
        tint = color(methods.index(row["method"]))
        low, high = row["low"], row["high"]
        if low is not None and high is not None:
            axes.plot([low, high], [place, place], color=tint, linewidth=2)
        dots = [value for _, value in row.get("federations", ())]
        axes.plot(dots, [place + 0.25] * len(dots), "o", color=tint, ms=3, alpha=0.6)
        filled = row["answer"] in ("better", "worse")
        axes.plot(
            row["difference"], place, "o", color=tint, ms=6,
            markerfacecolor=tint if filled else "white",
        )  # fmt: skip
    _name_rows(axes, rows)
    axes.set_xlabel(chart.data["x"])
    return figure


def _draw_ranks(chart: Chart, methods: Sequence[str]) -> "Figure":
    rows, groups, difference = (chart.data[name] for name in ("rows", "groups", "difference"))
    figure, axes = _figure(6.0, 1.1 + 0.14 * len(groups) + 0.3 * len(rows))
    axis = -1.0 - 0.45 * len(groups)  # the axis of ranks is above the rows, groups between them
    axes.plot([1, 1 + difference], [axis - 0.6] * 2, "|-", color="0.3", linewidth=1.5)
    axes.text(1, axis - 0.85, f"  critical difference {difference:.2f}", fontsize=8)
    for place, (first, last) in enumerate(groups):
        height = axis + 0.45 * (place + 1)
        axes.plot([first, last], [height] * 2, color="0.3", linewidth=4, solid_capstyle="butt")
    for place, row in enumerate(rows):
        tint, rank = color(methods.index(row["method"])), row["rank"]
        axes.plot([rank, rank, 1], [axis, place, place], color=tint, linewidth=1.3, clip_on=False)
        axes.plot(rank, axis, "o", color=tint, ms=6, clip_on=False, zorder=3)
    names = [f"{row['method']}  {row['rank']:.2f}" for row in rows]
    axes.set_yticks(range(len(rows)), names)
    axes.set_ylim(len(rows) - 0.5, axis - 1.5)
    axes.set_xlim(1, chart.data["worst"])
    axes.xaxis.set_major_locator(_whole_numbers())
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(chart.data["x"])
    return figure


def _draw_bar(axes: "Axes", row: int, bar: Mapping[str, Any], method_color: str) -> None:
    values = bar["values"]
    if values:
        axes.barh(row, bar["mean"], color=method_color, height=0.6)
        axes.plot(values, [row] * len(values), "o", color="white", markeredgecolor="0.2", ms=3.5)
    reached = f" ({len(values)}/{bar['seeds']})" if 0 < len(values) < bar["seeds"] else ""
    text = f"{bar['mean']:.3g}{reached}" if values else "never"
    axes.annotate(
        text, (max(values, default=0), row), (5, 0), textcoords="offset points", va="center",
        fontsize=8,
    )  # fmt: skip


def _figure(width: float, height: float) -> "tuple[Figure, Axes]":
    from unskew.report.figure import Figure  # noqa: PLC0415 (slow to import)

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots()
    _style(axes)
    return figure, axes


def _style(axes: "Axes") -> None:
    axes.grid(alpha=0.25)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=9)


def _name_rows(axes: "Axes", rows: Sequence[Mapping[str, Any]]) -> None:
    axes.set_yticks(range(len(rows)), [row["method"] for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)


def _whole_numbers() -> Any:
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415

    return MaxNLocator(integer=True)


def _percent() -> Any:
    from matplotlib.ticker import PercentFormatter  # noqa: PLC0415

    return PercentFormatter(1.0, decimals=0)


def _numbers(values: Sequence[float | None]) -> list[float]:
    return [float("nan") if value is None else value for value in values]


_DRAW: dict[str, "Callable[[Chart, Sequence[str]], Figure]"] = {
    "forest": _draw_forest,
    "ranks": _draw_ranks,
    "curves": _draw_curves,
    "boxes": _draw_boxes,
    "bars": _draw_bars,
    "histograms": _draw_histograms,
    "bubbles": draw_bubbles,
    "maps": draw_maps,
    "clusters": draw_clusters,
    "points": draw_points,
}
