"""MOON: features stay near the global model's and move away from the client's previous ones.

Li, He and Song, "Model-Contrastive Federated Learning", 2021. For each sample, the global model's
features are the positive, and those of the client's model of its last round are the negative.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from unskew.composition.parts import Aspect, ClientSide, Setup
from unskew.composition.values import About, Client, Finished, Start, Step, Tensors, Trained
from unskew.errors import UnskewError
from unskew.models import spec
from unskew.models.functional import ForwardPass
from unskew.models.layout import head_name
from unskew.models.split import split
from unskew.utils.specs import OPTIONS

_SMALLEST = 1e-8
"""Keeps the direction of all-zero features defined, and its gradient bounded."""


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class MOON(ClientSide, Setup):
    """FedAvg with a contrastive term."""

    mu: Annotated[float, Field(ge=0)] = 1.0
    """Strength of the contrastive term. 0: none."""
    temperature: Annotated[float, Field(gt=0)] = 0.5
    """Divisor of the cosines; lower is a sharper contrast."""
    projection: Annotated[int, Field(ge=0)] = 256
    """Width of the two-layer projection between body and head. 0 leaves the network unchanged and
    contrasts the inputs of its head."""

    about: ClassVar[About] = About(
        title="Model-contrastive learning",
        paper="Li et al. 2021",
        kind="objective",
        down="model with projection",
        up="model with projection",
    )
    grid: ClassVar[Mapping[str, tuple[float, ...]]] = {"mu": (0.1, 1.0, 5.0, 10.0)}
    needs_single_training = True
    adds = frozenset({Aspect.LOCAL_LOSS})
    reads_forward_pass = True

    def adapt(self, module: nn.Module, example: Tensor) -> nn.Module:
        """Insert the projection between body and head, followed by a new head."""
        if self.projection:
            parts = split(module, example, "moon")
            width = parts.head.in_features
            project = [nn.Linear(width, width), nn.ReLU(), nn.Linear(width, self.projection)]
            body = nn.Sequential(parts.body, *project)
            return spec.Classifier(body, self.projection, parts.head.out_features)
        if head_name(module) is None:
            raise UnskewError("model: moon needs a linear head; let the network end in nn.Linear")
        return module

    def prepare(self, client: Client, start: Start, payload: Tensors, state: Tensors) -> Start:
        """Keep the received and the previous model; without a previous one the term is off."""
        refs = {
            "global": start.received,
            "previous": state.get("previous", start.received),
            "strength": torch.tensor(self.mu if "previous" in state else 0.0),
        }
        return replace(start, refs=refs)

    def loss_term(self, step: Step, refs: Tensors) -> Tensor | None:
        """Return ``-mu log(e^{s_global/t} / (e^{s_global/t} + e^{s_previous/t}))``, s: cosines."""
        if not self.mu:
            return None
        assert step.forward_pass is not None
        x, scale = step.batch.x, step.batch.scale
        anchor, positive, negative = (
            directions(forward_pass)
            for forward_pass in (
                step.forward_pass,
                step.network.forward_eval(refs["global"], x),
                step.network.forward_eval(refs["previous"], x),
            )
        )
        logits = ((anchor * negative).sum(-1) - (anchor * positive).sum(-1)) / self.temperature
        return refs["strength"] * (F.softplus(logits) * scale).sum()

    def finish(self, client: Client, start: Start, trained: Trained, state: Tensors) -> Finished:
        """Keep the trained model."""
        return Finished(state={"previous": trained.vector.clone()})


def directions(forward_pass: ForwardPass) -> Tensor:
    """Return each sample's features, scaled to length one."""
    assert forward_pass.features is not None
    features = forward_pass.features.flatten(1)
    return features / (features.square().sum(-1, keepdim=True) + _SMALLEST).sqrt()
