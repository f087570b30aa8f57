"""The beta-VAE that maps the samples of all clients to a common latent space.

Encoder and decoder are perceptrons with mirrored widths. The decoder ends with a sigmoid and its
target is the standardised input, as in the thesis of the latent method: values outside [0, 1]
cannot be reached, which adds about the same to every client's loss.
"""

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, Annotated, ClassVar

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from unskew.errors import UnskewError
from unskew.models.goals import Goal, SampleMetrics
from unskew.models.mlp import Widths
from unskew.models.spec import Aim, ModelSpec, Takes
from unskew.utils.specs import OPTIONS

if TYPE_CHECKING:
    from unskew.data.federation import Federation
    from unskew.models.functional import Batch, Buffers, FunctionalModel


class Reconstruction(Goal):
    """Squared error summed over features, plus beta times the divergence from N(0, I)."""

    def __init__(self, latent: int, beta: float) -> None:
        self.noise_per_sample = latent
        self.beta = beta

    def check(self, federation: "Federation") -> None:
        """Raise if the samples are text: token ids are names, and have no distance."""
        if federation.vocabulary is not None:
            raise UnskewError("a VAE reconstructs numbers; this data set is text")

    def losses(
        self, network: "FunctionalModel", weights: Tensor, buffers: "Buffers", batch: "Batch"
    ) -> Tensor:
        """Return each sample's loss, with one random draw of its code."""
        error, divergence = _terms(network, weights, buffers, batch)
        return error + self.beta * divergence

    def metrics(
        self, network: "FunctionalModel", weights: Tensor, buffers: "Buffers", batch: "Batch"
    ) -> SampleMetrics:
        """Return both terms, their sum (``loss``, with beta 1) and the training loss.

        The thesis trains with beta 10 and reports test losses with beta 1, hence both.
        """
        error, divergence = (term.double() for term in _terms(network, weights, buffers, batch))
        return {
            "loss": error + divergence,
            "loss_at_beta": error + self.beta * divergence,
            "reconstruction": error,
            "kl": divergence,
        }


class VAE(nn.Module):
    """An encoder to a normal distribution of codes, and a decoder back to the samples."""

    def __init__(
        self, features: int, widths: Sequence[int], latent: int, beta: float, mean: float, sd: float
    ) -> None:
        super().__init__()
        self.mean, self.sd = mean, sd
        self.goal = Reconstruction(latent, beta)
        self.encoder = _perceptron(features, *widths, 2 * latent)
        self.decoder = _perceptron(latent, *reversed(widths), features).append(nn.Sigmoid())

    def forward(self, x: Tensor) -> Tensor:
        """Return the flattened samples, reconstructed from the means of their codes."""
        return self.decode(self.encode(x)[0])

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the means and log variances of the samples' codes.

        The last layer outputs the logarithm of the standard deviation, as in the thesis.
        """
        mean, log_sd = self.encoder(self._standardised(x)).chunk(2, -1)
        return mean, 2 * log_sd

    def decode(self, codes: Tensor) -> Tensor:
        """Return the flattened, standardised samples that the codes decode to."""
        samples: Tensor = self.decoder(codes)
        return samples

    def terms(self, x: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return each sample's squared error, and the divergence of its code from N(0, I)."""
        mean, log_variance = self.encode(x)
        decoded = self.decode(draw_codes(mean, log_variance, noise))
        error = (decoded - self._standardised(x)).square().sum(-1)
        parts = mean.square() + log_variance.exp() - log_variance - 1
        return error, parts.sum(-1) / 2

    def _standardised(self, x: Tensor) -> Tensor:
        return (x.flatten(1) - self.mean) / self.sd


def draw_codes(mean: Tensor, log_variance: Tensor, noise: Tensor) -> Tensor:
    """Map numbers strictly between 0 and 1 to draws from the codes' normal distributions."""
    normal: Tensor = torch.special.ndtri(noise)
    return mean + (log_variance / 2).exp() * normal


@dataclass(frozen=True, config=OPTIONS)
class VAESpec(ModelSpec):
    """An encoder and a decoder with mirrored widths, on standardised samples."""

    summary: ClassVar[str] = "beta-VAE: codes and reconstructions, not a classifier"
    takes: ClassVar[Takes] = "any"
    aim: ClassVar[Aim] = "reconstruction"

    hidden: Widths = "512-256"
    """Widths of the encoder's layers; the decoder's are the same in reverse."""
    latent: Annotated[int, Field(ge=1)] = 2
    """Dimension of the latent space."""
    beta: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 10.0
    """Weight of the codes' divergence from N(0, I) in the training loss."""
    mean: Annotated[float, Field(allow_inf_nan=False)] = 0.0
    """Subtracted from samples; the thesis uses 0.1307 for MNIST and 0.2860 for Fashion-MNIST."""
    sd: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    """Divisor of the samples after that; the thesis uses 0.3081 and 0.3530."""

    def build(self, shape: tuple[int, ...], classes: int, vocabulary: int | None = None) -> VAE:
        """Build the network; it reconstructs the features, whatever the classes are."""
        del classes, vocabulary
        widths = [int(width) for width in self.hidden.split("-")]
        return VAE(prod(shape), widths, self.latent, self.beta, self.mean, self.sd)


def _terms(
    network: "FunctionalModel", weights: Tensor, buffers: "Buffers", batch: "Batch"
) -> tuple[Tensor, Tensor]:
    if batch.noise is None:
        raise UnskewError(
            "batch.noise: the loss of a VAE draws codes; give goal.noise_per_sample per sample"
        )
    error, divergence = network.run(weights, buffers, batch.x, batch.noise, call="terms")
    return error, divergence


def _perceptron(*widths: int) -> nn.Sequential:
    """Return linear layers of these widths, with ReLU between them."""
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])
