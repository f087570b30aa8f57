"""MOON: features stay near the global model's and move away from the client's previous ones.

Li, He and Song, "Model-Contrastive Federated Learning", 2021. For each sample the global model's
features are the positive and those of the client's model of its last round the negative.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from unskew.errors import UnskewError
from unskew.methods.common.base import About, Client, Finished, Method, Start, Tensors, Trained
from unskew.models import spec
from unskew.models.functional import Batch, Buffers, ForwardPass, FunctionalModel
from unskew.models.layout import head_name
from unskew.models.split import split
from unskew.utils.specs import OPTIONS

_SMALLEST = 1e-8
"""Keeps the direction of features that are all zero defined, and its gradient bounded."""


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class MOON(Method):
    """FedAvg with a contrastive term."""

    mu: Annotated[float, Field(ge=0)] = 1.0
    """Strength of the contrastive term. 0: none."""
    temperature: Annotated[float, Field(gt=0)] = 0.5
    """Cosines are divided by it; the lower, the sharper the contrast."""
    projection: Annotated[int, Field(ge=0)] = 256
    """Width of the two-layer projection between body and head. 0 leaves the network as it is and
    contrasts what its head is given."""

    about: ClassVar[About] = About(
        title="Model-contrastive learning",
        paper="Li et al. 2021",
        kind="objective",
        down="model with projection",
        up="model with projection",
    )
    grid: ClassVar[Mapping[str, tuple[float, ...]]] = {"mu": (0.1, 1.0, 5.0, 10.0)}
    ends_once: ClassVar[bool] = True

    def adapt(self, module: nn.Module, example: Tensor) -> nn.Module:
        """Put the projection between body and head, and a new head behind it."""
        module = super().adapt(module, example)
        if self.projection:
            parts = split(module, example, "moon")
            width = parts.head.in_features
            project = [nn.Linear(width, width), nn.ReLU(), nn.Linear(width, self.projection)]
            body = nn.Sequential(parts.body, *project)
            return spec.Classifier(body, self.projection, parts.head.out_features)
        if head_name(module) is None:
            raise UnskewError("model: moon needs a linear layer whose inputs are the features")
        return module

    def prepare(self, client: Client, payload: Tensors, state: Tensors) -> Start:
        """Refer to the model received and to the one that was left; at first there is none."""
        start = super().prepare(client, payload, state)
        received = self.received(client, payload, state)
        refs = {
            **start.refs,
            "moon_global": received,
            "moon_previous": state.get("moon_previous", received),
            "moon_strength": torch.tensor(self.mu if "moon_previous" in state else 0.0),
        }
        return replace(start, refs=refs)

    def objective(
        self,
        network: FunctionalModel,
        weights: Tensor,
        buffers: Buffers,
        batch: Batch,
        refs: Tensors,
    ) -> Tensor:
        """Add ``-mu log(e^{s_global/t} / (e^{s_global/t} + e^{s_previous/t}))``, s cosines."""
        if not self.mu:
            return super().objective(network, weights, buffers, batch, refs)
        with network.capture_passes() as passes:
            loss = super().objective(network, weights, buffers, batch, refs)
        own, positive, negative = (
            directions(each)
            for each in (
                passes[0],
                network.forward_eval(refs["moon_global"], batch.x),
                network.forward_eval(refs["moon_previous"], batch.x),
            )
        )
        nearer = ((own * negative).sum(-1) - (own * positive).sum(-1)) / self.temperature
        return loss + refs["moon_strength"] * (F.softplus(nearer) * batch.scale).sum()

    def finish(self, client: Client, start: Start, trained: Trained, state: Tensors) -> Finished:
        """Keep the model as it was left."""
        finished = super().finish(client, start, trained, state)
        kept = {**finished.state, "moon_previous": trained.vector.clone()}
        return Finished(finished.extras, kept)


def directions(of: ForwardPass) -> Tensor:
    """Return each sample's features, scaled to length one."""
    assert of.features is not None
    features = of.features.flatten(1)
    return features / (features.square().sum(-1, keepdim=True) + _SMALLEST).sqrt()
