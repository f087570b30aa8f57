"""The pictures of a report as plain numbers: a page draws them, and so does matplotlib."""

from unskew.report.charts.aggregation_weights import weight_pictures
from unskew.report.charts.chart import Chart
from unskew.report.charts.clients import box_pictures
from unskew.report.charts.clusters import cluster_pictures
from unskew.report.charts.cost import cost_pictures
from unskew.report.charts.curves import curve_pictures
from unskew.report.charts.data_distribution import holding_pictures
from unskew.report.charts.embedding import embedding_pictures
from unskew.report.charts.sample_weights import sample_weight_pictures
from unskew.runs.runs import Runs

__all__ = ["Chart", "all_pictures"]


def all_charts(runs: Runs, *, target: float | None = None, embedding: bool = False) -> list[Chart]:
    """Return every picture there are numbers for, in the order of a report.

    ``embedding`` asks for the t-SNE of the clients, which takes a while when there are many.
    """
    return [
        *curve_pictures(runs),
        *box_pictures(runs),
        *cost_pictures(runs, target),
        *holding_pictures(runs),
        *weight_pictures(runs),
        *sample_weight_pictures(runs),
        *cluster_pictures(runs),
        *(embedding_pictures(runs) if embedding else []),
    ]
