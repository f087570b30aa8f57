"""What a run records of a round's training: one row of metrics, and one table of its clients."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from torch import Tensor

from unskew.composition.accepted_sizes import Sizes
from unskew.runs.client_tables import client_table
from unskew.runs.cost import Traffic, add_up

Row = dict[str, Any]

_MAX_NUMBERS = 10_000
"""Diagnostics larger than this are left out of the metrics."""


@dataclass(frozen=True, eq=False)
class RoundOutcome:
    """What happened in one round, for the run to record."""

    clients: Sequence[int]
    samples: Sequence[int]
    train_loss: Sequence[float]
    steps: Sequence[int]
    traffic: Sequence[Traffic]
    rejected: Mapping[int, str] = field(default_factory=dict)
    missing: Mapping[int, str] = field(default_factory=dict)
    """The clients that never replied, by reason; they are among the rejected too."""
    diagnostics: Mapping[str, Any] = field(default_factory=dict)
    sizes: Sizes = field(default_factory=dict)
    """How large what was accepted is; empty where the previous model is kept."""
    kept_model: str | None = None
    """Why the previous global model is kept; None if there is a new one."""

    @cached_property
    def accepted(self) -> list[int]:
        """The clients whose uploads were used."""
        return [k for k in self.clients if k not in self.rejected]

    @property
    def total(self) -> Traffic:
        """The traffic of all clients together."""
        return add_up(self.traffic)

    @property
    def mean_loss(self) -> float | None:
        """The sample-weighted mean training loss of the accepted clients; None without any."""
        rows = [row for row, k in enumerate(self.clients) if k not in self.rejected]
        if not rows:
            return None
        losses, samples = np.array(self.train_loss)[rows], np.array(self.samples)[rows]
        return float((losses * samples).sum() / samples.sum())


def round_row(stage_name: str, round_: int, outcome: RoundOutcome) -> Row:
    """Return the round's metrics, with the diagnostics that are not per client."""
    row: Row = {
        "stage": stage_name,
        "round": round_,
        "clients": len(outcome.clients),
        "train_loss": outcome.mean_loss,
        "traffic": outcome.total.to_dict(),
    }
    rejected = {k: why for k, why in outcome.rejected.items() if k not in outcome.missing}
    for name, reasons in (("rejected", rejected), ("missing", outcome.missing)):
        if reasons:
            row[name] = {str(k): why for k, why in reasons.items()}
    if outcome.kept_model is not None:
        row["kept_model"] = outcome.kept_model
    diagnostics = {
        name: value.tolist()
        for name, value in outcome.diagnostics.items()
        if isinstance(value, Tensor)
        and not _is_per_client(value, outcome)
        and value.numel() <= _MAX_NUMBERS
    }
    if diagnostics:
        row["diagnostics"] = diagnostics
    return row


def round_table(stage_name: str, round_: int, outcome: RoundOutcome) -> Row:
    """Return the table of the round's clients: their training, weights, traffic and diagnostics."""
    columns = {
        name: value.tolist()
        for name, value in outcome.diagnostics.items()
        if isinstance(value, Tensor) and _is_per_client(value, outcome)
    }
    weights = columns.pop("weights", None)
    table = client_table(
        {
            "client": outcome.clients,
            "samples": outcome.samples,
            "weight": _with_gaps(weights, outcome),
            "train_loss": outcome.train_loss,
            "steps": outcome.steps,
            "parameters_up": [traffic.parameters_up for traffic in outcome.traffic],
            "parameters_down": [traffic.parameters_down for traffic in outcome.traffic],
            "bytes_up": [traffic.bytes_up for traffic in outcome.traffic],
            "bytes_down": [traffic.bytes_down for traffic in outcome.traffic],
        },
        {name: _with_gaps(values, outcome) for name, values in columns.items()},
    )
    return {"kind": "round", "stage": stage_name, "round": round_, **table}


def _is_per_client(value: Tensor, outcome: RoundOutcome) -> bool:
    return value.shape == (len(outcome.accepted),)


def _with_gaps(values: list[float] | None, outcome: RoundOutcome) -> list[float | None]:
    """Return one value per client of the round: None for those that were not accepted."""
    if values is None:
        return [None] * len(outcome.clients)
    known = dict(zip(outcome.accepted, values, strict=True))
    return [known.get(client) for client in outcome.clients]
