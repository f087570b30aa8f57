"""FedPAC: features are aligned by common prototypes, and each client gets its own mix of heads.

Xu, Tong and Huang, "Personalized Federated Learning with Feature Alignment and Classifier
Collaboration", 2023. The head is trained first, then the body, with a term that keeps features near
the prototypes. The server combines the heads for each client so as to minimise its expected loss.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from unskew.aggregation.simplex import least_quadratic
from unskew.aggregation.uploads import Uploads
from unskew.aggregation.weighting import Diagnostics
from unskew.composition.method import Method
from unskew.composition.parts import Aspect, ClientSide, Personalization, ServerSide
from unskew.composition.upload_values import Value
from unskew.composition.values import (
    About,
    Client,
    ExtraTraining,
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
from unskew.methods.common.head import head_mask
from unskew.models.layout import Layout
from unskew.utils.specs import OPTIONS

_SMALL = 1e-3
"""Weights of heads below this become 0, as in the authors' code."""


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class FedPAC(ClientSide, ServerSide, Personalization):
    """Shared body with aligned features; heads that the server mixes for each client."""

    lam: Annotated[float, Field(ge=0)] = 1.0
    """Strength of the term towards the prototypes. 0: none."""
    head_epochs: Annotated[int, Field(ge=1)] = 1
    """Epochs of the head per round, before the body is trained."""

    about: ClassVar[About] = About(
        title="Aligned features and mixed heads",
        paper="Xu et al. 2023",
        kind="personal",
        level="personal",
        needs_individual_updates=True,  # heads are mixed for each client
        down="body, head, prototypes",
        up="model, label counts, prototypes, class statistics",
    )
    grid: ClassVar[Mapping[str, tuple[float, ...]]] = {"lam": (0.1, 1.0, 10.0)}

    adds = frozenset({Aspect.LOCAL_LOSS})
    replaces = frozenset({Aspect.HEAD})
    needs = frozenset({"label_counts"})
    needs_classes = True
    reads_forward_pass = True
    repeats_training = True

    @property
    def receives(self) -> Mapping[str, Value]:
        """Prototypes of the trained model, and statistics of the received model's features."""
        return {
            "prototypes": Value(("classes", "features")),
            "means": Value(("classes", "features")),
            "variance": Value(low=0.0),
        }

    def stays(self, layout: Layout) -> Tensor:
        """Keep the head on the client; raise an error if the network has none."""
        return head_mask(layout)

    def shares_on_upload(self, layout: Layout) -> Tensor:
        """Send the head to the server, which mixes the heads."""
        return head_mask(layout)

    def freezes(self, layout: Layout) -> Tensor:
        """Freeze the head while the body is trained."""
        return head_mask(layout)

    def extra_trainings(self, method: Method) -> tuple[ExtraTraining, ...]:
        """Train the head alone, on the received body."""
        return (ExtraTraining("head", method, self.head_epochs, head_mask),)

    def broadcast(self, server: Server, client: int) -> Tensors:
        """Send a client its mix of heads, and the prototypes."""
        state = server.state
        if "heads" not in state:
            return {}
        own = (state["owners"] == client).nonzero().flatten()
        head = {"head": state["heads"][int(own)]} if len(own) else {}
        return {**head, "prototypes": state["prototypes"]}

    def prepare(self, client: Client, start: Start, payload: Tensors, state: Tensors) -> Start:
        """Start the training of the head from the mix; that of the body, from the trained head."""
        prototypes = {k: each for k, each in payload.items() if k == "prototypes"}
        vector = start.vector
        head_is_trained = "round" in state and int(state["round"]) == client.round
        if "head" in payload and not head_is_trained:
            vector = vector.clone()
            vector[head_mask(client.network.layout)] = payload["head"]
        return replace(start, vector=vector, refs=prototypes)

    def loss_term(self, step: Step, refs: Tensors) -> Tensor | None:
        """Return lam times the mean squared distance to the prototypes."""
        return prototype_term(self.lam, step, refs.get("prototypes"))

    def finish(self, client: Client, start: Start, trained: Trained, state: Tensors) -> Finished:
        """Send the trained model's prototypes, and statistics of the received model's features."""
        means, variance = statistics(client, features_of(client, start.received))
        prototypes = prototypes_of(client, features_of(client, trained.vector))
        extras = {"prototypes": prototypes, "means": means, "variance": variance}
        return Finished(extras, {"round": torch.tensor(client.round)})

    def conclude(
        self, before: Server, after: Server, uploads: Uploads, diagnostics: Diagnostics
    ) -> tuple[Server, Diagnostics]:
        """Average the prototypes, and mix the heads for each of the round's clients."""
        assert uploads.label_counts is not None
        state, extras = before.state, uploads.extras
        sent = torch.stack(list(extras["prototypes"])).double()
        counts = uploads.label_counts.double()
        prototypes = weighted_prototypes(sent, counts, state.get("prototypes"))
        shares = head_weights(
            torch.stack(list(extras["means"])).double(),
            torch.stack(list(extras["variance"])).double(),
        )
        mixed = shares @ uploads.stack[:, head_mask(uploads.layout)].double()
        heads = dict(zip(uploads.clients, mixed.float(), strict=True))
        if "heads" in state:
            heads = dict(zip(state["owners"].tolist(), state["heads"], strict=True)) | heads
        owners = sorted(heads)
        new = {
            "heads": torch.stack([heads[k] for k in owners]),
            "owners": torch.tensor(owners),
            "prototypes": prototypes,
        }
        return replace(after, state=new), {"head_weights": shares}


def statistics(client: Client, features: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean features of each class times its share, and their variance over n.

    The variance is that of one sample's features, summed over classes, in the paper's sense:
    ``sum_c p_c E||f||² - p_c² ||mean_c||²``.
    """
    labels, count = client.y.long().cpu(), max(1, len(client.y))
    shares = torch.bincount(labels, minlength=client.classes) / count
    means = prototypes_of(client, features) * shares[:, None]
    variance = features.square().sum() / count - means.square().sum()
    return means, variance.clamp(min=0) / count


def head_weights(means: Tensor, variances: Tensor) -> Tensor:
    """Return the weights of all heads for each client, one row per client.

    Row i minimises ``sum_j a_j² v_j + ||m_i - sum_j a_j m_j||²`` over weights that sum to one:
    variance and bias of the head for client i.
    """
    flat = means.flatten(1)
    rows = []
    for own in flat:
        distances = own - flat
        found = least_quadratic(distances @ distances.T + variances.diag())
        found = torch.where(found > _SMALL, found, 0.0)
        rows.append(found / found.sum())
    return torch.stack(rows)
