"""q-FedAvg: clients with a high loss get more weight, which evens out the clients' accuracies.

Li, Sanjabi, Beirami and Smith, "Fair Resource Allocation in Federated Learning", 2020. It minimises
``sum_k p_k F_k^(q+1) / (q+1)``; q = 0 is FedAvg.
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from unskew.aggregation.uploads import Uploads
from unskew.aggregation.weighting import ClientWeighting, Diagnostics
from unskew.composition.parts import Aspect, ClientSide, ServerSide, WeightedMean
from unskew.composition.upload_values import Value
from unskew.composition.values import About, Client, Finished, Server, Start, Tensors, Trained
from unskew.methods.common.client_loss import training_loss
from unskew.utils.specs import OPTIONS

_LEAST_LOSS = 1e-10
"""Added to every loss, since weights are shares of losses, which must not all be zero."""


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class QFFL(ClientSide, ServerSide):
    """Weights ``p_k F_k^q``, and a step towards the weighted mean that shrinks as q grows."""

    q: Annotated[float, Field(ge=0)] = 1.0
    """Exponent of the losses; larger gives more weight to high losses. 0 is FedAvg."""

    about: ClassVar[About] = About(
        title="More weight for high losses",
        paper="Li et al. 2020 (q-FFL)",
        kind="server",
        up="model, 2 numbers",
    )
    grid: ClassVar[Mapping[str, tuple[float, ...]]] = {"q": (0.001, 0.01, 0.1, 1, 2, 5, 15)}

    adds = frozenset({Aspect.WEIGHTS})
    replaces = frozenset({Aspect.COMBINATION})

    @property
    def receives(self) -> Mapping[str, Value]:
        """The loss before training, and by how much the update shortens the step."""
        return {"fairness": Value((2,), low=(_LEAST_LOSS / 2, 0.0), floor=1.0)}

    def finish(self, client: Client, start: Start, trained: Trained, state: Tensors) -> Finished:
        """Send the loss before training, and by how much the update shortens the step."""
        loss = training_loss(client, start.vector) + _LEAST_LOSS
        trainable = client.network.layout.trainable
        update = (trained.vector - start.vector)[:trainable].square().sum(dtype=torch.float64)
        sent = torch.stack([update.new_tensor(loss), self.q * update / (client.lr * loss)])
        return Finished({"fairness": sent.float()})

    def client_weights(self, server: Server) -> ClientWeighting:
        """Weight clients by ``p_k F_k^q``, which already includes the sample counts."""

        def derive(uploads: Uploads) -> tuple[Tensor, Diagnostics]:
            losses = _sent(uploads)[:, 0]
            powers = (losses / losses.max()) ** self.q
            return uploads.samples * powers, {"loss_before": losses}

        return ClientWeighting("fairness", derive)

    def combine(
        self, server: Server, uploads: Uploads, mean: WeightedMean
    ) -> tuple[Tensor, Diagnostics]:
        """Step from the previous model towards the weighted mean.

        In the paper's terms: sum_k Delta_k / sum_k h_k, with both divided by L = 1 / lr.
        """
        vector, diagnostics = mean(uploads)
        step = 1 / (1 + float((diagnostics["weights"] * _sent(uploads)[:, 1]).sum()))
        trained = slice(uploads.layout.trainable)  # buffers take the round's values
        vector[trained] = torch.lerp(uploads.previous[trained], vector[trained], step)
        return vector, {**diagnostics, "step_size": torch.tensor([step])}


def _sent(uploads: Uploads) -> Tensor:
    """Return the clients' losses, and by how much their updates shorten the step."""
    return torch.stack(list(uploads.extras["fairness"])).double()
