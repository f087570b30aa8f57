"""Which coordinates of a model are sent in a round, and how many bytes that and the rest are."""

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from unskew.composition.method import Method
from unskew.engine.cohort import ClientTask, CohortResult
from unskew.models.layout import Layout
from unskew.models.masks import none_if_empty
from unskew.runs.cost import ModelSize, Traffic, client_traffic


def round_traffic(
    method: Method, layout: Layout, tasks: Sequence[ClientTask], result: CohortResult
) -> list[Traffic]:
    """Return the traffic of each client.

    Coordinates that clients share on upload are sent down only to clients that keep none yet.
    """
    up = ModelSize(layout, sent_up(method, layout))
    down = ModelSize(layout, sent_down(method, layout))
    if not method.sends_model:
        up = down = ModelSize(layout, layout.mask())
    # Without payload and extras, the traffic depends only on whether the client keeps coordinates.
    model_only = {True: client_traffic(down, (), (), up), False: client_traffic(up, (), ())}
    traffic = [
        model_only["kept" in task.state]
        if len(task.payload) == 1 and not finished.extras
        else client_traffic(
            down if "kept" in task.state else up,
            [tensor for name, tensor in task.payload.items() if name != "model"],
            list(finished.extras.values()),
            up,
        )
        for task, finished in zip(tasks, result.finished, strict=True)
    ]
    return [
        replace(each, parameters_up=0, bytes_up=0) if task.client in result.missing else each
        for task, each in zip(tasks, traffic, strict=True)
    ]


def sent_up(method: Method, layout: Layout) -> Tensor | None:
    """Mark the coordinates of the model that a client uploads; None means all."""
    hidden = hidden_from_server(method, layout)
    return None if hidden is None else ~hidden


def sent_down(method: Method, layout: Layout) -> Tensor | None:
    """Mark the coordinates that are sent to a client that keeps its own values of the rest."""
    shares_on_upload = method.shares_on_upload(layout)
    return sent_up(method, layout) if shares_on_upload is None else method.sent_mask(layout)


def hidden_from_server(method: Method, layout: Layout) -> Tensor | None:
    """Mark the coordinates that the server never receives; None means none."""
    sent_mask, shares_on_upload = method.sent_mask(layout), method.shares_on_upload(layout)
    if sent_mask is None:
        return None
    return none_if_empty(~sent_mask if shares_on_upload is None else ~sent_mask & ~shares_on_upload)
