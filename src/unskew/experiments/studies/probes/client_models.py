"""FedAvg whose clients keep their models, so that a probe can measure them."""

from typing import NamedTuple

import torch
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from unskew.aggregation.uploads import Uploads
from unskew.composition.parts import ClientSide
from unskew.composition.values import Client, Finished, Start, Tensors, Trained
from unskew.data.federation import Federation
from unskew.experiments.studies.study import Case
from unskew.experiments.training import train
from unskew.models.functional import FunctionalModel
from unskew.models.layout import Layout
from unskew.utils.specs import OPTIONS

_MODEL = "model in round "


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class KeepClientModels(ClientSide):
    """FedAvg whose clients keep the models they trained in the given rounds."""

    rounds: tuple[int, ...] = ()

    def finish(self, client: Client, start: Start, trained: Trained, state: Tensors) -> Finished:
        """Keep the model if this is one of the given rounds."""
        del start
        if client.round + 1 not in self.rounds:
            return Finished(state=state)
        kept = {f"{_MODEL}{client.round + 1}": trained.vector.clone()}
        return Finished(state={**state, **kept})


class ClientModels(NamedTuple):
    """The models clients trained: per round, a matrix with one row per client; and the network."""

    stacks: dict[int, Tensor]
    module: nn.Module
    layout: Layout

    def uploads(self, federation: Federation, round_: int) -> Uploads:
        """Return a round's models as the server receives them."""
        stack = self.stacks[round_]
        samples = torch.from_numpy(federation.train.sizes).to(torch.float64)
        clients = tuple(range(len(stack)))
        previous = stack.mean(0)
        return Uploads(stack, self.layout, previous, samples, clients)


def train_client_models(
    case: Case, federation: Federation, seed: int, rounds: tuple[int, ...]
) -> ClientModels:
    """Train by FedAvg with full participation and return the clients' models of the rounds."""
    changes = {"seed": seed, "workers": 1, "evaluate_every": 0, "participation": None}
    settings = case.train.changed(changes)
    method = KeepClientModels(rounds=rounds)
    run = train(federation, method, model=case.model, progress=False, settings=settings)
    assert run.model is not None
    stacks = {
        round_: torch.stack(
            [run.states[k][f"{method.name}/{_MODEL}{round_}"] for k in range(len(federation))]
        )
        for round_ in rounds
    }
    return ClientModels(stacks, run.model, FunctionalModel(run.model).layout)
