"""CCVR: the head is retrained on virtual features, drawn from a Gaussian for each class.

Luo, Chen, Hu, Zhang, Liang and Feng, "No Fear of Heterogeneity: Classifier Calibration for
Federated Learning with Non-IID Data", 2021. Clients send the mean and the scatter of the global
model's features of each class; the server pools them, draws features and trains the head on them.
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
from unskew.composition.parts import Aspect, ClientSide, ServerSide, Setup
from unskew.composition.search_space import SearchSpace
from unskew.composition.upload_values import Value
from unskew.composition.values import (
    About,
    Beginning,
    Client,
    Finished,
    Server,
    Start,
    Tensors,
    Trained,
)
from unskew.methods.common.class_losses import cross_entropy
from unskew.methods.common.features import features_of
from unskew.models.split import split
from unskew.utils.rng import torch_generator
from unskew.utils.specs import OPTIONS

Count = Annotated[int, Field(ge=1)]

_RIDGE = 1e-4
"""Added to the variances of a class, relative to their mean: few samples do not span them."""


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class CCVR(ClientSide, ServerSide, Setup):
    """Any training, evaluated with a head that is calibrated on all clients' features."""

    samples: Count = 200
    """Virtual features per class."""
    steps: Annotated[int, Field(ge=0)] = 100
    """Adam steps of the head, on all virtual features at once. 0 leaves the head as it is."""
    head_lr: Annotated[float, Field(gt=0)] = 0.01
    """Adam's learning rate for the head."""

    about: ClassVar[About] = About(
        title="Head calibrated on virtual features",
        paper="Luo et al. 2021",
        kind="server",
        up="model, label counts, feature statistics",
    )
    grid: ClassVar[SearchSpace] = {"samples": (50, 200, 1000)}

    replaces = frozenset({Aspect.GLOBAL_MODEL})
    needs = frozenset({"label_counts"})

    @property
    def receives(self) -> Mapping[str, Value]:
        """The mean of the features of each class, and their scatter around it."""
        return {
            "means": Value(("classes", "features")),
            "scatters": Value(("classes", "features", "features"), times=1e6),
        }

    def adapt(self, module: nn.Module, example: Tensor) -> nn.Module:
        """Split the network into body and head."""
        return split(module, example, "ccvr")

    def begin(self, beginning: Beginning) -> Tensors:
        """Keep the seed of the virtual features."""
        return {"seed": torch.tensor(beginning.seed)}

    def finish(self, client: Client, start: Start, trained: Trained, state: Tensors) -> Finished:
        """Send the statistics of the received model's features."""
        features, y = features_of(client, start.received).double(), client.y.long()
        means = torch.zeros(client.classes, features.shape[1], dtype=torch.float64)
        scatters = means.new_zeros(client.classes, features.shape[1], features.shape[1])
        for label in sorted(set(y.tolist())):
            rows = features[y == label]
            means[label] = rows.mean(0)
            scatters[label] = (rows - means[label]).T @ (rows - means[label])
        return Finished({"means": means.float(), "scatters": scatters.float()})

    def conclude(
        self, before: Server, after: Server, uploads: Uploads, diagnostics: Diagnostics
    ) -> tuple[Server, Diagnostics]:
        """Calibrate the head of the model whose features the clients measured."""
        assert uploads.label_counts is not None
        counts = uploads.label_counts.double()
        means, scatters = (
            torch.stack(list(uploads.extras[name])).double() for name in ("means", "scatters")
        )
        features, y = self._virtual(*pooled(counts, means, scatters), int(before.state["seed"]))
        calibrated = self._trained_head(uploads, features, y, counts.sum(0) > 0)
        state = {**before.state, "calibrated": calibrated}
        return replace(after, state=state), {}

    def model(self, server: Server) -> Tensor:
        """Return the calibrated model; before the first round, the one that is sent."""
        return server.state.get("calibrated", server.vector)

    def _virtual(
        self, present: Tensor, means: Tensor, covariances: Tensor, seed: int
    ) -> tuple[Tensor, Tensor]:
        """Draw features of the classes that are present, and return them with their classes."""
        classes, width = means.shape
        draw = torch_generator(seed, "virtual features")  # the same noise in all rounds
        noise = torch.randn(classes, self.samples, width, generator=draw).double()
        ridge = _RIDGE * covariances.diagonal(dim1=1, dim2=2).mean(1) + 1e-12
        roots = _roots(covariances + ridge[:, None, None] * torch.eye(width))
        features = means[:, None] + noise @ roots.transpose(1, 2)
        y = torch.arange(classes)[:, None].expand(classes, self.samples)
        return features[present].flatten(0, 1).float(), y[present].flatten()

    def _trained_head(
        self, uploads: Uploads, features: Tensor, y: Tensor, present: Tensor
    ) -> Tensor:
        """Return the previous model with a head trained on virtual features.

        Classes that no client of the round has are left out of the softmax, and so unchanged.
        """
        model = uploads.previous.clone()
        entries = {entry.name: entry for entry in uploads.layout}
        leaves = {
            name: model[entries[name].slice].clone().requires_grad_()
            for name in ("head.weight", "head.bias")
            if name in entries
        }
        weight = entries["head.weight"]
        missing = torch.full((weight.shape[0],), -torch.inf)
        missing[: len(present)][present] = 0.0
        optimizer = torch.optim.Adam(leaves.values(), self.head_lr)
        for _ in range(self.steps):
            with torch.enable_grad():
                logits = features @ leaves["head.weight"].view(weight.shape).T + missing
                if "head.bias" in leaves:
                    logits = logits + leaves["head.bias"]
                loss = cross_entropy(logits, y).mean()
                gradients = torch.autograd.grad(loss, list(leaves.values()))
            for leaf, gradient in zip(leaves.values(), gradients, strict=True):
                leaf.grad = gradient
            optimizer.step()
        for name, leaf in leaves.items():
            model[entries[name].slice] = leaf.detach()
        return model


def pooled(counts: Tensor, means: Tensor, scatters: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return which classes are present, and the mean and covariance of all clients' features.

    ``counts`` is clients x classes, ``means`` clients x classes x features, and ``scatters`` are
    the sums of outer products around each client's own mean.
    """
    total = counts.sum(0)
    mean = (counts[..., None] * means).sum(0) / total.clamp(min=1)[:, None]
    away = means - mean
    between = torch.einsum("kc,kci,kcj->cij", counts, away, away)
    covariance = (scatters.sum(0) + between) / (total - 1).clamp(min=1)[:, None, None]
    return total > 0, mean, covariance


def _roots(covariances: Tensor) -> Tensor:
    """Return R with ``R R^T`` the covariance of each class.

    Cholesky's root changes continuously with the covariance. Where there is none, because a client
    sent numbers that are not a covariance, negative eigenvalues count as zero.
    """
    roots: Tensor
    roots, failed = torch.linalg.cholesky_ex(covariances)
    for label in failed.nonzero().flatten().tolist():
        values, vectors = torch.linalg.eigh(covariances[label])
        roots[label] = vectors * values.clamp(min=0).sqrt()
    return roots
