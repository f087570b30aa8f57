"""The charts of a report as plain values, drawn by the page's script or by matplotlib."""

from unskew.report.charts.aggregation_weights import weight_charts
from unskew.report.charts.chart import Chart
from unskew.report.charts.clients import box_charts
from unskew.report.charts.clusters import cluster_charts
from unskew.report.charts.cost import cost_charts
from unskew.report.charts.curves import curve_charts
from unskew.report.charts.data_distribution import distribution_charts
from unskew.report.charts.embedding import embedding_charts
from unskew.report.charts.forest import forest_charts
from unskew.report.charts.sample_weights import sample_weight_charts
from unskew.report.charts.tuning_history import tuning_charts
from unskew.runs.runs import Runs

__all__ = ["Chart", "all_charts"]


def all_charts(runs: Runs, *, target: float | None = None, embedding: bool = False) -> list[Chart]:
    """Return all charts for which the runs have data, in the order of a report.

    ``embedding`` adds a t-SNE of the clients, which is slow for many clients.
    """
    return [
        *forest_charts(runs),
        *curve_charts(runs),
        *box_charts(runs),
        *cost_charts(runs, target),
        *distribution_charts(runs),
        *weight_charts(runs),
        *sample_weight_charts(runs),
        *cluster_charts(runs),
        *(embedding_charts(runs) if embedding else []),
        *tuning_charts(runs),
    ]
