"""Evaluation: the metrics of the network's goal, such as accuracy, on three levels.

- ``global``: the global model on the common test set.
- ``local``: the global model on each client's test samples.
- ``personal``: each client's personal model on that client's test samples.

:func:`evaluate` measures all levels of a round; :func:`score` measures one model on samples.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unskew.composition.method import Method
from unskew.composition.values import Server
from unskew.data.columns import Array, Columns
from unskew.engine.client import ClientContext, to_tensor
from unskew.engine.personal import personal_models
from unskew.models.functional import Batch, FunctionalModel
from unskew.runs.checkpoint import Position
from unskew.utils.rng import stream, uniforms

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Scores:
    """The metrics of a model on samples: by metric, one value per sample."""

    metrics: Mapping[str, Floats]

    def means(self) -> dict[str, float]:
        """Return the mean of every metric."""
        return {name: float(values.mean()) for name, values in self.metrics.items()}


@dataclass(frozen=True, eq=False)
class ClientScores:
    """The metrics of the clients that have test samples: by metric, one value per client."""

    clients: NDArray[np.int64]
    metrics: Mapping[str, Floats]

    def summary(self) -> dict[str, float]:
        """Return the means over the clients, and the spread of the first metric."""
        means = {name: float(values.mean()) for name, values in self.metrics.items()}
        first = next(iter(self.metrics.values()))
        q25, median, q75 = np.quantile(first, [0.25, 0.5, 0.75])
        return {
            **means,
            "sd": float(first.std()),
            "min": float(first.min()),
            "q25": float(q25),
            "median": float(median),
            "q75": float(q75),
            "max": float(first.max()),
        }


Levels = Mapping[str, ClientScores]
"""Metrics on the clients' test samples: ``local`` of the global model, ``personal`` of each
client's personal model."""


def evaluate(
    context: ClientContext,
    position: Position,
    evaluate_on_clients: Callable[[ClientContext, Position], Levels],
    evaluate_on_server: Callable[[ClientContext, Position], Mapping[str, float]] | None = None,
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Measure the model on every level that has samples.

    Returns the metrics by level, and one table of clients per level. ``evaluate_on_clients``
    measures on the clients' test samples, wherever these are; ``evaluate_on_server`` returns
    further metrics of the global model.
    """
    server = position.server
    assert server is not None
    federation, network, method = context.federation, context.network, context.method
    levels: dict[str, Any] = {}
    tables = []
    if federation.common.samples:
        common = federation.common
        scores = score(network, method.model(server), common.x, common.y, context.device)
        levels["global"] = scores.means()
        if method.has_several_models:
            levels["outputs"] = _mean_over_outputs(context, server)
    further = {} if evaluate_on_server is None else evaluate_on_server(context, position)
    if further:
        levels["global"] = {**further, **levels.get("global", {})}
    for level, result in evaluate_on_clients(context, position).items():
        levels[level] = result.summary()
        tables.append(_score_table(level, position.round, result))
    return levels, tables


def evaluate_locally(context: ClientContext, position: Position) -> Levels:
    """Measure on the clients' test samples, which are all on this machine."""
    server, test, network = position.server, context.federation.test, context.network
    assert server is not None
    if not test.samples:
        return {}
    model = context.method.model(server)
    local = by_client(score(network, model, test.x, test.y, context.device), test)
    if not has_personal_models(context.method, network):
        return {"local": local, "personal": local}
    models = personal_models(context, position, np.flatnonzero(test.sizes).tolist())
    personal = score_personal(network, lambda _: next(models), test, context.device)
    return {"local": local, "personal": personal}


def has_personal_models(method: Method, network: FunctionalModel) -> bool:
    """Return whether clients may use models other than the global one."""
    return method.has_own_personal_models or method.kept(network.layout) is not None


@torch.no_grad()
def score(
    network: FunctionalModel,
    vector: Tensor,
    x: Array,
    y: Array,
    device: torch.device,
    chunk: int = 1024,
) -> Scores:
    """Measure a model on samples, in evaluation mode.

    Metrics that need random numbers get the same ones for every model.
    """
    network.module.eval()
    trainable = network.layout.trainable
    vector = vector.to(device)
    weights, buffers = vector[:trainable], network.buffers_of(vector[trainable:])
    found: dict[str, list[Tensor]] = {}
    for start in range(0, len(y), chunk):
        labels = to_tensor(y[start : start + chunk]).to(device, torch.int64)
        batch = Batch(
            network.inputs(to_tensor(x[start : start + chunk]).to(device)),
            labels,
            torch.ones(len(labels), device=device),
            _noise(network, start, len(labels), device),
        )
        for name, values in network.goal.metrics(network, weights, buffers, batch).items():
            found.setdefault(name, []).append(values.double().cpu())
    network.module.train()
    return Scores({name: torch.cat(values).numpy() for name, values in found.items()})


def by_client(scores: Scores, test: Columns) -> ClientScores:
    """Average scores over the samples of each client."""
    clients = np.flatnonzero(test.sizes)
    starts = test.offsets[clients]
    sizes = test.sizes[clients]
    return ClientScores(
        clients,
        {name: np.add.reduceat(values, starts) / sizes for name, values in scores.metrics.items()},
    )


def score_personal(
    network: FunctionalModel, model_of: Callable[[int], Tensor], test: Columns, device: torch.device
) -> ClientScores:
    """Measure each client's personal model on that client's test samples."""
    clients = np.flatnonzero(test.sizes)
    means = [
        score(network, model_of(int(k)), *test.client(int(k)), device).means() for k in clients
    ]
    return ClientScores(
        clients, {name: np.array([each[name] for each in means]) for name in means[0]}
    )


def _mean_over_outputs(context: ClientContext, server: Server) -> dict[str, float]:
    """Measure each of a method's models on the common test set; return the mean metrics."""
    common = context.federation.common
    found = [
        score(context.network, model, common.x, common.y, context.device).means()
        for model in context.method.outputs(server)
    ]
    return {name: fmean(each[name] for each in found) for name in found[0]}


def _noise(network: FunctionalModel, start: int, count: int, device: torch.device) -> Tensor | None:
    """Return the random numbers of test samples, which are drawn as if each were a client."""
    if not network.goal.noise_per_sample:
        return None
    samples = np.arange(start, start + count)
    numbers = uniforms(stream(0, "evaluation"), samples, 0, 1, network.goal.noise_per_sample)
    return torch.from_numpy(numbers[:, 0]).to(device)


def _score_table(level: str, round_: int, result: ClientScores) -> dict[str, Any]:
    return {
        "kind": level,
        "round": round_,
        "client": result.clients.tolist(),
        **{name: values.tolist() for name, values in result.metrics.items()},
    }
