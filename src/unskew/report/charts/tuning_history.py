"""The history of a search: every setting that was tried, in order, and the best so far."""

from unskew.report.charts.chart import Chart, tidy
from unskew.report.tuning_table import history_table, recorded_searches, with_best
from unskew.runs.runs import Runs


def tuning_charts(runs: Runs) -> list[Chart]:
    """Return the history; empty if nothing was tuned."""
    table = history_table(runs)
    if table is None:
        return []
    series = []
    for method, search in recorded_searches(runs).items():
        history = list(with_best(search, runs.metric))
        best = [tidy(value) for _, value in history]
        points = [None if tried["failures"] else tidy(tried["value"]) for tried, _ in history]
        numbers = list(range(1, len(history) + 1))
        series.append(
            {"method": method, "x": numbers, "mean": best, "low": best, "high": best}
            | {"points": points}
        )
    metric = runs.metric
    return [
        Chart(
            name="tuning-history",
            section="Search for settings",
            title="Settings that were tried",
            note=(
                f"Values are the {metric.name} on the validation part. Dots are settings in the "
                "order in which they were tried, after the rounds they were trained; settings that "
                "failed have none. Lines are the best so far of those trained with all seeds."
            ),
            kind="curves",
            data={
                "x": "setting",
                "y": f"validation {metric.name}",
                "share": metric.is_share,
                "series": series,
            },
            table=table,
        )
    ]
