"""SCAFFOLD: control variates take the clients' drift out of their gradients.

Karimireddy et al., "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning", 2020. A
client steps along ``g + c - c_k``, where c_k estimates its own gradient and c the mean of all.
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
from unskew.methods.common.shared_coordinates import Shared
from unskew.models.functional import Batch, Buffers, FunctionalModel
from unskew.utils.specs import OPTIONS


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class SCAFFOLD(Method):
    """Mean, with local gradients corrected by ``c - c_k``.

    The server's own learning rate is that of ``scaffold+fedavgm:server_momentum=0,server_rate=…``.
    """

    ends_once: ClassVar[bool] = True
    about: ClassVar[About] = About(
        title="Control variates",
        paper="Karimireddy et al. 2020",
        kind="objective",
        down="model, variate",
        up="model, variate",
    )

    def broadcast(self, server: Server, client: int) -> Tensors:
        """Send the server's variate too, from the round on in which there is one."""
        payload = super().broadcast(server, client)
        if "scaffold" not in server.slots:
            return payload
        return {**payload, "control": server.slots["scaffold"]}

    def prepare(self, client: Client, payload: Tensors, state: Tensors) -> Start:
        """Work the correction out once a round."""
        start = super().prepare(client, payload, state)
        shared = Shared.of(self, client.network.layout)
        common = payload["control"] if "control" in payload else shared.zeros()
        correction = shared.spread(common - _own(shared, state))
        return replace(start, refs={**start.refs, "correction": correction})

    def objective(
        self,
        network: FunctionalModel,
        weights: Tensor,
        buffers: Buffers,
        batch: Batch,
        refs: Tensors,
    ) -> Tensor:
        """Add ``<c - c_k, w>``, whose gradient is the correction; the loss stays what it was."""
        loss = super().objective(network, weights, buffers, batch, refs)
        linear = (refs["correction"] * weights).sum()
        return loss + (linear - linear.detach())

    def finish(self, client: Client, start: Start, trained: Trained, state: Tensors) -> Finished:
        """Renew the client's variate from the way it went; keep it and send the change."""
        finished = super().finish(client, start, trained, state)
        if trained.effective_step is None:
            raise UnskewError("optimizer: scaffold reads gradients off the steps; use 'sgd'")
        shared = Shared.of(self, client.network.layout)
        old = new = _own(shared, state)
        if trained.steps:
            way = shared.take(start.vector) - shared.take(trained.vector)
            new = way / trained.effective_step - shared.take(start.refs["correction"])
        return Finished(
            {**finished.extras, "control": new - old}, {**finished.state, "control": new}
        )

    def weightings(self, server: Server) -> tuple[ClientWeighting, ...]:
        """Let every client count the same, as their variates do."""
        return (*super().weightings(server), uniform())

    def aggregate(self, server: Server, uploads: Uploads) -> tuple[Server, dict[str, Any]]:
        """Move the server's variate by the changes, over all clients there are."""
        updated, diagnostics = super().aggregate(server, uploads)
        change = torch.stack(list(uploads.extras["control"])).sum(0)
        change /= uploads.num_clients_total
        common = server.slots["scaffold"] + change if "scaffold" in server.slots else change
        return replace(updated, slots={**updated.slots, "scaffold": common}), diagnostics


def _own(shared: Shared, state: Tensors) -> Tensor:
    """Return the client's variate, which starts at zero."""
    return state["control"] if "control" in state else shared.zeros()
