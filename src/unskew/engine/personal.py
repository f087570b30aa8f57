"""The models that clients use themselves, for evaluation."""

from collections.abc import Iterator, Sequence

from torch import Tensor

from unskew.engine.client import ClientContext
from unskew.engine.cohort import Task
from unskew.engine.runners import make_runner
from unskew.methods.common.base import ExtraTraining
from unskew.runs.checkpoint import Position


def personal_models(
    context: ClientContext, position: Position, clients: Sequence[int]
) -> Iterator[Tensor]:
    """Return each client's own model, tuned if the method says so; use one before the next."""
    server, layout = position.server, context.network.layout
    assert server is not None
    models = (context.method.personal(layout, server, position.states.get(k, {})) for k in clients)
    tuning = context.method.fine_tuning()
    return models if tuning is None else _tuned(context, tuning, position.round, clients, models)


def _tuned(
    context: ClientContext,
    tuning: ExtraTraining,
    round_: int,
    clients: Sequence[int],
    models: Iterator[Tensor],
) -> Iterator[Tensor]:
    """Train models on their clients' samples, as many at a time as take part in a round."""
    size = context.settings.cohort_size(len(context.federation))
    runner = make_runner(context.for_pass(tuning), size)
    try:
        for first in range(0, len(clients), size):
            group = clients[first : first + size]
            tasks = [Task(k, {"model": next(models)}, {}) for k in group]
            yield from runner.train(round_, tasks).stack
    finally:
        runner.close()
