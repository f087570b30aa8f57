"""Curves over rounds, one line a method, with a band of one deviation over seeds."""

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from unskew.runs.run import Run
from unskew.runs.runs import Runs

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which people with any colour vision tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
DASHES = ("-", "--", "-.", ":")


def draw_curves(runs: Runs) -> "Figure":
    """Draw the global figure, the worst client's, and the training loss over rounds."""
    from matplotlib.figure import Figure  # noqa: PLC0415 (slow to import)

    figure = Figure(figsize=(11, 3.6), layout="constrained")
    judged = runs.figure
    panels = (
        ("global", judged.name, f"{judged.name} on the common test"),
        ("local", judged.worst, f"{judged.name} of the worst client"),
        (None, "train_loss", "training loss"),
    )
    for axes, (level, field, title) in zip(figure.subplots(1, 3), panels, strict=True):
        for i, method in enumerate(runs.methods):
            rounds, values = _curves(runs.of(method), level, field)
            if not values.size:
                continue
            mean, sd = values.mean(0), values.std(0, ddof=min(1, len(values) - 1))
            colour, dash = COLOURS[i % len(COLOURS)], DASHES[i // len(COLOURS) % len(DASHES)]
            axes.plot(rounds, mean, dash, color=colour, label=method, linewidth=1.8)
            low, high = mean - sd, mean + sd
            if level is not None and judged.more_is_better:  # a share stays between 0 and 1
                low, high = low.clip(0, 1), high.clip(0, 1)
            axes.fill_between(rounds, low, high, color=colour, alpha=0.15, linewidth=0)
        axes.set_title(title, fontsize=11)
        axes.set_xlabel("round")
        axes.grid(alpha=0.25)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    drawn = [axes for axes in figure.axes if axes.get_lines()]
    if drawn:
        drawn[0].legend(frameon=False, fontsize=9)
    return figure


def to_svg(figure: "Figure") -> str:
    """Return a figure as an SVG element for an HTML page."""
    out = io.StringIO()
    figure.savefig(out, format="svg", transparent=False)
    text = out.getvalue()
    return text[text.index("<svg") :]


def _curves(
    runs: Sequence[Run], level: str | None, field: str
) -> tuple[list[int], np.ndarray[tuple[int, int], np.dtype[np.float64]]]:
    """Return the rounds all runs were measured at, and one row of figures a run."""
    curves = []
    for run in runs:
        if level is None:
            rows = [row for row in run.metrics if row["stage"] == "task"]
            curves.append(
                dict(zip([r["round"] for r in rows], [r[field] for r in rows], strict=True))
            )
        else:
            curves.append(dict(zip(*run.curve(level, field), strict=True)))
    rounds = sorted(set.intersection(*(set(curve) for curve in curves))) if curves else []
    return rounds, np.array([[curve[r] for r in rounds] for curve in curves], dtype=np.float64)
