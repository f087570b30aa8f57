"""Which methods and metrics need the samples of several clients in one place."""

import numpy as np

from unskew.composition.method import Method
from unskew.data.federation import Federation
from unskew.engine.metrics import MetricPlan
from unskew.errors import UnskewError
from unskew.stats.metric import POOLED


def needs_pooled_samples(method: Method, federation: Federation) -> bool:
    """Return whether a method moves samples between clients or to the server."""
    transformed = method.transform_federation(federation)
    extended, state = method.shared_samples(federation, 0)
    return transformed is not federation or extended is not federation or bool(state)


def check_runs_on_nodes(method: Method, federation: Federation | None = None) -> None:
    """Raise for a method that needs pooled samples; by default, try it on a toy federation."""
    if federation is None:
        federation = Federation.from_arrays(np.zeros((4, 1), np.float32), [0, 1] * 2, [0, 0, 1, 1])
    if needs_pooled_samples(method, federation):
        raise UnskewError(
            f"method: {method.spec} needs the samples of several clients in one place, but on "
            "Flower they stay on their nodes; run it in a simulation (unskew compare)"
        )


def check_metrics_of_nodes(plan: MetricPlan) -> None:
    """Raise if a run is judged by a metric that needs all predictions, which nodes do not send."""
    if plan.judged is not None and plan.judged.is_pooled:
        name = plan.judged.name
        raise UnskewError(
            f"metric: {name} needs the predictions of all nodes in one place, which nodes do not "
            f"send; use the mean over clients, {name.removeprefix(POOLED)}"
        )
