"""Clients that spoil the training, on purpose or by accident: what robust rules are for.

An attack is spelled like everything else, ``labels:clients=3`` or ``scale:clients=3,factor=-5``.
Which clients are bad is drawn from the seed.
"""

from dataclasses import replace
from typing import Annotated

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from unskew.data.federation import Federation
from unskew.errors import UnskewError
from unskew.models.layout import Layout
from unskew.utils.rng import generator
from unskew.utils.specs import OPTIONS, build


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class Attack:
    """Some bad clients; what they do is up to the kind of attack."""

    clients: Annotated[int, Field(ge=1)] = 1

    def bad(self, total: int, seed: int) -> frozenset[int]:
        """Draw the bad clients."""
        if self.clients >= total:
            raise UnskewError(
                f"attack: clients must be fewer than all {total} (got {self.clients})"
            )
        drawn = generator(seed, "attack").choice(total, self.clients, replace=False)
        return frozenset(int(k) for k in drawn)

    def on_data(self, federation: Federation, seed: int) -> Federation:
        """Return the federation as the bad clients make it."""
        del seed
        return federation

    def on_upload(self, vector: Tensor, layout: Layout) -> None:
        """Change what a bad client uploads, in place."""


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class Labels(Attack):
    """Bad clients train on their own samples with the labels shuffled among them."""

    def on_data(self, federation: Federation, seed: int) -> Federation:
        """Shuffle the training labels of the bad clients."""
        labels = np.array(federation.train.y)
        offsets = federation.train.offsets
        for k in self.bad(len(federation), seed):
            rows = slice(offsets[k], offsets[k + 1])
            labels[rows] = generator(seed, "attack labels", k).permutation(labels[rows])
        return replace(federation, train=replace(federation.train, y=labels))


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class Scale(Attack):
    """Bad clients upload their trained parameters multiplied by a factor."""

    factor: Annotated[float, Field(allow_inf_nan=False)] = -5.0

    def on_upload(self, vector: Tensor, layout: Layout) -> None:
        """Multiply the parameters; statistics and counters stay plausible."""
        vector[: layout.trainable] *= self.factor


ATTACKS: dict[str, type[Attack]] = {"labels": Labels, "scale": Scale}


def make_attack(spec: str) -> Attack:
    """Return the attack a spelling names."""
    return build(ATTACKS, spec, "attack")
