"""The personal models of clients, for evaluation."""

from collections.abc import Iterator, Sequence

from torch import Tensor

from unskew.composition.values import ExtraTraining
from unskew.engine.client import ClientContext
from unskew.engine.cohort import ClientTask
from unskew.engine.runners import make_runner
from unskew.runs.checkpoint import Position


def personal_models(
    context: ClientContext, position: Position, clients: Sequence[int]
) -> Iterator[Tensor]:
    """Yield each client's personal model, fine-tuned if the method asks for it.

    A model may share its memory with the next one, so use it before taking the next.
    """
    server, layout = position.server, context.network.layout
    assert server is not None
    models = (context.method.personal(layout, server, position.states.get(k, {})) for k in clients)
    extra = context.method.fine_tuning()
    if extra is None:
        return models
    return _fine_tuned(context, extra, position.round, clients, models)


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
