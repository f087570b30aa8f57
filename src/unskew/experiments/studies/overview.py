"""The overview of a study as one figure: our means and the paper's, by case and method."""

from pathlib import Path
from typing import Any

from unskew.experiments.studies.measure_registry import measure_of
from unskew.experiments.studies.study import Study
from unskew.utils.palette import color

_DPI = 110


def draw_overview(path: Path, study: Study, result: dict[str, Any]) -> Path | None:
    """Draw the study's first measure: filled points are our values, rings the paper's."""
    from matplotlib.figure import Figure  # noqa: PLC0415 (slow to import)

    name = study.file.measures[0]
    points = [
        (place, row["method"], row["measured"].get(name), row["paper"].get(name))
        for place, case in enumerate(result["cases"])
        for row in case["rows"]
    ]
    if not any(ours and ours["mean"] is not None for _, _, ours, _ in points):
        return None
    labels = list(dict.fromkeys(label for _, label, _, _ in points))
    cases = [case["name"] for case in result["cases"]]
    figure = Figure(figsize=(max(4.5, 1.2 + 1.1 * len(cases)), 3.6), layout="constrained")
    axes = figure.subplots()
    for place, label, ours, paper in points:
        at = labels.index(label)
        x = place + 0.7 * ((at + 0.5) / len(labels) - 0.5)
        if ours and ours["mean"] is not None:
            axes.errorbar(x, ours["mean"], ours["sd"] or 0, fmt="o", color=color(at), ms=5)
        if paper is not None:
            axes.plot(x, paper, "o", markerfacecolor="none", markeredgecolor=color(at), ms=9)
    for at, label in enumerate(labels):
        axes.plot([], [], "o", color=color(at), label=label)
    axes.plot([], [], "o", color="0.4", markerfacecolor="none", ms=9, label="paper")
    axes.set_xticks(range(len(cases)), cases, rotation=30 if len(cases) > 2 else 0, ha="right",
                    fontsize=8)  # fmt: skip
    axes.set_ylabel(measure_of(name).title, fontsize=8)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=7)
    figure.savefig(path, dpi=_DPI)
    return path
