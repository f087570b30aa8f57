"""The personal models of clients: for evaluation, and at the end of a run."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from unskew.composition.method import Method
from unskew.composition.values import ExtraTraining
from unskew.engine.client import ClientContext
from unskew.engine.cohort import ClientTask
from unskew.engine.runners import make_runner
from unskew.models.layout import Layout
from unskew.runs.checkpoint import Position
from unskew.runs.states import ClientStates, StateStore

ON_NODES = "they stay on their nodes, where unskew flower predict uses them"
_IN_ANOTHER_PROCESS = "they stayed in the process that executed the run; set out when you train"
_TUNED = "tuned"


@dataclass(frozen=True, eq=False)
class ClientModels:
    """The models that the clients of a run use themselves."""

    are_personal: bool
    """Whether clients may use models other than the global one."""
    has_global: bool
    """Whether the global model is trained, as those of ``local`` and FedRep are not."""
    vector_of: Callable[[int], Tensor] | None = None
    """Returns a client's model; None if the models are elsewhere, as ``where`` says."""
    has_trained: Callable[[int], bool] | None = None
    """Returns whether a client took part in the training, so that it has a model of its own."""
    where: str = ""

    @staticmethod
    def of(method: Method, layout: Layout, position: Position) -> "ClientModels":
        """Return the models of clients whose states are those of a position."""

        def vector_of(client: int) -> Tensor:
            assert position.server is not None
            model = method.personal(layout, position.server, position.states.get(client, {}))
            return _with_tuned(method, layout, model, position, client)

        return ClientModels(
            are_personal=method.has_personal_models(layout),
            # The mean of several models is none that a client has trained.
            has_global=method.has_global_model(layout) and not method.has_several_models,
            vector_of=vector_of,
            has_trained=lambda client: client in position.states or client in position.tuned,
        )

    def elsewhere(self, where: str = "") -> "ClientModels":
        """Return what is known of models that are not here; by default, in another process."""
        return ClientModels(
            self.are_personal, self.has_global, where=where or self.where or _IN_ANOTHER_PROCESS
        )


def personal_models(
    context: ClientContext, position: Position, clients: Sequence[int]
) -> Iterator[Tensor]:
    """Yield each client's personal model, fine-tuned if the method asks for it.

    A model may share its memory with the next one, so use it before taking the next.
    """
    server, method, layout = position.server, context.method, context.network.layout
    assert server is not None
    models = (method.personal(layout, server, position.states.get(k, {})) for k in clients)
    extra = method.fine_tuning()
    if extra is None:
        return models
    if position.tuned:
        return (
            _with_tuned(method, layout, model, position, k)
            for k, model in zip(clients, models, strict=True)
        )
    return _fine_tuned(context, extra, position.round, clients, models)


def fine_tuned(context: ClientContext, position: Position) -> ClientStates:
    """Return what fine-tuning changes in the personal model of every client, if there is any."""
    extra = context.method.fine_tuning()
    states = ClientStates(StateStore(memory=context.settings.state_memory))
    if extra is None:
        return states
    # Clients with tests are tuned in the cohorts of any other evaluation, which has the same bits.
    tested = np.zeros(len(context.federation), bool)
    tested[: len(context.federation.test)] = context.federation.test.sizes > 0
    for chosen in (tested, ~tested):
        clients = np.flatnonzero(chosen).tolist()
        models = personal_models(context, position, clients)
        for k, model in zip(clients, models, strict=True):
            mask = _tuned_mask(extra, context.network.layout)
            states = states.updated({k: {_TUNED: model.cpu()[mask]}})
    return states


def _tuned_mask(extra: ExtraTraining, layout: Layout) -> Tensor:
    """Mark what fine-tuning may change: what it trains, and the buffers."""
    mask = torch.ones(layout.size, dtype=torch.bool)
    if extra.trains is not None:
        mask[: layout.trainable] = extra.trains(layout)[: layout.trainable]
    return mask


def _with_tuned(
    method: Method, layout: Layout, model: Tensor, position: Position, client: int
) -> Tensor:
    """Return a personal model with what fine-tuning has changed in it."""
    extra = method.fine_tuning()
    if extra is None or client not in position.tuned:
        return model
    tuned = model.clone()
    tuned[_tuned_mask(extra, layout)] = position.tuned[client][_TUNED]
    return tuned


def _fine_tuned(
    context: ClientContext,
    extra: ExtraTraining,
    round_: int,
    clients: Sequence[int],
    models: Iterator[Tensor],
) -> Iterator[Tensor]:
    """Train models on their clients' samples, one cohort at a time."""
    size = context.settings.cohort_size(len(context.federation))
    runner = make_runner(context.for_extra_training(extra), size)
    try:
        for first in range(0, len(clients), size):
            cohort = clients[first : first + size]
            tasks = [ClientTask(k, {"model": next(models)}, {}) for k in cohort]
            yield from runner.train(round_, tasks).stack
    finally:
        runner.close()
