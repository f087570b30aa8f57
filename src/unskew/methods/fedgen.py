"""FedGen: a generator on the server provides clients with features of other classes.

Zhu, Hong and Zhou, "Data-Free Knowledge Distillation for Heterogeneous Federated Learning", 2021.
The server trains the generator on the clients' heads. Clients also train their heads on its
features, and keep their predictions near those for generated features of the same class.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from unskew.aggregation.uploads import Uploads
from unskew.aggregation.weighting import Diagnostics
from unskew.composition.parts import Aspect, ClientSide, Measurement, ServerSide, Setup
from unskew.composition.values import About, Client, Server, Start, Step, Tensors
from unskew.methods.common.generator import Generator, GeneratorTraining, Heads, Shape
from unskew.models.layout import Layout
from unskew.models.split import split
from unskew.utils.rng import stream, torch_generator
from unskew.utils.specs import OPTIONS

Strength = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=1)]


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class FedGen(ClientSide, ServerSide, Setup):
    """FedAvg with generated features in the clients' objective, from the second round on."""

    alpha: Strength = 10.0
    """Strength of the heads' loss on generated features; 0 is FedAvg if beta is also 0."""
    beta: Strength = 10.0
    """Strength of keeping predictions near those for generated features of the same class."""
    decay: Annotated[float, Field(gt=0, le=1)] = 0.98
    """Factor by which both terms decay per round. 1: no decay."""
    samples: Count = 128
    """Largest number of features generated per client and round, split evenly over the classes,
    with at least one per class."""
    noise: Count = 32
    """Width of the generator's noise input."""
    hidden: Count = 256
    """Hidden units of the generator."""
    generator_steps: Count = 50
    """Adam steps of the generator per round."""
    generator_batch: Annotated[int, Field(ge=2)] = 128
    """Batch size of the generator's steps."""
    generator_lr: Annotated[float, Field(gt=0)] = 3e-4
    """Adam's learning rate for the generator."""
    diversity: Strength = 1.0
    """Strength of the generator's diversity loss, small if different noise gives different
    features."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Seed of the generator's initial weights and of its noise."""

    about: ClassVar[About] = About(
        title="Features from a generator",
        paper="Zhu et al. 2021",
        kind="objective",
        needs_individual_updates=True,  # the generator learns from each client's head
        down="model, generator",
        up="model, label counts",
    )
    grid: ClassVar[Mapping[str, tuple[float, ...]]] = {
        "alpha": (1.0, 10.0),
        "beta": (1.0, 10.0),
    }

    adds = frozenset({Aspect.LOCAL_LOSS})
    needs_classes = True
    reads_forward_pass = True

    @property
    def needs(self) -> frozenset[Measurement]:
        """The label counts, by which the server weights the heads."""
        return frozenset({"label_counts"} if self._has_terms else ())

    def adapt(self, module: nn.Module, example: Tensor) -> nn.Module:
        """Split the network into body and head: the generator replaces the body."""
        return split(module, example, "fedgen")

    def broadcast(self, server: Server, client: int) -> Tensors:
        """Send the generator, once it is trained, and the classes it was trained on."""
        return server.state

    def prepare(self, client: Client, start: Start, payload: Tensors, state: Tensors) -> Start:
        """Generate the round's features: classes x features per class x width."""
        if "generator" not in payload:
            return start
        shape, round_ = self._shape(client.network.layout), int(payload["round"])
        per_class = max(1, self.samples // shape.classes)
        y = torch.arange(shape.classes).repeat_interleave(per_class)
        draw = torch_generator(self.seed, "generated", round_, client.id)
        noise = torch.randn(len(y), shape.noise, generator=draw)
        with torch.no_grad():
            features = Generator(shape)(payload["generator"], y, noise)
        refs = {
            "features": features.view(shape.classes, per_class, shape.features),
            "shares": payload["seen"] / payload["seen"].sum(),
            "decay": torch.tensor(self.decay**round_),
        }
        return replace(start, refs=refs)

    def loss_term(self, step: Step, refs: Tensors) -> Tensor | None:
        """Return ``alpha CE(head(G(y)), y) + beta KL(head(G(y_i)) || local(x_i))``, decayed."""
        if "features" not in refs:
            return None
        assert step.forward_pass is not None
        y, features, shares = step.batch.y, refs["features"], refs["shares"]
        classes, per_class, width = features.shape
        logits = step.network.part("head", step.weights, step.buffers, features.reshape(-1, width))
        scores = F.log_softmax(logits, -1).view(classes, per_class, classes)
        correct = scores.diagonal(dim1=0, dim2=2).mean(0)
        cross_entropy = -(correct * shares).sum()
        # Sample i is compared with one of the features of its class, a different one for each i.
        chosen = torch.arange(len(y), device=y.device) % per_class
        teacher, student = scores.detach()[y, chosen], F.log_softmax(step.forward_pass.output, -1)
        per_sample = (teacher.exp() * (teacher - student)).sum(-1)
        known = (shares > 0).to(per_sample)[y]
        divergence = (per_sample * known * step.batch.scale).sum()
        return refs["decay"] * (self.alpha * cross_entropy + self.beta * divergence)

    def conclude(
        self, before: Server, after: Server, uploads: Uploads, diagnostics: Diagnostics
    ) -> tuple[Server, Diagnostics]:
        """Train the generator on the uploaded heads."""
        if not self._has_terms:
            return after, {}
        state, shape = before.state, self._shape(uploads.layout)
        round_ = int(state["round"]) if "round" in state else 0
        old = state.get("generator")
        training = GeneratorTraining(
            self.generator_steps, self.generator_batch, self.generator_lr, self.diversity
        )
        assert uploads.label_counts is not None
        missing = shape.classes - uploads.label_counts.shape[1]
        counts = F.pad(uploads.label_counts, (0, missing))  # outputs that no label uses
        parameters, loss = Generator(shape).fit(
            Generator.initial_parameters(shape, self.seed) if old is None else old,
            _heads(uploads),
            counts,
            training,
            int(stream(self.seed, "fedgen", round_)),
        )
        seen = (counts.sum(0) > 0).to(torch.uint8)
        kept = {
            "generator": parameters,
            "seen": seen if old is None else seen | state["seen"],
            "round": torch.tensor(round_ + 1),
        }
        return replace(after, state=kept), {"generator_loss": torch.tensor(loss)}

    @property
    def _has_terms(self) -> bool:
        """Whether any term of the objective is active."""
        return bool(self.alpha or self.beta)

    def _shape(self, layout: Layout) -> Shape:
        classes, width = next(e.shape for e in layout if e.name == "head.weight")
        return Shape(classes, self.noise, self.hidden, width)


def _heads(uploads: Uploads) -> Heads:
    """Return the clients' heads, as views of the stacked uploads."""
    parts = {
        entry.name: uploads.stack[:, entry.slice].view(len(uploads), *entry.shape)
        for entry in uploads.layout
        if entry.name in ("head.weight", "head.bias")
    }
    return Heads(parts["head.weight"], parts.get("head.bias"))
