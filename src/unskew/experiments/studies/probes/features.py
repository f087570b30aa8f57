"""Features sampled from what a server can infer, beside the true ones (FedFusion, Fig. 5)."""

import copy
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import sqrtm
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from unskew.aggregation.fusion import Fusion
from unskew.aggregation.uploads import Uploads
from unskew.data.federation import Federation
from unskew.engine.placement import to_tensor
from unskew.errors import UnskewError
from unskew.experiments.studies.case_data import open_case_data
from unskew.experiments.studies.probes.base import Drawings, ProbeResult
from unskew.experiments.studies.probes.client_models import ClientModels, train_client_models
from unskew.experiments.studies.probes.dispersion import drawing_of, embed, plot_dispersion
from unskew.experiments.studies.study import Case
from unskew.models.functional import FunctionalModel
from unskew.models.layout import assign
from unskew.utils.rng import generator

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]

_SAMPLES = 2000
"""The number of features sampled from each distribution."""


def frechet(first: Floats, second: Floats) -> float:
    """Return the Frechet distance of two samples, each treated as a normal distribution."""
    means = first.mean(0) - second.mean(0)
    one, two = np.cov(first.T), np.cov(second.T)
    one, two = np.atleast_2d(one), np.atleast_2d(two)
    root = np.real(sqrtm(one @ two))
    return float(means @ means + np.trace(one + two - 2 * root))


def mixture_statistics(mean: Floats, variance: Floats, shares: Floats) -> tuple[Floats, Floats]:
    """Return mean and variance of mixtures, given clients' statistics and shares per component."""
    weights = shares / shares.sum(1, keepdims=True)
    center = weights @ mean
    spread = weights @ (variance + mean**2) - center**2
    return center, np.maximum(spread, 0)


def sample_mixture(
    mean: Floats, variance: Floats, weights: Floats, count: int, seed: int, name: str
) -> Floats:
    """Sample features from a mixture of normal distributions, one row per component."""
    rng = generator(seed, f"features {name}")
    of = rng.choice(len(mean), count, p=weights / weights.sum())
    drawn: Floats = mean[of] + np.sqrt(variance[of]) * rng.standard_normal((count, mean.shape[1]))
    return drawn


def measure_features(case: Case, seed: int) -> ProbeResult:
    """Train by FedAvg, infer the distribution of features in three ways, and compare them."""
    federation = open_case_data(case.data, seed)
    last = case.train.rounds
    models = train_client_models(case, federation, seed, (last,))
    uploads = models.uploads(federation, last)
    mean, variance = _statistics(models, uploads)
    truth = _true_features(models, uploads, federation, seed)
    sizes = federation.train.sizes.astype(np.float64)
    shares, pi = _components(uploads)
    components = mixture_statistics(mean, variance, shares)
    average = (sizes / sizes.sum())[None]
    drawn = {
        "FedFusion": sample_mixture(*components, pi, _SAMPLES, seed, "fusion"),
        "averaged statistics": sample_mixture(
            average @ mean, average @ variance, np.ones(1), _SAMPLES, seed, "average"
        ),
        "clients' statistics": sample_mixture(mean, variance, sizes, _SAMPLES, seed, "clients"),
    }
    values = {name: {"frechet": frechet(rows, truth)} for name, rows in drawn.items()}
    shown = int(case.options.get("shown", 300))
    sets = {"true": truth, **drawn}
    rows = np.concatenate([part[:shown] for part in sets.values()])
    points = embed(rows.astype(np.float32))
    labels = [name for name, part in sets.items() for _ in part[:shown]]
    return ProbeResult(values, drawing_of(points, labels))


def plot_features(drawings: Drawings) -> "Figure":
    """Draw one map per case; colours distinguish true features from sampled ones."""
    return plot_dispersion(drawings)


def _components(uploads: Uploads) -> tuple[Floats, Floats]:
    """Return clients' shares in each non-empty component of FedFusion, and its weight."""
    rule = Fusion().sized_for(uploads.num_clients_total)
    described = rule.describe(uploads)
    allocation = rule.allocate(described, rule.refit(described))
    diagnostics = rule.explain(uploads, allocation)
    shares = diagnostics["allocation"].double().numpy().T
    pi = diagnostics["pi"].double().numpy()
    used = shares.sum(1) > 0
    return shares[used], pi[used]


def _norm_layer(module: nn.Module) -> tuple[str, nn.Module]:
    layers = [(name, part) for name, part in module.named_modules() if isinstance(part, _BatchNorm)]
    if not layers:
        raise UnskewError("model: the probe 'features' needs a network with BatchNorm")
    return layers[-1]


def _statistics(models: ClientModels, uploads: Uploads) -> tuple[Floats, Floats]:
    """Return running means and variances of the last BatchNorm layer, one row per client."""
    name, _ = _norm_layer(models.module)
    slices = {entry.name: entry.slice for entry in models.layout}
    mean = uploads.stack[:, slices[f"{name}.running_mean"]]
    variance = uploads.stack[:, slices[f"{name}.running_var"]]
    return mean.double().numpy(), variance.double().numpy()


@torch.no_grad()
def _true_features(
    models: ClientModels, uploads: Uploads, federation: Federation, seed: int
) -> Floats:
    """Return the layer's inputs for the clients' samples, each in its client's model."""
    module = copy.deepcopy(models.module).eval()
    _, layer = _norm_layer(module)
    inputs_seen: list[Tensor] = []
    handle = layer.register_forward_pre_hook(lambda _, inputs: inputs_seen.append(inputs[0]))
    network = FunctionalModel(module)
    for k in range(len(federation)):
        assign(module, models.layout, uploads.stack[k])
        module.eval()
        module(network.inputs(to_tensor(federation.train.client(k)[0])))
    handle.remove()
    rng = generator(seed, "true features")
    features = torch.cat(inputs_seen)
    rows = features.flatten(2).movedim(1, 2) if features.ndim > 2 else features[:, None]
    positions = torch.from_numpy(rng.integers(rows.shape[1], size=len(rows)))
    picked = rows[torch.arange(len(rows)), positions].double().numpy()
    chosen = rng.permutation(len(picked))[:_SAMPLES]
    result: Floats = picked[chosen]
    return result
