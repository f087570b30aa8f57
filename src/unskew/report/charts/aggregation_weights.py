"""Aggregation weights of clients over the rounds: one heat map per method, or for several."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.report.charts.bins import bin_names, bin_starts, mean_of_bins
from unskew.report.charts.chart import Chart, cell, round_tables, tidied
from unskew.runs.client_tables import LISTED, MAX_ROWS
from unskew.runs.run import Run
from unskew.runs.runs import Runs
from unskew.utils.tables import Table

_CELLS = 30_000
"""The approximate number of cells of all maps together."""


def weight_charts(runs: Runs) -> list[Chart]:
    """Return the maps of the methods with aggregation weights, for the first seed of each."""
    first = [runs.of(method)[0] for method in runs.methods]
    known = [
        (run, matrix) for run in first if not np.isnan(matrix := client_rows(run, "weight")).all()
    ]
    if not known:
        return []
    maps, rows = [], list[list[str]]()
    for group in _with_equal_weights(known):
        names = [run.method for run, _ in group]
        drawn = _binned(group[0][1], _CELLS // len(known))
        maps.append({"method": names[0], "label": ", ".join(names), "methods": names, **drawn})
    for run, matrix in known:
        rows += [
            [run.method, str(client), *(cell(value) for value in line)]
            for client, line in enumerate(matrix)
        ]
    top = scale_end([float(np.nanmax(matrix)) for _, matrix in known])
    longest = max(matrix.shape[1] for _, matrix in known)
    heads = ["method", "client", *(f"round {i + 1}" for i in range(longest))]
    padded = [row + [""] * (len(heads) - len(row)) for row in rows]
    return [
        Chart(
            name="aggregation-weights",
            section="Aggregation weights",
            title="Aggregation weight of each client over the rounds",
            note=f"Seed {known[0][0].seed}. The weights of a round sum to one, or to one per model "
            "for methods with several. All maps have the same scale, whose end includes larger "
            "weights. Methods with the same weights share a map. Cells are empty where a client "
            "did not participate." + not_listed(run for run, _ in known),
            kind="maps",
            data={"x": "round", "y": "client", "value": "weight", "top": top, "maps": maps},
            table=Table(heads, padded),
        )
    ]


_Weights = tuple[Run, NDArray[np.float64]]


def _with_equal_weights(known: Iterable[_Weights]) -> list[list[_Weights]]:
    """Group runs whose clients have the same weights in every round."""
    groups: list[list[_Weights]] = []
    for run, matrix in known:
        same = (group for group in groups if np.array_equal(group[0][1], matrix, equal_nan=True))
        group = next(same, None)
        if group is None:
            groups.append([(run, matrix)])
        else:
            group.append((run, matrix))
    return groups


def not_listed(runs: Iterable[Run]) -> str:
    """Return a sentence on clients that tables leave out, if there are any."""
    if not any("of" in table for run in runs for table in round_tables(run)):
        return ""
    return f" Of rounds with more than {MAX_ROWS:,} clients, {LISTED} are shown."


def scale_end(largest: list[float]) -> float:
    """Return the end of the common scale of maps, given the largest value of each.

    A single map with much larger values than the others does not extend the scale.
    """
    return min(max(largest), 1.5 * float(np.median(largest)))


def client_rows(run: Run, column: str) -> NDArray[np.float64]:
    """Return a column of the client tables as clients x rounds; NaN where a client is absent."""
    tables = round_tables(run)
    matrix = np.full((len(tables), run.clients), np.nan)
    for row, table in zip(matrix, tables, strict=True):
        values = table.get(column, table["diagnostics"].get(column))
        if values is not None:
            row[table["client"]] = [np.nan if value is None else value for value in values]
    return matrix.T


def _binned(matrix: NDArray[np.float64], cells: int) -> dict[str, Any]:
    """Average neighbouring clients and rounds until the matrix has at most ``cells`` cells."""
    side = max(1, int(cells**0.5))
    clients = bin_starts(len(matrix), max(side, cells // max(1, matrix.shape[1])))
    rounds = bin_starts(matrix.shape[1], max(1, cells // len(clients)))
    means = mean_of_bins(mean_of_bins(matrix, clients).T, rounds).T
    return {
        "values": [tidied(row) for row in means],
        "rows": bin_names(clients, len(matrix), 0),
        "columns": bin_names(rounds, matrix.shape[1], 1),
    }
