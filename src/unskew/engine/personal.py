"""The models that clients use themselves, for evaluation."""

from collections.abc import Iterator, Sequence

from torch import Tensor

from unskew.engine.client import Workshop
from unskew.engine.cohort import Task
from unskew.engine.runners import make_runner
from unskew.methods.common.base import Pass
from unskew.runs.checkpoint import Position


def personal_models(shop: Workshop, position: Position, clients: Sequence[int]) -> Iterator[Tensor]:
    """Return each client's own model, tuned if the method says so; use one before the next."""
    server, layout = position.server, shop.network.layout
    assert server is not None
    models = (shop.method.personal(layout, server, position.states.get(k, {})) for k in clients)
    tuning = shop.method.tuning()
    return models if tuning is None else _tuned(shop, tuning, position.round, clients, models)


def _tuned(
    shop: Workshop, tuning: Pass, round_: int, clients: Sequence[int], models: Iterator[Tensor]
) -> Iterator[Tensor]:
    """Train models on their clients' samples, as many at a time as take part in a round."""
    size = shop.settings.cohort_size(len(shop.federation))
    runner = make_runner(shop.for_pass(tuning), size)
    try:
        for first in range(0, len(clients), size):
            group = clients[first : first + size]
            tasks = [Task(k, {"model": next(models)}, {}) for k in group]
            yield from runner.train(round_, tasks).stack
    finally:
        runner.close()
