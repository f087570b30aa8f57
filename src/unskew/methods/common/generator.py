"""The generator of FedGen: maps a class and noise to features that clients' heads assign to it.

Its parameters are one flat vector, on the server and in messages. It is trained on the server, from
the clients' heads alone.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unskew.models.functional import FunctionalModel
from unskew.models.layout import flatten
from unskew.utils.rng import torch_generator, torch_seeded


@dataclass(frozen=True)
class Shape:
    """The layer widths of a generator."""

    classes: int
    noise: int
    hidden: int
    features: int


@dataclass(frozen=True)
class GeneratorTraining:
    """How the server trains the generator per round."""

    steps: int
    batch: int
    lr: float
    diversity: float


class Generator:
    """A network with one hidden layer over the one-hot class and the noise."""

    def __init__(self, shape: Shape, seed: int = 0) -> None:
        self.shape = shape
        with torch_seeded(seed, "generator"):
            module = nn.Sequential(
                nn.Linear(shape.classes + shape.noise, shape.hidden),
                nn.LayerNorm(shape.hidden),
                nn.ReLU(),
                nn.Linear(shape.hidden, shape.features),
            )
        self._network = FunctionalModel(module)

    @staticmethod
    def initial_parameters(shape: Shape, seed: int) -> Tensor:
        """Return the parameters of an untrained generator."""
        network = Generator(shape, seed)._network
        return flatten(network.module, network.layout)

    def __call__(self, parameters: Tensor, y: Tensor, noise: Tensor) -> Tensor:
        """Return features for classes ``y``."""
        return self._network(parameters, {}, torch.cat([self._one_hot(y), noise], -1))

    def fit(
        self,
        parameters: Tensor,
        heads: "Heads",
        counts: Tensor,
        training: GeneratorTraining,
        seed: int,
    ) -> tuple[Tensor, float]:
        """Train against the clients' heads; return the parameters and the last step's loss.

        ``counts`` (clients x classes) weights the heads per class by the number of samples the
        client has of it; classes without samples are not drawn.
        """
        shares = (counts / counts.sum(0).clamp(min=1)).to(parameters)
        present = counts.sum(0) > 0
        draw = torch_generator(seed, "generator steps")
        leaf = parameters.clone().requires_grad_()
        optimizer = torch.optim.Adam([leaf], lr=training.lr)
        value = 0.0
        for _ in range(training.steps):
            y = torch.multinomial(present.float(), training.batch, replacement=True, generator=draw)
            noise = torch.randn(training.batch, self.shape.noise, generator=draw)
            features = self(leaf, y, noise)
            loss = heads.cross_entropy(features, y, shares)
            loss = loss + training.diversity * diversity_loss(features, noise)
            (leaf.grad,) = torch.autograd.grad(loss, leaf)
            optimizer.step()
            value = loss.item()
        return leaf.detach(), value

    def _one_hot(self, y: Tensor) -> Tensor:
        return F.one_hot(y, self.shape.classes).to(torch.float32)


@dataclass(frozen=True, eq=False)
class Heads:
    """The clients' linear heads: clients x classes x features, and clients x classes."""

    weight: Tensor
    bias: Tensor | None

    def cross_entropy(self, features: Tensor, y: Tensor, shares: Tensor) -> Tensor:
        """Return the heads' cross-entropy, each weighted by its share of a sample's class."""
        logits = torch.einsum("nf,kcf->knc", features, self.weight)
        if self.bias is not None:
            logits = logits + self.bias[:, None]
        losses = -F.log_softmax(logits, -1)[:, torch.arange(len(y)), y]
        return (shares[:, y] * losses).sum(0).mean()


def diversity_loss(features: Tensor, noise: Tensor) -> Tensor:
    """Return the diversity loss: near 1 if different noise gives similar features, else smaller.

    It is ``exp(-mean over pairs of |f_i - f_j|_1 |e_i - e_j|_2^2)``. Both distances are means over
    coordinates, so that neither width matters.
    """
    feature_distances = torch.cdist(features, features, p=1) / features.shape[1]
    noise_distances = torch.cdist(noise, noise).square() / noise.shape[1]
    return (-(feature_distances * noise_distances).mean()).exp()
