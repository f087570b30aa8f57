"""FedDBE: what biases a client's features stays in a vector of its own, and out of the body.

Zhang et al., "Eliminating Domain Bias for Federated Learning in Representation Space", 2023: the
Domain Bias Eliminator (DBE). A personal vector is added to the features before the head, and a term
keeps the mean of the body's features near the mean over all clients.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from unskew.aggregation.uploads import Uploads
from unskew.aggregation.weighting import Diagnostics
from unskew.composition.parts import Aspect, ClientSide, Personalization, ServerSide, Setup
from unskew.composition.upload_values import Value
from unskew.composition.values import (
    About,
    Client,
    Finished,
    Server,
    Start,
    Step,
    Tensors,
    Trained,
)
from unskew.methods.common.features import features_of, head_inputs
from unskew.methods.common.once import mark_received, send_once
from unskew.models.layout import Layout
from unskew.models.spec import Classifier
from unskew.models.split import split
from unskew.models.two_heads import TwoHeads
from unskew.utils.specs import OPTIONS

_SHIFT = "body.shift"


class _Shifted(nn.Module):
    """A body whose features are shifted by a vector."""

    def __init__(self, body: nn.Module, width: int) -> None:
        super().__init__()
        self.inner = body
        self.shift = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.inner(x) + self.shift
        return features


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class FedDBE(ClientSide, ServerSide, Personalization, Setup):
    """FedAvg with a personal vector of features, and a common mean of the body's features."""

    kappa: Annotated[float, Field(ge=0)] = 1.0
    """Strength of the term that keeps the mean of the features near the common one. 0: none."""
    momentum: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Weight of a batch in the running mean of the features. 1: the mean of the batch alone."""

    about: ClassVar[About] = About(
        title="Bias of features kept on the client",
        paper="Zhang et al. 2023",
        kind="personal",
        level="personal",
        down="model, mean features (once)",
        up="model, mean features (once)",
    )
    grid: ClassVar[Mapping[str, tuple[float, ...]]] = {
        "kappa": (0.1, 1.0, 10.0, 50.0),
        "momentum": (0.1, 1.0),
    }

    adds = frozenset({Aspect.LOCAL_LOSS})
    adapts_last = True
    works_without_own = True
    reads_forward_pass = True
    changing_refs: ClassVar[tuple[str, ...]] = ("mean",)

    @property
    def receives(self) -> Mapping[str, Value]:
        """The mean of the client's features, in the first round."""
        return {"mean": Value(("features",), optional=True)}

    def adapt(self, module: nn.Module, example: Tensor) -> nn.Module:
        """Add the personal vector between body and head."""
        parts = module if isinstance(module, TwoHeads) else split(module, example, "feddbe")
        head = parts.head
        assert isinstance(head, nn.Linear)
        body = _Shifted(parts.body, head.in_features)
        if isinstance(parts, TwoHeads):
            parts.body = body
            return parts
        whole = Classifier(body, head.in_features, head.out_features)
        whole.head = head
        return whole

    def stays(self, layout: Layout) -> Tensor:
        """Keep the vector on the client."""
        return layout.mask_where(lambda entry: entry.name == _SHIFT)

    def broadcast(self, server: Server, client: int) -> Tensors:
        """Send the common mean of the features to each client once, when it is known."""
        return send_once(server, client, "common")

    def prepare(self, client: Client, start: Start, payload: Tensors, state: Tensors) -> Start:
        """Keep the common mean; without one the term is off."""
        common = payload.get("common", state.get("common"))
        mean = torch.zeros(head_inputs(client.network.layout))
        strength = 0.0 if common is None else self.kappa
        refs = {"mean": mean, "strength": torch.tensor(strength)}
        refs["common"] = mean if common is None else common
        return replace(start, refs=refs)

    def loss_term(self, step: Step, refs: Tensors) -> Tensor | None:
        """Return ``kappa/2`` times the mean squared distance of the means."""
        if not self.kappa:
            return None
        return refs["strength"] / 2 * (self._mean(step, refs) - refs["common"]).square().mean()

    def next_refs(self, step: Step, refs: Tensors) -> Tensors:
        """Return the running mean of the features."""
        return {"mean": self._mean(step, refs)}

    def finish(self, client: Client, start: Start, trained: Trained, state: Tensors) -> Finished:
        """Keep the common mean; as long as there is none, send the client's own."""
        if start.refs["strength"] or self.kappa == 0:
            return Finished(state={"common": start.refs["common"]} if self.kappa else {})
        features = features_of(client, trained.vector)
        shift = next(entry for entry in client.network.layout if entry.name == _SHIFT)
        mean = features.sum(0) / max(1, len(features)) - trained.vector[shift.slice]
        return Finished({"mean": mean})

    def conclude(
        self, before: Server, after: Server, uploads: Uploads, diagnostics: Diagnostics
    ) -> tuple[Server, Diagnostics]:
        """Average the features of the first round's clients; remember who received the mean."""
        state = dict(before.state)
        if "common" in state:
            state |= mark_received(before, uploads)
        elif "mean" in uploads.extras:
            samples = uploads.samples.double()
            means = torch.stack(list(uploads.extras["mean"])).double()
            state["common"] = (samples @ means / samples.sum().clamp(min=1)).float()
        return replace(after, state=state), {}

    def _mean(self, step: Step, refs: Tensors) -> Tensor:
        """Return the running mean of the features without the shift, after this batch."""
        assert step.forward_pass is not None
        assert step.forward_pass.features is not None
        shift = next(e for e in step.network.layout if e.name == _SHIFT)
        features = step.forward_pass.features.flatten(1) - step.weights[shift.slice]
        batch = (features * step.batch.scale[:, None]).sum(0)
        return (1 - self.momentum) * refs["mean"] + self.momentum * batch
