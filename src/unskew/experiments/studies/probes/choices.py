"""How far rules' aggregates are from the main peak of clients' parameters (FedSA, Fig. 2)."""

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from unskew.composition.method import Method
from unskew.composition.values import Server
from unskew.experiments.studies.case_data import open_case_data
from unskew.experiments.studies.probes.base import Drawings, ProbeResult
from unskew.experiments.studies.probes.client_models import train_client_models
from unskew.experiments.studies.study import Case
from unskew.methods import make_method
from unskew.utils.palette import color
from unskew.utils.rng import generator

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]

_MAX_COORDINATES, _SHOWN, _GRID = 2000, 6, 128


def main_peaks(values: Floats) -> Floats:
    """Return the mode of every column by a Gaussian kernel (Silverman's width) on a grid."""
    count = len(values)
    deviation = values.std(0, ddof=1) if count > 1 else np.zeros(values.shape[1])
    width = np.maximum(1.06 * deviation * count**-0.2, 1e-12)
    low, high = values.min(0), values.max(0)
    grid = low + (high - low) * np.linspace(0, 1, _GRID)[:, None]
    heights = np.zeros_like(grid)
    for row in values:
        heights += np.exp(-(((grid - row) / width) ** 2) / 2)
    peaks: Floats = np.take_along_axis(grid, heights.argmax(0)[None], 0)[0]
    return peaks


def off_peak(chosen: Floats, values: Floats) -> float:
    """Return the mean distance of chosen values from the main peak, in standard deviations."""
    deviation = values.std(0, ddof=1)
    known = deviation > 0
    if not known.any():
        return math.nan
    return float((np.abs(chosen - main_peaks(values))[known] / deviation[known]).mean())


def measure_choices(case: Case, seed: int) -> ProbeResult:
    """Compare how rules aggregate the same models, at the coordinates where FedSA acts."""
    federation = open_case_data(case.data, seed)
    last = case.train.rounds
    uploads = train_client_models(case, federation, seed, (last,)).uploads(federation, last)
    trainable = uploads.layout.trainable
    server = Server(uploads.previous)
    vectors = {
        name: method.aggregate(server, uploads)[0].vector.double().numpy()[:trainable]
        for name, method in _methods(case).items()
    }
    acts = np.flatnonzero(vectors["FedSA"] != vectors["Mean"])
    share = 100 * len(acts) / trainable
    places = acts if len(acts) else np.arange(trainable)
    if len(places) > _MAX_COORDINATES:
        places = generator(seed, "choices").choice(places, _MAX_COORDINATES, replace=False)
    values = uploads.stack[:, :trainable].double().numpy()[:, places]
    found = {name: {"off-peak": off_peak(vector[places], values)} for name, vector in
             vectors.items()}  # fmt: skip
    found["FedSA"]["high-share"] = share
    shown = _most_skewed(values)
    return ProbeResult(
        found,
        {
            "values": values[:, shown].T.tolist(),
            "chosen": {name: vector[places][shown].tolist() for name, vector in vectors.items()},
        },
    )


def plot_choices(drawings: Drawings) -> "Figure":
    """Draw the most skewed parameters per case: clients as a histogram, rules as lines."""
    from matplotlib.figure import Figure  # noqa: PLC0415 (slow to import)

    across = max(len(one["values"]) for one in drawings.values())
    figure = Figure(figsize=(2.2 * across, 2.2 * len(drawings)), layout="constrained")
    grid = figure.subplots(len(drawings), across, squeeze=False)
    for row, (case, one) in zip(grid, drawings.items(), strict=True):
        for place, (axes, values) in enumerate(zip(row, one["values"], strict=False)):
            axes.hist(values, bins=12, color="0.8")
            for at, (name, chosen) in enumerate(one["chosen"].items()):
                axes.axvline(chosen[place], color=color(at), label=name, linewidth=1.5)
            axes.tick_params(labelsize=6)
            axes.locator_params(nbins=3)
        row[0].set_ylabel(case, fontsize=8)
    grid[0][0].legend(frameon=False, fontsize=6)
    return figure


def _methods(case: Case) -> dict[str, Method]:
    """Return the methods whose rules are compared; the option ``fedsa`` is FedSA's spec string."""
    specs = {"FedAvg": "fedavg", "Mean": "mean", "Median": "median"}
    specs["FedSA"] = str(case.options.get("fedsa", "fedsa"))
    return {name: make_method(spec) for name, spec in specs.items()}


def _most_skewed(values: Floats) -> NDArray[np.int64]:
    centered = values - values.mean(0)
    deviation = np.maximum(values.std(0), 1e-12)
    skewness = np.abs((centered**3).mean(0) / deviation**3)
    return np.argsort(-skewness)[:_SHOWN]
