"""The forest plot: each method's difference to the baseline, with its interval and the margin."""

import math

from unskew.report.charts.chart import Chart, cell, tidy
from unskew.runs.runs import Runs
from unskew.stats.verdict import TEST
from unskew.utils.tables import Table


def forest_charts(runs: Runs) -> list[Chart]:
    """Return the plot; empty if there is no difference to a baseline."""
    verdict = runs.verdict()
    if verdict is None or not verdict.pairs:
        return []
    sign = runs.metric.sign
    unit = "points" if runs.metric.is_share else runs.metric.name
    rows, lines = [], []
    for pair in sorted(verdict.pairs, key=lambda pair: -pair.difference):
        low, high = sorted((sign * pair.low, sign * pair.high))
        bounded = math.isfinite(low) and math.isfinite(high)
        rows.append(
            {
                "method": pair.method,
                "difference": tidy(sign * pair.difference),
                "low": tidy(low) if bounded else None,
                "high": tidy(high) if bounded else None,
                "answer": pair.answer,
                "note": verdict.note(pair.method),
                "p": tidy(pair.p),
            }
        )
        needed = "" if pair.seeds_needed is None else str(pair.seeds_needed)
        numbers = [cell(value) for value in (sign * pair.difference, low, high, pair.p)]
        lines.append([pair.method, *numbers, pair.answer, needed, str(pair.seeds)])
    margin = verdict.answers.margin
    return [
        Chart(
            name="verdict",
            section="Verdict",
            title=f"Difference to {verdict.baseline} in {runs.metric.name}",
            note=f"Means ({runs.final_text}) and simultaneous 95 % intervals over "
            f"{verdict.seeds} seeds. Full dots are significantly better or worse; the band is the "
            f"margin of equivalence, ±{margin:.3g}. Test: {TEST}.",
            kind="forest",
            data={"x": f"difference to {verdict.baseline}, {unit}", "margin": margin, "rows": rows},
            table=Table(
                ["method", "difference", "low", "high", "p", "answer", "seeds needed", "seeds"],
                lines,
            ),
        )
    ]
