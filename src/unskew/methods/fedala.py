"""FedALA: a client starts from a learned mix of its own model and the global one.

Zhang, Hua, Wang, Song, Xue, Ma and Guan, "FedALA: Adaptive Local Aggregation for Personalized
Federated Learning", 2023. In the top layers ``start = own + (global - own) * A`` with A in [0, 1]
per coordinate; the lower layers are the global model's.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from statistics import pstdev
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from unskew.composition.parts import Aspect, ClientSide, Personalization
from unskew.composition.values import About, Client, Finished, Start, Tensors, Trained
from unskew.methods.common.head import top_layers
from unskew.models.functional import Batch
from unskew.utils.rng import generator
from unskew.utils.specs import OPTIONS

_WINDOW, _MAX_DEVIATION = 10, 0.1
"""The first mix has converged after more than 10 passes whose last 10 losses deviate by less than
0.1, as in the authors' code."""


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class FedALA(ClientSide, Personalization):
    """FedAvg whose clients mix the top layers of the received model with their own."""

    layers: Annotated[int, Field(ge=0)] = 1
    """Number of layers that are mixed, from the head down. 0 is FedAvg."""
    eta: Annotated[float, Field(ge=0)] = 1.0
    """Learning rate of the mix. 0 is FedAvg."""
    share: Annotated[float, Field(gt=0, le=1)] = 0.8
    """Fraction of a client's samples that the mix is learned on."""
    batch_size: Annotated[int, Field(ge=1)] = 32
    """Batch size while the mix is learned."""
    max_epochs: Annotated[int, Field(ge=1)] = 50
    """Largest number of epochs when the mix is first learned; later there is one per round."""

    about: ClassVar[About] = About(
        title="Learned mix of personal and global model",
        paper="Zhang et al. 2023",
        kind="personal",
        level="personal",
    )
    grid: ClassVar[Mapping[str, tuple[float, ...]]] = {
        "layers": (1, 2, 3),
        "eta": (0.1, 1.0, 10.0),
        "share": (0.05, 0.2, 0.4, 0.8, 1.0),
    }
    needs_single_training = True
    replaces = frozenset({Aspect.PERSONAL_MODEL})

    def prepare(self, client: Client, start: Start, payload: Tensors, state: Tensors) -> Start:
        """Learn the mix and start from it; a client without its own model has nothing to mix."""
        top = top_layers(client.network.layout, self.layers)
        received = start.vector[top]
        mix = state.get("mix", torch.ones_like(received))
        own = state["own"][top] if "own" in state else received
        differs = not torch.equal(own, received)
        if differs:
            mix = self._learned(client, start.vector, own, mix, first="mix" not in state)
            vector = start.vector.clone()
            vector[top] = torch.lerp(own, received, mix)
            start = replace(start, vector=vector)
        return replace(start, refs={"mix": mix, "learned": torch.tensor(differs)})

    def finish(self, client: Client, start: Start, trained: Trained, state: Tensors) -> Finished:
        """Keep the model, and the mix once it has been learned."""
        learned = bool(start.refs["learned"]) or "mix" in state
        mix = {"mix": start.refs["mix"]} if learned else {}
        return Finished(state={**mix, "own": trained.vector})

    def personal(self, model: Tensor, state: Tensors) -> Tensor:
        """Return the client's own model; the global one, if the client never trained."""
        return state.get("own", model)

    def _learned(
        self, client: Client, received: Tensor, own: Tensor, mix: Tensor, *, first: bool
    ) -> Tensor:
        """Return the mix after training on a part of the client's samples."""
        random = generator(client.seed, "mix", client.round, client.id)
        count = len(client.y)
        chosen = random.permutation(count)[: max(1, round(self.share * count))]
        batches = torch.split(torch.from_numpy(chosen), self.batch_size) if count else ()
        client.network.module.eval()  # the mix is learned for the model in evaluation mode
        losses: list[float] = []
        for _ in range(self.max_epochs if first else 1):
            total = 0.0
            for rows in batches:
                loss, mix = self._step(client, received, own, mix, rows)
                total += loss * len(rows)
            losses.append(total / max(1, len(chosen)))
            if not math.isfinite(losses[-1]):
                break
            if len(losses) > _WINDOW and pstdev(losses[-_WINDOW:]) < _MAX_DEVIATION:
                break
        return mix

    def _step(
        self, client: Client, received: Tensor, own: Tensor, mix: Tensor, rows: Tensor
    ) -> tuple[float, Tensor]:
        """Return the loss of one batch, and the mix after a step: ``A - eta g (global - own)``."""
        network, trainable = client.network, client.network.layout.trainable
        top = top_layers(network.layout, self.layers)
        device = next(network.module.parameters()).device
        vector = received.clone()
        vector[top] = torch.lerp(own, received[top], mix)
        vector = vector.to(device)
        weights = vector[:trainable].requires_grad_()
        batch = Batch(
            network.inputs(client.x[rows].to(device)),
            client.y[rows].to(device, network.goal.target_dtype),
            torch.full((len(rows),), 1 / len(rows), device=device),
        )
        buffers = network.copy_buffers(vector[trainable:].detach())
        loss = (network.losses(weights, buffers, batch) * batch.scale).sum()
        (gradient,) = torch.autograd.grad(loss, weights)
        slope = gradient.cpu()[top[:trainable]] * (received[top] - own)
        return float(loss.detach()), (mix - self.eta * slope).clamp(0, 1)
