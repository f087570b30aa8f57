"""One chart of a comparison as a matplotlib figure, as ``Runs.plot`` returns it."""

from typing import TYPE_CHECKING

from unskew.errors import UnskewError
from unskew.report.charts import all_charts
from unskew.report.draw import draw_chart
from unskew.runs.runs import Runs
from unskew.utils.specs import lookup

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot_chart(runs: Runs, name: str | None = None, *, target: float | None = None) -> "Figure":
    """Draw the chart with a name; by default the curves of the metric that methods are judged by.

    The names are those of the files that ``unskew report --figures`` writes.
    """
    if not any(run.metrics for run in runs):
        raise UnskewError("runs: there is nothing to plot, because no round is finished yet")
    charts = {chart.name: chart for chart in all_charts(runs, target=target)}
    if name is None:
        judged = f"{runs.level}-{runs.metric.name}"
        name = judged if judged in charts else next(iter(charts))
    return draw_chart(lookup(charts, name, "chart"), runs.methods)
