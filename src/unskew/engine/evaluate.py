"""Evaluation: the metrics of the network's goal, such as accuracy, on three levels.

- ``global``: the global model on the common test set.
- ``local``: the global model on each client's test samples.
- ``personal``: each client's personal model on that client's test samples.

:func:`evaluate` measures all levels of a round; :func:`score` measures one model on samples.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unskew.composition.values import Server
from unskew.data.columns import Array, Columns
from unskew.data.federation import Federation
from unskew.engine.client import ClientContext
from unskew.engine.metrics import NO_METRICS, MetricPlan
from unskew.engine.personal import personal_models
from unskew.engine.placement import is_accelerator, samples_on, to_device, to_tensor
from unskew.models.functional import Batch, FunctionalModel
from unskew.runs.checkpoint import Position
from unskew.runs.client_tables import client_table
from unskew.stats.metric import POOLED
from unskew.utils.rng import stream, uniforms

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Scores:
    """The metrics of a model on samples: by metric, one value per sample."""

    metrics: Mapping[str, Floats]
    predictions: Floats | None = None
    """The scores from which further metrics are computed, if there are any; see
    :mod:`unskew.stats.formulas`."""

    def means(self) -> dict[str, float]:
        """Return the mean of every metric."""
        return {name: float(values.mean()) for name, values in self.metrics.items()}


@dataclass(frozen=True, eq=False)
class ClientScores:
    """The metrics of the clients that have test samples: by metric, one value per client."""

    clients: NDArray[np.int64]
    metrics: Mapping[str, Floats]
    computed: Mapping[str, Floats] = field(default_factory=dict)
    """Metrics that are computed from all predictions of a client, NaN where they are undefined."""
    pooled: Mapping[str, float] = field(default_factory=dict)
    """The same metrics of the predictions of all clients together, if they are in one place."""

    def summary(self, plan: MetricPlan = NO_METRICS) -> dict[str, float]:
        """Return the means over the clients, and the spread of the first metric.

        Metrics of the plan also have the value of the worst client, the number of clients for which
        they are undefined, and their value for all clients together.
        """
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
            **self._summary_of_computed(plan),
        }

    def _summary_of_computed(self, plan: MetricPlan) -> dict[str, float]:
        found = {}
        if plan.judged is not None and plan.judged.worst_key is None:
            name = plan.judged.name
            if name in self.metrics:  # the loss, if it is judged although there is an accuracy
                found[plan.judged.worst] = plan.judged.worst_of(self.metrics[name].tolist())
        for each in plan.computed:
            if each.name not in self.computed:
                continue
            values = self.computed[each.name]
            known = values[~np.isnan(values)].tolist()
            found[each.name] = fmean(known) if known else math.nan
            found[each.metric.worst] = each.metric.worst_of(known) if known else math.nan
            found[f"{each.name}_undefined"] = len(values) - len(known)
            if each.name in self.pooled:
                found[f"{POOLED}{each.name}"] = self.pooled[each.name]
        return found


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

    Returns the metrics by level, with the names of clients that could not be measured, and one
    table of clients per level. ``evaluate_on_clients``
    measures on the clients' test samples, wherever these are; ``evaluate_on_server`` returns
    further metrics of the global model.
    """
    server = position.server
    assert server is not None
    federation, method = context.federation, context.method
    levels: dict[str, Any] = {}
    tables = []
    if federation.common.samples:
        common = federation.common
        model = method.model(server)
        levels["global"] = _measured(context, model, common)
        if method.has_several_models:
            levels["outputs"] = _mean_over_outputs(context, server)
    further = {} if evaluate_on_server is None else evaluate_on_server(context, position)
    if further:
        levels["global"] = {**further, **levels.get("global", {})}
    measured = evaluate_on_clients(context, position)
    for level, result in measured.items():
        levels[level] = result.summary(context.metrics)
        tables.append(_score_table(level, position.round, result))
    row = {level: _judged_first(values, context.metrics) for level, values in levels.items()}
    return row | _absent(federation, measured), tables


def _absent(federation: Federation, measured: Levels) -> dict[str, list[str]]:
    """Return the clients with test samples that were not measured: the means are without them."""
    found = {int(k) for result in measured.values() for k in result.clients}
    absent = [int(k) for k in np.flatnonzero(federation.test.sizes) if k not in found]
    if not absent:
        return {}
    names = federation.client_names
    return {"not_evaluated": [str(k if names is None else names[k]) for k in absent]}


def evaluate_locally(context: ClientContext, position: Position) -> Levels:
    """Measure on the clients' test samples, which are all on this machine."""
    server, test, network = position.server, context.federation.test, context.network
    assert server is not None
    if not test.samples:
        return {}
    model = context.method.model(server)
    plan = context.metrics
    x, y = samples_to_score(test, context.device)
    model = context.model_on_device.of(model, context.device)
    local = by_client(score(network, model, x, y, context.device, plan=plan), test, plan)
    if not context.method.has_personal_models(network.layout):
        return {"local": local, "personal": local}
    models = personal_models(context, position, np.flatnonzero(test.sizes).tolist())
    personal = score_personal(network, lambda _: next(models), test, context.device, plan)
    return {"local": local, "personal": personal}


