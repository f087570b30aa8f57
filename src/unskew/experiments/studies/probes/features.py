"""Features drawn from what a server can infer, beside the true ones (FedFusion, Fig. 5)."""

import copy
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import sqrtm
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from unskew.aggregation.fusion import Fusion
from unskew.aggregation.uploads import Uploads
from unskew.data.federation import Federation
from unskew.engine.client import to_tensor
from unskew.errors import UnskewError
from unskew.experiments.studies.case_data import open_case_data
from unskew.experiments.studies.probes.dispersion import draw_dispersion, embed
from unskew.experiments.studies.probes.keeping import Trace, trace
from unskew.experiments.studies.probing import Finding
from unskew.experiments.studies.study import Case
from unskew.models.functional import FunctionalModel
from unskew.models.layout import assign
from unskew.utils.rng import generator

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]

_DRAWN = 2000


def frechet(first: Floats, second: Floats) -> float:
    """Return the Frechet distance of two samples, each taken as a normal distribution."""
    means = first.mean(0) - second.mean(0)
    one, two = np.cov(first.T), np.cov(second.T)
    one, two = np.atleast_2d(one), np.atleast_2d(two)
    root = np.real(sqrtm(one @ two))
    return float(means @ means + np.trace(one + two - 2 * root))


def mixed(mean: Floats, variance: Floats, shares: Floats) -> tuple[Floats, Floats]:
    """Return mean and variance of mixtures: statistics by client, shares by component."""
    weights = shares / shares.sum(1, keepdims=True)
    center = weights @ mean
    spread = weights @ (variance + mean**2) - center**2
    return center, np.maximum(spread, 0)


def drawn_from(
    mean: Floats, variance: Floats, chances: Floats, count: int, seed: int, name: str
) -> Floats:
    """Draw features from a mixture of normal distributions, a row of statistics each."""
    rng = generator(seed, f"features {name}")
    of = rng.choice(len(mean), count, p=chances / chances.sum())
    drawn: Floats = mean[of] + np.sqrt(variance[of]) * rng.standard_normal((count, mean.shape[1]))
    return drawn


def measure_features(case: Case, seed: int) -> Finding:
    """Train by FedAvg, infer the features' distribution in three ways, and compare."""
    federation = open_case_data(case.data, seed)
    last = case.train.rounds
    found = trace(case, federation, seed, (last,))
    uploads = found.uploads(federation, last)
    mean, variance = _statistics(found, uploads)
    truth = _true_features(found, uploads, federation, seed)
    sizes = federation.train.sizes.astype(np.float64)
    shares, pi = _components(uploads)
    parts = mixed(mean, variance, shares)
    average = (sizes / sizes.sum())[None]
    drawn = {
        "FedFusion": drawn_from(*parts, pi, _DRAWN, seed, "fusion"),
        "averaged statistics": drawn_from(
            average @ mean, average @ variance, np.ones(1), _DRAWN, seed, "average"
        ),
        "clients' statistics": drawn_from(mean, variance, sizes, _DRAWN, seed, "clients"),
    }
    values = {name: {"frechet": frechet(rows, truth)} for name, rows in drawn.items()}
    shown = int(case.options.get("shown", 300))
    sets = {"true": truth, **drawn}
    rows = np.concatenate([part[:shown] for part in sets.values()])
    places = embed(rows.astype(np.float32))
    labels = [name for name, part in sets.items() for _ in part[:shown]]
    return Finding(values, {"x": places[:, 0].tolist(), "y": places[:, 1].tolist(), "of": labels})


def draw_features(drawn: dict[str, dict[str, Any]]) -> "Figure":
    """Draw a map a case; colours tell true features from drawn ones."""
    return draw_dispersion(drawn)


def _components(uploads: Uploads) -> tuple[Floats, Floats]:
    """Return FedFusion's components: clients' shares in each that has any, and its weight."""
    rule = Fusion().sized_for(uploads.num_clients_total)
    described = rule.describe(uploads)
    allocation = rule.allocate(described, rule.refit(described))
    reasons = rule.explain(uploads, allocation)
    shares = reasons["allocation"].double().numpy().T
    pi = reasons["pi"].double().numpy()
    used = shares.sum(1) > 0
    return shares[used], pi[used]


def _norm_layer(module: nn.Module) -> tuple[str, nn.Module]:
    layers = [(name, part) for name, part in module.named_modules() if isinstance(part, _BatchNorm)]
    if not layers:
        raise UnskewError("model: the probe 'features' needs a network with BatchNorm")
    return layers[-1]


def _statistics(found: Trace, uploads: Uploads) -> tuple[Floats, Floats]:
    """Return running means and variances of the last BatchNorm layer, a row a client."""
    name, _ = _norm_layer(found.module)
    places = {entry.name: entry.place for entry in found.layout}
    mean = uploads.stack[:, places[f"{name}.running_mean"]]
    variance = uploads.stack[:, places[f"{name}.running_var"]]
    return mean.double().numpy(), variance.double().numpy()


@torch.no_grad()
def _true_features(found: Trace, uploads: Uploads, federation: Federation, seed: int) -> Floats:
    """Return what the layer sees of the clients' samples, each in its own client's model."""
    module = copy.deepcopy(found.module).eval()
    _, layer = _norm_layer(module)
    seen: list[Tensor] = []
    handle = layer.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    network = FunctionalModel(module)
    for k in range(len(federation)):
        assign(module, found.layout, uploads.stack[k])
        module.eval()
        module(network.inputs(to_tensor(federation.train.client(k)[0])))
    handle.remove()
    rng = generator(seed, "true features")
    features = torch.cat(seen)
    rows = features.flatten(2).movedim(1, 2) if features.ndim > 2 else features[:, None]
    spots = torch.from_numpy(rng.integers(rows.shape[1], size=len(rows)))
    picked = rows[torch.arange(len(rows)), spots].double().numpy()
    chosen = rng.permutation(len(picked))[:_DRAWN]
    result: Floats = picked[chosen]
    return result
