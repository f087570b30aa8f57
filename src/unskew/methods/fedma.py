"""FedMA: hidden units are matched before they are averaged.

Wang et al., "Federated Learning with Matched Averaging", 2020. Two networks can compute the same
function with their hidden units in a different order; averaging by index then mixes unrelated
units.
"""

from dataclasses import replace
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from unskew.aggregation.chain import Layer, chain_of, renumber
from unskew.aggregation.matching import matched
from unskew.aggregation.uploads import Uploads
from unskew.aggregation.weighting import Diagnostics
from unskew.composition.method import Method
from unskew.composition.parts import (
    Aspect,
    Measurement,
    Personalization,
    ServerSide,
    Setup,
    WeightedMean,
)
from unskew.composition.values import About, Server
from unskew.errors import UnskewError
from unskew.models.functional import FunctionalModel
from unskew.utils.rng import torch_generator
from unskew.utils.specs import OPTIONS


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class FedMA(ServerSide, Setup):
    """Matched averaging at a fixed width, for plain chains of linear layers and convolutions."""

    sweeps: Annotated[int, Field(ge=0)] = 5
    """Largest number of times that all clients are matched after the first matching."""
    head: Literal["classes", "samples"] = "classes"
    """The head is averaged by the clients' samples per class ("classes", as published), or by all
    their samples ("samples")."""

    about: ClassVar[About] = About(
        title="Hidden units matched, then averaged",
        paper="Wang et al. 2020 (FedMA)",
        kind="server",
        up="model, label counts",
        needs_individual_updates=True,
    )

    replaces = frozenset({Aspect.COMBINATION, Aspect.STATISTICS})

    @property
    def needs(self) -> frozenset[Measurement]:
        """The label counts, if the head is averaged by them."""
        return frozenset({"label_counts"} if self.head == "classes" else ())

    def check(self, method: Method, network: FunctionalModel, samples: Tensor) -> None:
        """Reject networks whose function changes when hidden units are permuted."""
        if network.layout.frozen is not None:
            raise UnskewError(
                "model: fedma permutes units, so no parameter may be frozen; train all of them, or "
                "use another method"
            )
        keeping = [
            part.name
            for part in method.parts
            if part.buffers == "local"
            or (isinstance(part, Personalization) and part.stays(network.layout) is not None)
        ]
        if keeping and method.sent_mask(network.layout) is not None:
            raise UnskewError(
                f"method {method.spec!r}: fedma permutes units, so none may stay on clients, where "
                f"{keeping[0]} keeps some; remove one of them, or use buffers=average"
            )
        layers = chain_of(network.layout)
        before = _random_vector(network)
        after = before.clone()
        for number, layer in enumerate(layers[:-1]):
            noise = torch_generator(0, "renumbering", number)
            renumber(after, layers, number, torch.randperm(layer.units, generator=noise))
        old, new = (_output(network, vector, samples) for vector in (before, after))
        if not torch.allclose(old, new, rtol=1e-3, atol=1e-3 * float(old.abs().max())):
            raise UnskewError(
                "model: fedma cannot match units across shortcuts, groups or other ties between "
                "layers; use a plain chain of linear layers or convolutions such as mlp or lenet5"
            )

    def combine(
        self, server: Server, uploads: Uploads, mean: WeightedMean
    ) -> tuple[Tensor, Diagnostics]:
        """Return the weighted mean of matched models; the largest client sets the unit order."""
        layers = chain_of(uploads.layout)
        by_size = sorted(range(len(uploads)), key=lambda row: -float(uploads.samples[row]))
        stack = matched(uploads.stack, layers, by_size, self.sweeps)
        renumbered = (stack != uploads.stack).any(1).double()
        vector, diagnostics = mean(replace(uploads, stack=stack))
        if self.head == "classes":
            _average_by_class(vector, stack, layers[-1], uploads, diagnostics["weights"])
        return vector, {**diagnostics, "renumbered": renumbered}


def _average_by_class(
    vector: Tensor, stack: Tensor, head: Layer, uploads: Uploads, weights: Tensor
) -> None:
    """Average each class's output by its samples; a class without samples by the weights."""
    counts = uploads.label_counts
    if counts is None or counts.shape[1] != head.units:
        raise UnskewError(
            f"method: fedma's head=classes needs one output per class, the network has "
            f"{head.units}; use head=samples"
        )
    totals = counts.double().sum(0)
    shares = torch.where(totals > 0, counts / totals.clamp(min=1), weights[:, None])
    for entry in (head.weight, *head.vectors):
        rows = stack[:, entry.slice].view(len(stack), head.units, -1)
        vector[entry.slice] = torch.einsum("kc,kcf->cf", shares.to(rows), rows).flatten()


def _random_vector(network: FunctionalModel) -> Tensor:
    """Return random parameters and positive statistics, different for every unit."""
    noise = torch_generator(0, "a network to try")
    vector = torch.rand(network.layout.size, generator=noise) + 0.5
    for entry in network.layout.parameters:
        scale = (entry.size / max(1, entry.shape[0])) ** 0.5 if entry.shape else 1.0
        vector[entry.slice] = torch.randn(entry.size, generator=noise) / max(1.0, scale)
    vector[network.layout.counters] = 0
    return vector


@torch.no_grad()
def _output(network: FunctionalModel, vector: Tensor, samples: Tensor) -> Tensor:
    device = next(network.module.parameters()).device
    vector, trainable = vector.to(device), network.layout.trainable
    network.module.eval()
    inputs = network.inputs(samples.to(device))
    output = network(vector[:trainable], network.buffers_of(vector[trainable:]), inputs)
    network.module.train()
    return output
