"""Latent codes of clients with even and uneven data in a shared VAE (latent, Fig. 2 to 4)."""

from typing import TYPE_CHECKING

import numpy as np
import torch

from unskew.data.federation import Federation
from unskew.data.sources import Source, source
from unskew.densities.vae_codes import codes
from unskew.densities.wasserstein import distance_to_normal
from unskew.experiments.studies.case_data import subsample
from unskew.experiments.studies.probes.base import Drawings, ProbeResult
from unskew.experiments.studies.study import Case
from unskew.experiments.training import train
from unskew.models.functional import FunctionalModel
from unskew.models.layout import flatten
from unskew.partition.base import SamplePool
from unskew.partition.registry import parse_partitioner
from unskew.utils.palette import color
from unskew.utils.rng import generator

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_EDGES = np.linspace(-4, 4, 41)


def half_even(data: Source, alpha: float, seed: int) -> Federation:
    """Partition half of a source evenly to two clients, the other half by Dirichlet to two more."""
    order = generator(seed, "halves").permutation(len(data.y_train))
    even, uneven = np.array_split(order, 2)
    owner = np.empty(len(order), np.int64)
    owner[even] = np.arange(len(even)) % 2
    pool = SamplePool(data.y_train[uneven], data.classes, None)
    partitioned = parse_partitioner(f"dirichlet:alpha={alpha}").partition(
        pool, 2, generator(seed, "skew")
    )
    owner[uneven] = 2 + partitioned.owner
    x = data.x_train[:, None] if data.x_train.ndim == 3 else data.x_train
    return Federation.from_arrays(
        x, data.y_train, owner, classes=data.classes, name=data.name, seed=seed
    )


def measure_codes(case: Case, seed: int) -> ProbeResult:
    """Train a VAE by FedAvg and measure the distance of each client's codes from the prior."""
    whole = subsample(source(case.data.name), case.data.samples, None, seed)
    federation = half_even(whole, float(case.options.get("alpha", 0.5)), seed)
    settings = case.train.changed({"seed": seed, "workers": 1, "evaluate_every": 0})
    run = train(federation, "fedavg", model=case.model, progress=False, settings=settings)
    assert run.model is not None
    network = FunctionalModel(run.model)
    vector = flatten(run.model, network.layout)
    client_codes = []
    for k in range(len(federation)):
        x = torch.from_numpy(np.ascontiguousarray(federation.train.client(k)[0]))
        client_codes.append(codes(network, vector, x, k, seed, 1).numpy())
    distances = [float(distance_to_normal(drawn).mean()) for drawn in client_codes]
    values = {
        "even clients": {"w1": float(np.mean(distances[:2]))},
        "uneven clients": {"w1": float(np.mean(distances[2:]))},
    }
    histograms = [
        [np.histogram(drawn[:, d], _EDGES, density=True)[0].tolist() for d in range(drawn.shape[1])]
        for drawn in client_codes
    ]
    counts = federation.train.label_counts(federation.classes).tolist()
    return ProbeResult(values, {"histograms": histograms, "counts": counts, "distances": distances})


def plot_codes(drawings: Drawings) -> "Figure":
    """Draw each client's label counts, and the distribution of its codes beside N(0, 1)."""
    from matplotlib.figure import Figure  # noqa: PLC0415 (slow to import)

    drawing = next(iter(drawings.values()))
    clients, dimensions = len(drawing["counts"]), len(drawing["histograms"][0])
    figure = Figure(figsize=(2.4 * clients, 2.0 * (1 + dimensions)), layout="constrained")
    grid = figure.subplots(1 + dimensions, clients, squeeze=False)
    middles = (_EDGES[1:] + _EDGES[:-1]) / 2
    prior = np.exp(-(middles**2) / 2) / np.sqrt(2 * np.pi)
    for k in range(clients):
        counts = drawing["counts"][k]
        grid[0][k].bar(range(len(counts)), counts, color=color(k))
        kind = "even" if k < 2 else "uneven"
        grid[0][k].set_title(f"client {k}, {kind}, W1 {drawing['distances'][k]:.2f}", fontsize=8)
        for d in range(dimensions):
            grid[1 + d][k].stairs(drawing["histograms"][k][d], _EDGES, color=color(k), fill=True)
            grid[1 + d][k].plot(middles, prior, color="0.2", linewidth=1)
            grid[1 + d][k].set_xlabel(f"dimension {d + 1}", fontsize=7)
    for axes in grid.ravel():
        axes.tick_params(labelsize=6)
    return figure
