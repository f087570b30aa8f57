"""Measures that papers define, as functions of plain numbers and of runs.

Accuracy and its spread over clients are in a run's metrics, and the bytes to a target in
:meth:`unskew.runs.run.Run.cost_to`; the other measures are here.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from unskew.errors import UnskewError
from unskew.models.layout import Layout, TensorKind
from unskew.runs.run import Run

if TYPE_CHECKING:
    from torch import Tensor

Curve = tuple[Sequence[int], Sequence[float]]
"""Rounds, and the value of a metric at each; more is better."""

_MAX_METRICS = 16
"""A client that sends at most this many numbers sends metrics, not a model."""


def communication_cost(size: int, rounds: float) -> float:
    """Return the number of values a client sends and receives: ``2 S R`` (FedDisk, Eq. 18)."""
    return 2 * size * rounds


def two_phase_cost(phases: Sequence[tuple[int, float]]) -> float:
    """Return the total cost of phases, each a model size and its rounds (FedDisk, Eq. 19)."""
    return sum(communication_cost(size, rounds) for size, rounds in phases)


def rounds_to(curve: Curve, target: float) -> float:
    """Return the first round whose value reaches the target; NaN if none does."""
    for round_, value in zip(*curve, strict=True):
        if value >= target:
            return float(round_)
    return math.nan


def rounds_to_best(curve: Curve) -> float:
    """Return the first round at which a curve reaches its maximum; NaN if it is empty."""
    known = [value for value in curve[1] if not math.isnan(value)]
    return rounds_to(curve, max(known)) if known else math.nan


def effective_rounds(
    curves: Mapping[str, Curve], ours: str, before: Mapping[str, float] | None = None
) -> dict[str, float]:
    """Return FedDisk's effective communication rounds of every method.

    For a rival these are the rounds until its best value; for ``ours``, the rounds until the best
    value of the best rival, NaN if it is never reached. ``before`` holds the rounds in which a
    method exchanged other models, which count too.
    """
    if ours not in curves:
        raise UnskewError(f"ours: {ours!r} must be one of {', '.join(curves)}")
    earlier = before or {}
    rivals = [curve for name, curve in curves.items() if name != ours and len(curve[1])]
    found = {name: rounds_to_best(curve) + earlier.get(name, 0.0) for name, curve in curves.items()}
    if rivals:
        target = max(float(np.nanmax(curve[1])) for curve in rivals)
        found[ours] = rounds_to(curves[ours], target) + earlier.get(ours, 0.0)
    return found


@dataclass(frozen=True)
class Exchange:
    """The models a client of a run exchanges before the task and in it, as sizes and rounds."""

    size_before: int
    rounds_before: int
    size: int

    def cost(self, rounds: float) -> float:
        """Return the two-phase cost of ``rounds`` in total, including those before the task."""
        task = rounds - self.rounds_before
        return two_phase_cost([(self.size_before, self.rounds_before), (self.size, task)])


def exchange_of(run: Run) -> Exchange:
    """Derive from a run's traffic which models its clients exchanged, and in how many rounds.

    A size is the mean of upload and download, which differ for methods such as IFCA. The task's is
    the median over rounds, so that a model sent once, such as a VAE, does not count in every round.
    Rounds in which clients send only a few metrics and no model do not count.
    """
    before = [row for row in run.metrics if row["stage"] != "task"]
    models = [_exchanged(row) for row in before if _sent(row) > _MAX_METRICS]
    task = [_exchanged(row) for row in run.metrics if row["stage"] == "task"]
    return Exchange(max(models, default=0), len(models), round(median(task)) if task else 0)


def parameter_bias(vector: "Tensor", reference: "Tensor", layout: Layout) -> float:
    """Return the mean absolute error of normalisation parameters against a reference model.

    FedFusion's Fig. 6: running means and deviations, shifts and scales of all BatchNorm layers,
    compared with a network of the same layout trained centrally on all samples. NaN if the network
    has no such layer.
    """
    total, count = 0.0, 0
    for entry in layout:
        if not entry.batch_norm or entry.kind is TensorKind.COUNTER:
            continue
        ours, other = vector[entry.slice].double(), reference[entry.slice].double()
        if entry.name.endswith("running_var"):
            ours, other = ours.clamp_min(0).sqrt(), other.clamp_min(0).sqrt()
        total += float((ours - other).abs().sum())
        count += entry.size
    return total / count if count else math.nan


def seconds_per_round(run: Run) -> float:
    """Return the median seconds per round of the task, which is robust to a busy machine."""
    times = [row["seconds"] for row in run.metrics if row["stage"] == "task"]
    return float(np.median(times)) if times else math.nan


def worst_clients(run: Run, count: int) -> list[int]:
    """Return the clients whose last value on their local test is worst, sorted by index.

    Of more than 1,000 clients only those in the table are considered.
    """
    tables = [table for table in run.client_tables if table["kind"] == "local"]
    if not tables:
        return []
    sign = 1 if run.metric.more_is_better else -1
    scores = zip(tables[-1][run.metric.of_client], tables[-1]["client"], strict=True)
    known = [(sign * score, k) for score, k in scores if score is not None]
    return sorted(client for _, client in sorted(known)[:count])


def _sent(row: Mapping[str, Any]) -> float:
    """Return the number of values each client sent in a round."""
    return float(row["traffic"]["parameters_up"] / max(1, row["clients"]))


def _exchanged(row: Mapping[str, Any]) -> int:
    """Return the number of values per client and direction in a round."""
    received = float(row["traffic"]["parameters_down"] / max(1, row["clients"]))
    return round((_sent(row) + received) / 2)
