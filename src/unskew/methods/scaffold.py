"""SCAFFOLD: control variates correct the clients' drift.

Karimireddy et al., "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning", 2020. A
client steps along ``g + c - c_k``, where c_k estimates its own gradient and c the mean gradient of
all clients.
"""

from dataclasses import replace
from typing import Any, ClassVar

import torch
from pydantic.dataclasses import dataclass
from torch import Tensor

from unskew.aggregation.uploads import Uploads
from unskew.aggregation.weighting import ClientWeighting, uniform
from unskew.errors import UnskewError
from unskew.methods.common.base import (
    About,
    Client,
    Finished,
    Method,
    Server,
    Start,
    Tensors,
    Trained,
)
from unskew.methods.common.shared_coordinates import SharedCoordinates
from unskew.models.functional import Batch, Buffers, FunctionalModel
from unskew.utils.specs import OPTIONS


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class SCAFFOLD(Method):
    """Mean, with local gradients corrected by ``c - c_k``.

    For another server learning rate use ``scaffold+fedavgm:server_momentum=0,server_lr=…``.
    """

    needs_single_training: ClassVar[bool] = True
    about: ClassVar[About] = About(
        title="Control variates",
        paper="Karimireddy et al. 2020",
        kind="objective",
        down="model, variate",
        up="model, variate",
    )

    def broadcast(self, server: Server, client: int) -> Tensors:
        """Also send the server's control variate, once there is one."""
        payload = super().broadcast(server, client)
        if "scaffold" not in server.slots:
            return payload
        return {**payload, "control": server.slots["scaffold"]}

    def prepare(self, client: Client, payload: Tensors, state: Tensors) -> Start:
        """Compute the correction once per round."""
        start = super().prepare(client, payload, state)
        shared = SharedCoordinates.of(self, client.network.layout)
        server_control = payload["control"] if "control" in payload else shared.zeros()
        correction = shared.spread(server_control - _client_control(shared, state))
        return replace(start, refs={**start.refs, "correction": correction})

    def objective(
        self,
        network: FunctionalModel,
        weights: Tensor,
        buffers: Buffers,
        batch: Batch,
        refs: Tensors,
    ) -> Tensor:
        """Add the correction ``c - c_k`` to the gradient; the value of the loss is unchanged."""
        loss = super().objective(network, weights, buffers, batch, refs)
        linear = (refs["correction"] * weights).sum()
        return loss + (linear - linear.detach())

    def finish(self, client: Client, start: Start, trained: Trained, state: Tensors) -> Finished:
        """Update the client's control variate from its local steps; keep it, send the change."""
        finished = super().finish(client, start, trained, state)
        if trained.effective_step is None:
            raise UnskewError("optimizer: scaffold estimates gradients from SGD steps; use 'sgd'")
        shared = SharedCoordinates.of(self, client.network.layout)
        old = new = _client_control(shared, state)
        if trained.steps:
            update = shared.take(start.vector) - shared.take(trained.vector)
            new = update / trained.effective_step - shared.take(start.refs["correction"])
        return Finished(
            {**finished.extras, "control": new - old}, {**finished.state, "control": new}
        )

    def weightings(self, server: Server) -> tuple[ClientWeighting, ...]:
        """Weight all clients equally, as their control variates are."""
        return (*super().weightings(server), uniform())

    def aggregate(self, server: Server, uploads: Uploads) -> tuple[Server, dict[str, Any]]:
        """Update the server's control variate by the mean change over all clients."""
        updated, diagnostics = super().aggregate(server, uploads)
        change = torch.stack(list(uploads.extras["control"])).sum(0)
        change /= uploads.num_clients_total
        control = server.slots["scaffold"] + change if "scaffold" in server.slots else change
        return replace(updated, slots={**updated.slots, "scaffold": control}), diagnostics


def _client_control(shared: SharedCoordinates, state: Tensors) -> Tensor:
    """Return the client's control variate, which starts at zero."""
    return state["control"] if "control" in state else shared.zeros()
