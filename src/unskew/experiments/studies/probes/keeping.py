"""FedAvg that lets a probe look at the clients' models: each client keeps its own."""

from dataclasses import replace
from typing import NamedTuple

import torch
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from unskew.aggregation.uploads import Uploads
from unskew.data.federation import Federation
from unskew.experiments.studies.study import Case
from unskew.experiments.training import train
from unskew.methods.common.base import Client, Finished, Start, Tensors, Trained
from unskew.methods.fedavg import FedAvg
from unskew.models.functional import FunctionalModel
from unskew.models.layout import Layout
from unskew.utils.specs import OPTIONS

_MODEL = "probe.model."


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class Keeping(FedAvg):
    """FedAvg whose clients keep what they trained in some rounds."""

    rounds: tuple[int, ...] = ()

    def finish(self, client: Client, start: Start, trained: Trained, state: Tensors) -> Finished:
        """Keep the model of a round that is asked for."""
        finished = super().finish(client, start, trained, state)
        if client.round + 1 not in self.rounds:
            return finished
        kept = {f"{_MODEL}{client.round + 1}": trained.vector.clone()}
        return replace(finished, state={**state, **finished.state, **kept})


class Trace(NamedTuple):
    """What clients trained, and the network they trained: rounds to clients x coordinates."""

    stacks: dict[int, Tensor]
    module: nn.Module
    layout: Layout

    def uploads(self, federation: Federation, round_: int) -> Uploads:
        """Return a round's models as the server gets them."""
        stack = self.stacks[round_]
        samples = torch.from_numpy(federation.train.sizes).to(torch.float64)
        clients = tuple(range(len(stack)))
        previous = stack.mean(0)
        return Uploads(stack, self.layout, previous, samples, clients)


def trace(case: Case, federation: Federation, seed: int, rounds: tuple[int, ...]) -> Trace:
    """Train by FedAvg, everybody in every round, and return the clients' models of some rounds."""
    settings = case.train.model_dump() | {"seed": seed, "workers": 1, "evaluate_every": 0}
    settings |= {"participation": None, "cohort": None}
    run = train(federation, Keeping(rounds=rounds), model=case.model, progress=False, **settings)
    assert run.model is not None
    stacks = {
        round_: torch.stack([run.states[k][f"{_MODEL}{round_}"] for k in range(len(federation))])
        for round_ in rounds
    }
    return Trace(stacks, run.model, FunctionalModel(run.model).layout)
