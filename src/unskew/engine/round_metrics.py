"""What a run keeps of a round: a line of metrics, and tables of its clients."""

from collections.abc import Callable, Mapping
from statistics import fmean
from typing import Any

import numpy as np
from torch import Tensor

from unskew.engine.client import ClientContext
from unskew.engine.evaluate import ByClient, by_client, score, score_personal
from unskew.engine.personal import personal_models
from unskew.engine.rounds import RoundOutcome
from unskew.methods.common.base import Method, Server
from unskew.models.functional import FunctionalModel
from unskew.runs.checkpoint import Position

Row = dict[str, Any]

_MOST_NUMBERS = 10_000
"""Diagnostics larger than this are left out of the metrics."""


def round_row(stage: str, round_: int, outcome: RoundOutcome) -> Row:
    """Return the round's metrics; the rules' findings that are not by client stand in them too."""
    line: Row = {
        "stage": stage,
        "round": round_,
        "clients": len(outcome.clients),
        "train_loss": outcome.mean_loss,
        "traffic": outcome.total.to_dict(),
    }
    refused = {k: why for k, why in outcome.rejected.items() if k not in outcome.missing}
    for name, reasons in (("rejected", refused), ("missing", outcome.missing)):
        if reasons:
            line[name] = {str(k): why for k, why in reasons.items()}
    if outcome.kept_model is not None:
        line["kept_model"] = outcome.kept_model
    others = {
        name: value.tolist()
        for name, value in outcome.diagnostics.items()
        if isinstance(value, Tensor)
        and not _is_column(value, outcome)
        and value.numel() <= _MOST_NUMBERS
    }
    if others:
        line["diagnostics"] = others
    return line


def round_table(stage: str, round_: int, outcome: RoundOutcome) -> Row:
    """Return the table of the round's clients: what they did, what they got, and why."""
    columns = {
        name: value.tolist()
        for name, value in outcome.diagnostics.items()
        if isinstance(value, Tensor) and _is_column(value, outcome)
    }
    weights = columns.pop("weights", None)
    return {
        "kind": "round",
        "stage": stage,
        "round": round_,
        "client": list(outcome.clients),
        "samples": list(outcome.samples),
        "weight": _with_gaps(weights, outcome),
        "train_loss": list(outcome.train_loss),
        "steps": list(outcome.steps),
        "parameters_up": [traffic.parameters_up for traffic in outcome.traffic],
        "parameters_down": [traffic.parameters_down for traffic in outcome.traffic],
        "bytes_up": [traffic.bytes_up for traffic in outcome.traffic],
        "bytes_down": [traffic.bytes_down for traffic in outcome.traffic],
        "reasons": {name: _with_gaps(values, outcome) for name, values in columns.items()},
    }


def _is_column(value: Tensor, outcome: RoundOutcome) -> bool:
    return value.shape == (len(outcome.accepted),)


def _with_gaps(values: list[float] | None, outcome: RoundOutcome) -> list[float | None]:
    """Put the accepted clients' values in their places, None in those of the others."""
    if values is None:
        return [None] * len(outcome.clients)
    known = dict(zip(outcome.accepted, values, strict=True))
    return [known.get(client) for client in outcome.clients]


Levels = Mapping[str, ByClient]
"""What was measured on the clients' own test samples: ``local`` the global model, ``personal``
those of the clients."""


def evaluate(
    context: ClientContext,
    position: Position,
    evaluate_on_clients: Callable[[ClientContext, Position], Levels],
) -> tuple[Row, list[Row]]:
    """Measure the model on the levels there are samples for; see :mod:`unskew.engine.evaluate`.

    ``own_tests`` measures on the clients' own samples, wherever those are.
    """
    server = position.server
    assert server is not None
    federation, network, method = context.federation, context.network, context.method
    levels: Row = {}
    tables = []
    if federation.common.samples:
        common = federation.common
        scores = score(network, method.model(server), common.x, common.y, context.device)
        levels["global"] = scores.means()
        if type(method).outputs is not Method.outputs:
            levels["outputs"] = _mean_over_outputs(context, server)
    for level, result in evaluate_on_clients(context, position).items():
        levels[level] = result.summary()
        tables.append(_score_table(level, position.round, result))
    return levels, tables


def _mean_over_outputs(context: ClientContext, server: Server) -> Row:
    """Measure each model of several on the common test, and return the means of the figures."""
    common = context.federation.common
    found = [
        score(context.network, model, common.x, common.y, context.device).means()
        for model in context.method.outputs(server)
    ]
    return {name: fmean(each[name] for each in found) for name in found[0]}


def evaluate_locally(context: ClientContext, position: Position) -> Levels:
    """Measure on the clients' own test samples, all of which are here."""
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
    """Tell whether clients may use other models than the global one."""
    overridden = type(method).personal is not Method.personal
    tuned = method.fine_tuning() is not None
    return overridden or tuned or method.kept(network.layout) is not None


def _score_table(level: str, round_: int, result: ByClient) -> Row:
    return {
        "kind": level,
        "round": round_,
        "client": result.clients.tolist(),
        **{name: values.tolist() for name, values in result.measures.items()},
    }
