"""What goes into a runner and what comes out of it, and who takes part in a round."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from torch import Tensor

from unskew.engine.settings import Settings
from unskew.errors import UnskewError
from unskew.methods.common.base import Finished, Tensors, Trained
from unskew.utils.rng import generator


@dataclass(frozen=True, eq=False)
class Task:
    """One client's work in one round: what it received, and what it kept from before."""

    client: int
    payload: Tensors
    state: Tensors


@dataclass(frozen=True, eq=False)
class Result:
    """What the cohort did, in the order of the tasks.

    The stack may be reused by the next round: keep nothing that points into it.
    """

    stack: Tensor
    trained: Sequence[Trained]
    finished: Sequence[Finished]
    samples: Sequence[int] | None = None
    """How many samples each client trained on; None: as many as the federation says."""
    refused: Mapping[int, str] = field(default_factory=dict)
    """The clients whose answer cannot be used, and why; their rows mean nothing."""
    missing: Mapping[int, str] = field(default_factory=dict)
    """The clients that did not answer, and why; their rows mean nothing."""


class Runner(Protocol):
    """Trains a cohort. All runners give the same numbers, see the docs for how exactly."""

    kind: str

    def train(self, round_: int, tasks: Sequence[Task]) -> Result:
        """Train the clients of one round."""

    def close(self) -> None:
        """Release processes and memory."""


class ClientFailed(UnskewError):
    """A client's code raised; the message says which client, in which round, in which hook."""

    hook: str | None = None


def draw_cohort(
    settings: Settings, clients: int, round_: int, among: Sequence[int] | None = None
) -> list[int]:
    """Draw who takes part in a round, uniformly without replacement, in ascending order.

    ``among`` are those who may, in ascending order; None means all clients.
    """
    candidates = range(clients) if among is None else among
    size = settings.cohort_size(len(candidates))
    if size == len(candidates):
        return list(candidates)
    chosen = generator(settings.seed, "cohort", round_).choice(
        len(candidates), size, replace=False, shuffle=False
    )
    drawn: list[int] = np.sort(chosen).tolist()
    return drawn if among is None else [candidates[k] for k in drawn]
