"""FedGen: a generator on the server tells clients what features of other classes look like.

Zhu, Hong and Zhou, "Data-Free Knowledge Distillation for Heterogeneous Federated Learning", 2021.
The server trains the generator on the clients' heads; clients train their heads on its features
too, and keep their predictions near those for generated features of the same class.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from unskew.aggregation.uploads import Uploads
from unskew.methods.common.base import (
    About,
    Client,
    Finished,
    Method,
    Server,
    Start,
    Tensors,
    Trained,
)
from unskew.methods.common.generator import Fitting, Generator, Heads, Shape
from unskew.models.functional import Batch, Buffers, FunctionalModel
from unskew.models.layout import Layout
from unskew.models.split import split
from unskew.utils.rng import stream, torch_generator
from unskew.utils.specs import OPTIONS

Strength = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=1)]


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class FedGen(Method):
    """FedAvg with generated features in the clients' objective, from the second round on."""

    alpha: Strength = 10.0
    """Strength of teaching heads by generated features; with beta = 0 too, 0 is FedAvg."""
    beta: Strength = 10.0
    """Strength of keeping predictions near those for generated features of the same class."""
    decay: Annotated[float, Field(gt=0, le=1)] = 0.98
    """Factor by which both terms fade a round. 1: they do not."""
    samples: Count = 128
    """Features generated for a client's round, at most: as many for each class, at least one."""
    noise: Count = 32
    """Random inputs of the generator, beside the class."""
    hidden: Count = 256
    """Hidden units of the generator."""
    generator_steps: Count = 50
    """Adam steps that the generator takes a round."""
    generator_batch: Annotated[int, Field(ge=2)] = 128
    """Features that the generator makes for a step."""
    generator_lr: Annotated[float, Field(gt=0)] = 3e-4
    """Adam's learning rate for the generator."""
    diversity: Strength = 1.0
    """Strength of the generator's term that asks for unlike features where noise is unlike."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Seed of the generator's start and of its noise."""

    about: ClassVar[About] = About(
        title="Features from a generator",
        paper="Zhu et al. 2021",
        kind="objective",
        down="model, generator",
        up="model, label counts",
    )
    grid: ClassVar[Mapping[str, tuple[float, ...]]] = {
        "alpha": (1.0, 10.0),
        "beta": (1.0, 10.0),
    }

    def adapt(self, module: nn.Module, example: Tensor) -> nn.Module:
        """Take the network as body and head: the generator stands in for the body."""
        return split(super().adapt(module, example), example, "fedgen")

    def broadcast(self, server: Server, client: int) -> Tensors:
        """Send the generator too, once it is trained, and which classes it was trained for."""
        payload = super().broadcast(server, client)
        if "generator" not in server.slots:
            return payload
        names = ("generator", "generated", "generator_round")
        return {**payload, **{name: server.slots[name] for name in names}}

    def prepare(self, client: Client, payload: Tensors, state: Tensors) -> Start:
        """Generate the round's features: classes x draws x width."""
        start = super().prepare(client, payload, state)
        if "generator" not in payload:
            return start
        shape, round_ = self._shape(client.network.layout), int(payload["generator_round"])
        noise_per_sample = max(1, self.samples // shape.classes)
        y = torch.arange(shape.classes).repeat_interleave(noise_per_sample)
        draw = torch_generator(self.seed, "generated", round_, client.id)
        noise = torch.randn(len(y), shape.noise, generator=draw)
        with torch.no_grad():
            features = Generator(shape)(payload["generator"], y, noise)
        refs = {
            "generated": features.view(shape.classes, noise_per_sample, shape.features),
            "generated_shares": payload["generated"] / payload["generated"].sum(),
            "generated_fade": torch.tensor(self.decay**round_),
        }
        return replace(start, refs={**start.refs, **refs})

    def objective(
        self,
        network: FunctionalModel,
        weights: Tensor,
        buffers: Buffers,
        batch: Batch,
        refs: Tensors,
    ) -> Tensor:
        """Add ``alpha CE(head(G(y)), y) + beta KL(head(G(y_i)) || own(x_i))``, faded."""
        if "generated" not in refs:
            return super().objective(network, weights, buffers, batch, refs)
        with network.capture_passes() as passes:
            loss = super().objective(network, weights, buffers, batch, refs)
        generated = refs["generated"]
        classes, noise_per_sample, width = generated.shape
        logits = network.part("head", weights, buffers, generated.reshape(-1, width))
        scores = F.log_softmax(logits, -1).view(classes, noise_per_sample, classes)
        right = scores.diagonal(dim1=0, dim2=2).mean(0)
        named = -(right * refs["generated_shares"]).sum()
        # Sample i is compared with one of the draws for its class, a different one for each i.
        turns = torch.arange(len(batch.y), device=batch.y.device) % noise_per_sample
        taught = scores.detach()[batch.y, turns]
        apart = (taught.exp() * (taught - F.log_softmax(passes[0].output, -1))).sum(-1)
        known = (refs["generated_shares"] > 0).to(apart)[batch.y]
        agreed = (apart * known * batch.scale).sum()
        return loss + refs["generated_fade"] * (self.alpha * named + self.beta * agreed)

    def finish(self, client: Client, start: Start, trained: Trained, state: Tensors) -> Finished:
        """Send the label counts, by which the server weighs heads."""
        finished = super().finish(client, start, trained, state)
        if not self._acts:
            return finished
        classes = self._shape(client.network.layout).classes
        counts = torch.bincount(client.y.long(), minlength=classes)
        return Finished({**finished.extras, "label_counts": counts}, finished.state)

    def aggregate(self, server: Server, uploads: Uploads) -> tuple[Server, dict[str, Any]]:
        """Combine as ever, then train the generator on the heads that came in."""
        updated, told = super().aggregate(server, uploads)
        if not self._acts:
            return updated, told
        slots, shape = server.slots, self._shape(uploads.layout)
        round_ = int(slots["generator_round"]) if "generator_round" in slots else 0
        old = slots.get("generator")
        how = Fitting(self.generator_steps, self.generator_batch, self.generator_lr, self.diversity)
        counts = torch.stack(list(uploads.extras["label_counts"]))
        parameters, loss = Generator(shape).fit(
            Generator.begin(shape, self.seed) if old is None else old,
            _heads(uploads),
            counts,
            how,
            int(stream(self.seed, "fedgen", round_)),
        )
        seen = (counts.sum(0) > 0).to(torch.uint8)
        kept = {
            **updated.slots,
            "generator": parameters,
            "generated": seen if old is None else seen | slots["generated"],
            "generator_round": torch.tensor(round_ + 1),
        }
        return replace(updated, slots=kept), {**told, "generator_loss": torch.tensor(loss)}

    @property
    def _acts(self) -> bool:
        """Whether there is a term at all."""
        return bool(self.alpha or self.beta)

    def _shape(self, layout: Layout) -> Shape:
        classes, width = next(e.shape for e in layout if e.name == "head.weight")
        return Shape(classes, self.noise, self.hidden, width)


def _heads(uploads: Uploads) -> Heads:
    """Return the clients' heads, as parts of the stack."""
    parts = {
        entry.name: uploads.stack[:, entry.place].view(len(uploads), *entry.shape)
        for entry in uploads.layout
        if entry.name in ("head.weight", "head.bias")
    }
    return Heads(parts["head.weight"], parts.get("head.bias"))
