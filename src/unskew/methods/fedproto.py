"""FedProto: clients share the mean features of each class, and no model.

Tan et al., "FedProto: Federated Prototype Learning across Heterogeneous Clients", 2022. Each client
trains its own network, whose features stay near the prototypes that the server averages, and
predicts the class of the nearest prototype.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, ClassVar, Literal

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
from unskew.methods.common.features import (
    features_of,
    prototype_term,
    prototypes_of,
    weighted_prototypes,
)
from unskew.models.layout import Layout
from unskew.models.split import split
from unskew.utils.specs import OPTIONS

_NEVER = 30.0
"""How far below all others the score of a class without a prototype is."""


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class FedProto(ClientSide, ServerSide, Personalization, Setup):
    """Local training with a term that keeps features near the clients' common prototypes."""

    lam: Annotated[float, Field(ge=0)] = 1.0
    """Strength of the term towards the prototypes. 0: clients train alone."""
    weights: Literal["samples", "equal"] = "samples"
    """Weights of the clients' prototypes of a class: their "samples" of it, or "equal"."""
    predict: Literal["prototypes", "head"] = "prototypes"
    """How personal models predict: the class of the nearest of the "prototypes", or by their
    "head"."""

    about: ClassVar[About] = About(
        title="Prototypes of classes",
        paper="Tan et al. 2022",
        kind="personal",
        level="personal",
        down="prototypes",
        up="prototypes, label counts",
    )
    grid: ClassVar[Mapping[str, tuple[float, ...]]] = {"lam": (0.1, 1.0, 10.0)}

    adds = frozenset({Aspect.LOCAL_LOSS})
    replaces = frozenset({Aspect.PERSONAL_MODEL})
    needs = frozenset({"label_counts"})
    needs_classes = True
    reads_forward_pass = True

    @property
    def receives(self) -> Mapping[str, Value]:
        """The mean features of each class."""
        return {"prototypes": Value(("classes", "features"))}

    def adapt(self, module: nn.Module, example: Tensor) -> nn.Module:
        """Split the network into body and head: prototypes can take the head's place."""
        return split(module, example, "fedproto")

    def stays(self, layout: Layout) -> Tensor:
        """Send no coordinates."""
        return torch.ones(layout.size, dtype=torch.bool)

    def broadcast(self, server: Server, client: int) -> Tensors:
        """Send the common prototypes, once there are any."""
        return server.state

    def prepare(self, client: Client, start: Start, payload: Tensors, state: Tensors) -> Start:
        """Keep the common prototypes."""
        return replace(start, refs=payload)

    def loss_term(self, step: Step, refs: Tensors) -> Tensor | None:
        """Return lam times the mean squared distance to the prototypes."""
        return prototype_term(self.lam, step, refs.get("prototypes"))

    def finish(self, client: Client, start: Start, trained: Trained, state: Tensors) -> Finished:
        """Send the trained model's prototypes; keep the personal model."""
        own = prototypes_of(client, features_of(client, trained.vector))
        if self.predict == "head":
            return Finished({"prototypes": own})
        common = start.refs.get("prototypes", own)
        common = torch.where((common != 0).any(-1, keepdim=True), common, own)
        personal = with_nearest_prototype(client.network.layout, trained.vector, common)
        return Finished({"prototypes": own}, {"personal": personal})

    def conclude(
        self, before: Server, after: Server, uploads: Uploads, diagnostics: Diagnostics
    ) -> tuple[Server, Diagnostics]:
        """Average the prototypes of each class over the clients that have it."""
        assert uploads.label_counts is not None
        counts = uploads.label_counts.double()
        weights = counts if self.weights == "samples" else (counts > 0).double()
        sent = torch.stack(list(uploads.extras["prototypes"])).double()
        new = weighted_prototypes(sent, weights, before.state.get("prototypes"))
        return replace(after, state={"prototypes": new}), {}

    def personal(self, model: Tensor, state: Tensors) -> Tensor:
        """Return the client's network, with the nearest prototype in place of its head."""
        return state.get("personal", model)


def with_nearest_prototype(layout: Layout, vector: Tensor, prototypes: Tensor) -> Tensor:
    """Return a model whose head scores a class by the squared distance to its prototype.

    ``-||f - c||²`` is ``2 <c, f> - ||c||²`` up to a number that all classes share, so it is linear
    in the features f. A network without a bias in its head keeps it.
    """
    entries = {entry.name: entry for entry in layout}
    if "head.bias" not in entries or not bool(prototypes.any()):
        return vector
    weight, bias = entries["head.weight"], entries["head.bias"]
    scores = -prototypes.square().sum(1)
    scores[~prototypes.any(1)] = float(scores.min()) - _NEVER
    outputs = weight.shape[0] - len(prototypes)  # outputs that no label uses
    padding = scores.new_full((outputs,), float(scores.min()) - _NEVER)
    changed = vector.clone()
    changed[weight.slice] = nn.functional.pad(2 * prototypes, (0, 0, 0, outputs)).flatten()
    changed[bias.slice] = torch.cat([scores, padding])
    return changed