@torch.no_grad()
def score(
    network: FunctionalModel,
    vector: Tensor,
    x: Array | Tensor,
    y: Array | Tensor,
    device: torch.device,
    chunk: int = 1024,
    plan: MetricPlan = NO_METRICS,
) -> Scores:
    """Measure a model on samples, in evaluation mode.

    Metrics that need random numbers get the same ones for every model. Predictions are gathered
    only if the plan computes metrics of them.
    """
    network.module.eval()
    trainable = network.layout.trainable
    vector = to_device(vector, device)
    weights, buffers = vector[:trainable], network.buffers_of(vector[trainable:])
    found: dict[str, list[Tensor]] = {}
    predicted: list[Tensor] = []
    for start in range(0, len(y), chunk):
        rows = slice(start, start + chunk)
        labels = _on(device, y[rows]).to(network.goal.target_dtype)
        batch = Batch(
            network.inputs(_on(device, x[rows])),
            labels,
            torch.ones(len(labels), device=device),
            _noise(network, start, len(labels), device),
        )
        if plan.computed:
            with network.capture_passes() as passes:
                measured = network.goal.metrics(network, weights, buffers, batch)
            predicted.append(network.goal.predictions(passes[-1].output).cpu())
        else:
            measured = network.goal.metrics(network, weights, buffers, batch)
        for name, values in measured.items():
            found.setdefault(name, []).append(values.cpu().double())
    network.module.train()
    metrics = {name: torch.cat(values).numpy() for name, values in found.items()}
    if not predicted:
        return Scores(metrics)
    predictions = torch.cat(predicted).numpy()
    return Scores(metrics, predictions[:, 1] if plan.task == "binary" else predictions)


def by_client(scores: Scores, test: Columns, plan: MetricPlan = NO_METRICS) -> ClientScores:
    """Average scores over the samples of each client."""
    clients = np.flatnonzero(test.sizes)
    starts = test.offsets[clients]
    sizes = test.sizes[clients]
    means = {
        name: np.add.reduceat(values, starts) / sizes for name, values in scores.metrics.items()
    }
    if scores.predictions is None:
        return ClientScores(clients, means)
    rows = [slice(test.offsets[k], test.offsets[k + 1]) for k in clients]
    predictions = [scores.predictions[each] for each in rows]
    return ClientScores(
        clients, means, *_computed(plan, [test.y[each] for each in rows], predictions)
    )


def score_personal(
    network: FunctionalModel,
    model_of: Callable[[int], Tensor],
    test: Columns,
    device: torch.device,
    plan: MetricPlan = NO_METRICS,
) -> ClientScores:
    """Measure each client's personal model on that client's test samples."""
    clients = np.flatnonzero(test.sizes)
    x, y = samples_to_score(test, device)
    rows = [slice(test.offsets[k], test.offsets[k + 1]) for k in clients]
    found = [
        score(network, model_of(int(k)), x[own], y[own], device, plan=plan)
        for k, own in zip(clients, rows, strict=True)
    ]
    means = [each.means() for each in found]
    by_name = {name: np.array([each[name] for each in means]) for name in means[0]}
    predictions = [each.predictions for each in found if each.predictions is not None]
    if not predictions:
        return ClientScores(clients, by_name)
    targets = [test.client(int(k))[1] for k in clients]
    return ClientScores(clients, by_name, *_computed(plan, targets, predictions))


def _computed(
    plan: MetricPlan, targets: Sequence[Array], predictions: Sequence[Floats]
) -> tuple[dict[str, Floats], dict[str, float]]:
    """Return the plan's metrics of each client, and of all clients together."""
    values = [plan.client_values(y, p) for y, p in zip(targets, predictions, strict=True)]
    by_name = {each.name: np.array([v[each.name] for v in values]) for each in plan.computed}
    return by_name, plan.values(np.concatenate(targets), np.concatenate(predictions))


def _measured(context: ClientContext, model: Tensor, test: Columns) -> dict[str, float]:
    """Return the mean metrics of a model on samples, and those of all predictions."""
    x, y = samples_to_score(test, context.device)
    model = context.model_on_device.of(model, context.device)
    scores = score(context.network, model, x, y, context.device, plan=context.metrics)
    if scores.predictions is None:
        return scores.means()
    return {**scores.means(), **context.metrics.values(test.y, scores.predictions)}


def _judged_first(values: Mapping[str, float], plan: MetricPlan) -> dict[str, float]:
    """Return the metrics of a level, first the one that is judged, as displays show them."""
    first = [plan.judged.name] if plan.judged and plan.judged.name in values else []
    return {name: values[name] for name in dict.fromkeys([*first, *values])}


def _mean_over_outputs(context: ClientContext, server: Server) -> dict[str, float]:
    """Measure each of a method's models on the common test set; return the mean metrics."""
    common = context.federation.common
    found = [_measured(context, model, common) for model in context.method.outputs(server)]
    return {name: fmean(each[name] for each in found) for name in found[0]}


def _noise(network: FunctionalModel, start: int, count: int, device: torch.device) -> Tensor | None:
    """Return random numbers for test samples, drawn as if each sample were a client."""
    if not network.goal.noise_per_sample:
        return None
    samples = np.arange(start, start + count)
    numbers = uniforms(stream(0, "evaluation"), samples, 0, 1, network.goal.noise_per_sample)
    return to_device(torch.from_numpy(numbers[:, 0]), device)


def _on(device: torch.device, samples: Array | Tensor) -> Tensor:
    return to_device(samples if isinstance(samples, Tensor) else to_tensor(samples), device)


def samples_to_score(
    test: Columns, device: torch.device
) -> tuple[Array, Array] | tuple[Tensor, Tensor]:
    """Return test samples: on an accelerator the tensors that stay there, else the arrays."""
    return samples_on(device, test) if is_accelerator(device) else (test.x, test.y)


def _score_table(level: str, round_: int, result: ClientScores) -> dict[str, Any]:
    columns = {"client": result.clients, **result.metrics, **result.computed}
    first = next(iter(result.metrics))
    return {"kind": level, "round": round_, **client_table(columns, rank_by=first)}
