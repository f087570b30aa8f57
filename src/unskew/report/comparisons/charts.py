"""The charts of a summary: a forest plot of gains, and the diagram of critical differences."""

from typing import TYPE_CHECKING

from unskew.errors import UnskewError
from unskew.report.charts.chart import Chart, cell, tidy
from unskew.report.comparisons.summary import ComparisonSummary
from unskew.report.comparisons.tables import MODEL, ranks_text, unit
from unskew.report.draw import draw_chart
from unskew.utils.specs import lookup
from unskew.utils.tables import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def summary_charts(summary: ComparisonSummary) -> list[Chart]:
    """Return the charts for which there are enough federations."""
    return [*_gains_chart(summary), *_ranks_chart(summary)]


def plot_summary(summary: ComparisonSummary, name: str | None = None) -> "Figure":
    """Draw the chart with a name, by default the first."""
    charts = {chart.name: chart for chart in summary_charts(summary)}
    if not charts:
        raise UnskewError("runs: there is nothing to plot; gains need two or more federations")
    return draw_chart(lookup(charts, name or next(iter(charts)), "chart"), summary.methods)


def _gains_chart(summary: ComparisonSummary) -> list[Chart]:
    if not summary.gains:
        return []
    rows, lines = [], []
    for method, gain in summary.gains.items():
        effects = summary.effects(method)
        better, worse = gain.low > 0, gain.high < 0
        rows.append(
            {
                "method": method,
                "difference": tidy(gain.mean),
                "low": tidy(gain.low),
                "high": tidy(gain.high),
                "answer": "better" if better else "worse" if worse else "undecided",
                "note": f"{gain.federations} of {len(summary.federations)} federations",
                "details": [["P(helps)", tidy(gain.p_helps)], ["spread", tidy(gain.spread)]],
                "federations": [[name, tidy(effect.mean)] for name, effect in effects.items()],
            }
        )
        means = [effects[each.name].mean if each.name in effects else None
                 for each in summary.federations]  # fmt: skip
        numbers = [gain.mean, gain.low, gain.high, gain.spread, gain.p_helps, gain.p_exceeds_margin]
        lines.append([method, str(gain.federations), *map(cell, [*numbers, *means])])
    columns = ["method", "federations", "gain", "low", "high", "spread", "p helps"]
    columns += ["p exceeds margin", *(each.name for each in summary.federations)]
    title = f"Gain over {summary.baseline} in {summary.metric.name}"
    return [
        Chart(
            name="gains",
            section="Gains",
            title=title,
            note="Mean gain of an average federation and its 95 % interval; small dots are the "
            "federations. Full dots are methods whose interval excludes 0; the band is the margin, "
            f"±{summary.margin:g}. Estimated by {MODEL}.",
            kind="forest",
            data={"x": f"gain, {unit(summary)}", "margin": summary.margin, "rows": rows},
            table=Table(columns, lines),
        )
    ]


def _ranks_chart(summary: ComparisonSummary) -> list[Chart]:
    ranks = summary.ranks
    if ranks is None:
        return []
    names = [each.name for each in summary.federations]
    rows = [
        {
            "method": method,
            "rank": tidy(mean),
            "federations": [list(pair) for pair in zip(names, ranks.each[method], strict=True)],
        }
        for method, mean in ranks.means.items()
    ]
    lines = [[m, cell(mean), *map(cell, ranks.each[m])] for m, mean in ranks.means.items()]
    return [
        Chart(
            name="ranks",
            section="Ranks",
            title="Mean ranks over federations",
            note=f"1 is the best. {ranks_text(summary)} Bars join methods whose mean ranks differ "
            "by less than the critical difference (Nemenyi's test, level 0.05).",
            kind="ranks",
            data={
                "x": "mean rank",
                "worst": len(rows),
                "difference": tidy(ranks.critical_difference),
                "groups": [[ranks.means[g[0]], ranks.means[g[-1]]] for g in ranks.groups],
                "rows": rows,
            },
            table=Table(["method", "mean rank", *names], lines),
        )
    ]
