"""The inputs and results of a runner, and the drawing of a round's cohort."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from torch import Tensor

from unskew.composition.values import Finished, Tensors, Trained
from unskew.engine.settings import Settings
from unskew.errors import UnskewError
from unskew.utils.rng import generator


@dataclass(frozen=True, eq=False)
class ClientTask:
    """One client's input for one round: what the server sent, and the client's state."""

    client: int
    payload: Tensors
    state: Tensors


@dataclass(frozen=True, eq=False)
class CohortResult:
    """The results of a cohort, in the order of the tasks.

    The next round may reuse the memory of ``stack``, so keep no view of it.
    """

    stack: Tensor
    trained: Sequence[Trained]
    finished: Sequence[Finished]
    samples: Sequence[int] | None = None
    """The number of samples each client trained on; None means that of the federation."""
    unusable: Mapping[int, str] = field(default_factory=dict)
    """The clients whose reply cannot be used, with the reason; their rows are undefined."""
    missing: Mapping[int, str] = field(default_factory=dict)
    """The clients that did not reply, with the reason; their rows are undefined."""


class Runner(Protocol):
    """Trains a cohort. All runners agree; docs/architecture.md says to which precision."""

    kind: str

    def train(self, round_: int, tasks: Sequence[ClientTask]) -> CohortResult:
        """Train the clients of one round."""

    def close(self) -> None:
        """Release processes and memory."""


class ClientFailed(UnskewError):
    """A client's code raised; the message names the client, the round and the hook."""

    hook: str | None = None


def draw_cohort(
    settings: Settings, clients: int, round_: int, among: Sequence[int] | None = None
) -> list[int]:
    """Draw the clients of a round uniformly without replacement, in ascending order.

    ``among`` are the clients to draw from, in ascending order; None means all.
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
