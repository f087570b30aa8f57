"""Several runs beside each other: methods as rows, figures over seeds."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unskew.errors import UnskewError
from unskew.report.table import Table
from unskew.runs.run import Run


@dataclass(frozen=True)
class Summary:
    """One method over all its seeds. Accuracies are shares, not per cent; NaN if not measured.

    ``accuracy`` is the global model's on the common test, ``local`` its mean over the clients' own
    tests and ``worst_client`` the lowest of those, ``personal`` the mean of personal models.
    """

    method: str
    seeds: int
    accuracy: float
    accuracy_sd: float
    local: float
    worst_client: float
    personal: float
    reached: int
    rounds_to_target: float
    bytes_to_target: float


class Runs(Sequence[Run]):
    """The runs of a comparison."""

    def __init__(self, runs: Iterable[Run]) -> None:
        self._runs = list(runs)

    def __getitem__(self, index: Any) -> Any:
        return self._runs[index]

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[Run]:
        return iter(self._runs)

    @property
    def methods(self) -> list[str]:
        """The methods, in the order they were run."""
        return list(dict.fromkeys(run.method for run in self._runs))

    def of(self, method: str) -> list[Run]:
        """Return one method's runs."""
        return [run for run in self._runs if run.method == method]

    def default_target(self) -> float:
        """Return an accuracy that every method reaches: the lowest of their best mean ones."""
        best = [_best_mean(self.of(method)) for method in self.methods]
        known = [value for value in best if not math.isnan(value)]
        # Rounded first, or 0.57 would become 56 per cent.
        return math.floor(round(100 * min(known), 6)) / 100 if known else math.nan

    def summaries(self, target: float | None = None) -> list[Summary]:
        """Sum up every method; cost is counted until the global accuracy reaches the target."""
        check_target(target)
        goal = self.default_target() if target is None else target
        return [_summary(method, self.of(method), goal) for method in self.methods]

    def table(self, target: float | None = None) -> Table:
        """Return one row a method: accuracy, worst client, and the cost of the target."""
        goal = self.default_target() if target is None else target
        at = "target" if math.isnan(goal) else f"{100 * goal:g} %"
        columns = ["method", "accuracy", "local", "worst", f"rounds to {at}", f"MB to {at}"]
        summaries = self.summaries(goal)
        rows = [_cells(summary) for summary in summaries]
        if any(_percent(summary.personal) != _percent(summary.local) for summary in summaries):
            columns.insert(3, "personal")
            for row, summary in zip(rows, summaries, strict=True):
                row.insert(3, _percent(summary.personal))
        return Table(columns, rows, title=self._title())

    def _title(self) -> str:
        first = self._runs[0]
        seeds = len({run.seed for run in self._runs})
        return (
            f"{first.data}, {_several(first.clients, 'client')}, {first.network}, "
            f"{_several(first.rounds, 'round')}, {_several(seeds, 'seed')}"
        )


def check_target(target: float | None) -> None:
    """Complain about a target that is no accuracy (NaN stands for one that is not known)."""
    if target is not None and (target < 0 or target > 1):
        raise UnskewError(f"target must be an accuracy from 0 to 1 (got {target:g})")


def _best_mean(runs: Sequence[Run]) -> float:
    curves = [run.curve("global")[1] for run in runs]
    if not curves or any(not curve for curve in curves):
        return math.nan
    shortest = min(len(curve) for curve in curves)
    return float(np.mean([curve[:shortest] for curve in curves], axis=0).max())


def _summary(method: str, runs: Sequence[Run], target: float) -> Summary:
    finals = [run.accuracy for run in runs]
    costs = [cost for run in runs if (cost := run.cost_to(target)) is not None]
    return Summary(
        method=method,
        seeds=len(runs),
        accuracy=float(np.mean(finals)),
        accuracy_sd=float(np.std(finals, ddof=1)) if len(finals) > 1 else 0.0,
        local=float(np.mean([run.last("local") for run in runs])),
        worst_client=float(np.mean([run.last("local", "min") for run in runs])),
        personal=float(np.mean([run.last("personal") for run in runs])),
        reached=len(costs),
        rounds_to_target=_mean([cost.rounds for cost in costs]),
        bytes_to_target=_mean([cost.bytes_up + cost.bytes_down for cost in costs]),
    )


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else math.nan


def _cells(summary: Summary) -> list[str]:
    spread = f" ± {100 * summary.accuracy_sd:.2f}" if summary.seeds > 1 else ""
    partly = 0 < summary.reached < summary.seeds
    some = f" ({summary.reached}/{summary.seeds} seeds)" if partly else ""
    return [
        summary.method,
        _number(100 * summary.accuracy, f"{{:.2f}}{spread} %"),
        _percent(summary.local),
        _percent(summary.worst_client),
        _number(summary.rounds_to_target, "{:.1f}") + some,
        _number(summary.bytes_to_target / 1e6, "{:.2f}"),
    ]


def _several(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


def _percent(value: float) -> str:
    return _number(100 * value, "{:.2f} %")


def _number(value: float, form: str) -> str:
    return "-" if math.isnan(value) else form.format(value)
