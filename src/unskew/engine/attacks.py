"""Clients that harm training, on purpose or by accident, for testing robust aggregation rules.

An attack is given as a spec string, ``labels:clients=3`` or ``scale:clients=3,factor=-5``. The
attacking clients are drawn from the seed.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from unskew.data.federation import Federation
from unskew.engine.cohort import CohortResult
from unskew.errors import UnskewError
from unskew.models.layout import Layout, rows_are_finite
from unskew.utils.rng import generator
from unskew.utils.specs import OPTIONS, build


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class Attack:
    """The base of all attacks: the number of attackers, and hooks for what they do."""

    clients: Annotated[int, Field(ge=1)] = 1

    def attackers(self, total: int, seed: int) -> frozenset[int]:
        """Draw the attackers among all clients."""
        if self.clients >= total:
            raise UnskewError(
                f"attack: clients must be fewer than all {total} (got {self.clients})"
            )
        drawn = generator(seed, "attack").choice(total, self.clients, replace=False)
        return frozenset(int(k) for k in drawn)

    def on_data(self, federation: Federation, seed: int) -> Federation:
        """Return the federation with the attackers' changes to their data."""
        del seed
        return federation

    def on_upload(self, vector: Tensor, layout: Layout) -> None:
        """Change what an attacker uploads, in place."""


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class ShuffleLabels(Attack):
    """Attackers train on their samples with shuffled labels."""

    def on_data(self, federation: Federation, seed: int) -> Federation:
        """Shuffle the training labels of each attacker."""
        labels = np.array(federation.train.y)
        offsets = federation.train.offsets
        for k in self.attackers(len(federation), seed):
            rows = slice(offsets[k], offsets[k + 1])
            labels[rows] = generator(seed, "attack labels", k).permutation(labels[rows])
        return replace(federation, train=replace(federation.train, y=labels))


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class ScaleUploads(Attack):
    """Attackers upload their trained parameters multiplied by a factor."""

    factor: Annotated[float, Field(allow_inf_nan=False)] = -5.0

    def on_upload(self, vector: Tensor, layout: Layout) -> None:
        """Multiply the parameters; statistics and counters are unchanged."""
        vector[: layout.trainable] *= self.factor


ATTACKS: dict[str, type[Attack]] = {"labels": ShuffleLabels, "scale": ScaleUploads}


def make_attack(spec: str) -> Attack:
    """Return the attack that a spec string names."""
    return build(ATTACKS, spec, "attack")


def with_attack(
    result: CohortResult,
    clients: Sequence[int],
    layout: Layout,
    attack: Attack,
    attackers: frozenset[int],
) -> CohortResult:
    """Return the results of a round's clients after the attackers changed what they upload."""
    trained = list(result.trained)
    for row, client in enumerate(clients):
        if client in attackers:
            attack.on_upload(result.stack[row], layout)
            trained[row] = replace(trained[row], finite=bool(rows_are_finite(result.stack[row])))
    return replace(result, trained=trained)
