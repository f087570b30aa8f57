"""CCVR: the head is retrained on virtual features, drawn from a Gaussian for each class.

Luo, Chen, Hu, Zhang, Liang and Feng, "No Fear of Heterogeneity: Classifier Calibration for
Federated Learning with Non-IID Data", 2021. Clients send the mean and the scatter of the global
model's features of each class; the server pools them, draws features and trains the head on them.
"""

from collections.abc import Mapping, MutableMapping
from dataclasses import replace
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary

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
from unskew.models.layout import Layout
from unskew.models.split import split
from unskew.utils.rng import torch_generator
from unskew.utils.specs import OPTIONS
from unskew.utils.threads import threads

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
    grid: ClassVar[SearchSpace] = {"samples": (50, 200, 1000, 5000)}

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
        """Keep the pooled statistics, and the model whose features the clients measured."""
        assert uploads.label_counts is not None
        counts = uploads.label_counts.double()
        means, scatters = (
            torch.stack(list(uploads.extras[name])).double() for name in ("means", "scatters")
        )
        present, mean, covariance = pooled(counts, means, scatters)
        state = {
            "seed": before.state["seed"],
            "present": present,
            "means": mean,
            "covariances": covariance,
            "measured": uploads.previous.clone(),
            "head": _places_of_head(uploads.layout),
            # Sums depend on the number of threads in their last digits.
            "threads": torch.tensor(torch.get_num_threads()),
        }
        return replace(after, state=state), {}

    def model(self, server: Server) -> Tensor:
        """Return the calibrated model; before the first round, the one that is sent.

        The head is trained when the model is needed first after a round: rounds that are not
        evaluated do not calibrate.
        """
        state = server.state
        if "means" not in state:
            return server.vector
        known = _calibrated.get(state["means"])
        if known is None or known[0] != self:
            with threads(int(state["threads"])):
                known = self, self._calibrate(state)
            _calibrated[state["means"]] = known
        return known[1]

    def _calibrate(self, state: Tensors) -> Tensor:
        """Return the model that the clients measured with a head for the pooled statistics."""
        present = state["present"]
        features, y = self._virtual(
            present, state["means"], state["covariances"], int(state["seed"])
        )
        return self._trained_head(state["measured"], state["head"], features, y, present)

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
        self, measured: Tensor, places: Tensor, features: Tensor, y: Tensor, present: Tensor
    ) -> Tensor:
        """Return a model with a head trained on virtual features.

        Classes that no client of the round has are left out of the softmax, and so unchanged.
        """
        model, width = measured.clone(), features.shape[1]
        slices = [slice(start, stop) for start, stop in places.tolist()]
        leaves = [model[place].clone().requires_grad_() for place in slices]
        weight, bias = leaves[0], leaves[1:]
        missing = torch.full((len(weight) // width,), -torch.inf)
        missing[: len(present)][present] = 0.0
        optimizer = torch.optim.Adam(leaves, self.head_lr)
        for _ in range(self.steps):
            with torch.enable_grad():
                logits = features @ weight.view(-1, width).T + missing
                if bias:
                    logits = logits + bias[0]
                loss = cross_entropy(logits, y).mean()
                gradients = torch.autograd.grad(loss, leaves)
            for leaf, gradient in zip(leaves, gradients, strict=True):
                leaf.grad = gradient
            optimizer.step()
        for place, leaf in zip(slices, leaves, strict=True):
            model[place] = leaf.detach()
        return model


_calibrated: MutableMapping[Tensor, tuple[CCVR, Tensor]] = WeakIdKeyDictionary()
"""The calibrated models by the pooled means they follow from, as long as these exist: one round
asks for its model several times."""


def _places_of_head(layout: Layout) -> Tensor:
    """Return where the head's weight is in a model, and its bias if it has one: start and stop."""
    slices = {entry.name: entry.slice for entry in layout}
    names = [name for name in ("head.weight", "head.bias") if name in slices]
    return torch.tensor([[slices[name].start, slices[name].stop] for name in names])


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
