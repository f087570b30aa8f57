"""The network of FedFusion's autoencoder: from clients' statistics to posteriors, and back.

The encoder turns the statistics of a client into the parameters of its posteriors: sticks (which
virtual components it is in) and scores (in which proportion). Each component has a code; the
decoder turns a client's mixture of codes back into its statistics. All parameters are in one flat
vector, so that the server can keep them between rounds, and all noise comes from a generator that
is passed in.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from torch import Generator, Tensor
from torch.nn.functional import leaky_relu, linear, softplus

PRIOR_STICK = 10.0
"""The prior of a stick is Beta(10, 1), which equals Kumaraswamy(10, 1); its mean is 10/11."""

Codes = Literal["component", "client"]
"""Whether there is one code per component, or one per component and client."""

_KAPPA_OFFSET = math.log(math.e - 1)  # softplus of it is 1, the kappa of the prior
_LOG_SD_OF_CODES = -2.0


@dataclass(frozen=True, eq=False)
class Posterior:
    """The encoder's output: clients x components, and for codes x latent dimension."""

    zeta: Tensor
    kappa: Tensor
    score: Tensor
    log_score_sd: Tensor
    code: Tensor
    log_code_sd: Tensor


@dataclass(frozen=True)
class FusionVAE:
    """The shape of the autoencoder; its parameters are passed to each function as one vector."""

    features: int
    components: int
    latent: int = 16
    wide: int = 512
    narrow: int = 256
    codes: Codes = "component"

    @cached_property
    def shapes(self) -> tuple[tuple[int, int], ...]:
        """Rows and columns of the six layers, the encoder's layers first."""
        heads = 4 * self.components + (2 * self._codes if self.codes == "client" else 0)
        encoder = (self.features, self.wide, self.narrow, heads)
        decoder = (self.latent, self.narrow, self.wide, self.features)
        return tuple(
            (after, before)
            for widths in (encoder, decoder)
            for before, after in itertools.pairwise(widths)
        )

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """The sizes of the tensors in the vector: weights and biases alternately, then codes."""
        layers = [size for rows, columns in self.shapes for size in (rows * columns, rows)]
        return tuple(layers) + ((2 * self._codes,) if self.codes == "component" else ())

    @property
    def _codes(self) -> int:
        return self.components * self.latent

    def initial(self, noise: Generator) -> Tensor:
        """Sample layers uniformly within 1 / sqrt(inputs), and codes from a normal distribution."""
        pieces = [
            (2 * torch.rand(rows * columns + rows, generator=noise) - 1) / math.sqrt(columns)
            for rows, columns in self.shapes
        ]
        if self.codes == "component":
            pieces.append(torch.randn(self._codes, generator=noise))
            pieces.append(torch.full((self._codes,), _LOG_SD_OF_CODES))
        return torch.cat(pieces)

    def encode(self, parameters: Tensor, statistics: Tensor) -> Posterior:
        """Return each client's posterior; outputs of zero give the prior of sticks and scores."""
        pieces = self._pieces(parameters)
        heads = _perceptron(statistics, self._layers(pieces)[:3])
        m, clients = self.components, len(statistics)
        sticks, scores, client_codes = heads[:, : 2 * m], heads[:, 2 * m : 4 * m], heads[:, 4 * m :]
        codes = client_codes if self.codes == "client" else pieces[-1].expand(clients, -1)
        code, log_code_sd = codes.view(clients, 2, m, self.latent).unbind(1)
        return Posterior(
            zeta=softplus(sticks[:, :m] + PRIOR_STICK).clamp(min=0.01),
            kappa=softplus(sticks[:, m:] + _KAPPA_OFFSET).clamp(min=0.01),
            score=scores[:, :m],
            log_score_sd=scores[:, m:].clamp(-8, 8),
            code=code,
            log_code_sd=log_code_sd.clamp(-8, 8),
        )

    def decode(self, parameters: Tensor, mixed: Tensor) -> Tensor:
        """Return the statistics of each client from its mixture of codes."""
        return _perceptron(mixed, self._layers(self._pieces(parameters))[3:])

    def _pieces(self, parameters: Tensor) -> Sequence[Tensor]:
        return torch.split_with_sizes(
            parameters, self.sizes
        )  # the gradient is a single concatenation

    def _layers(self, pieces: Sequence[Tensor]) -> list[tuple[Tensor, Tensor]]:
        ends = 2 * len(self.shapes)
        return [
            (weight.view(shape), bias)
            for weight, bias, shape in zip(
                pieces[0:ends:2], pieces[1:ends:2], self.shapes, strict=True
            )
        ]


def _perceptron(x: Tensor, layers: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    *inner, (weight, bias) = layers
    for inner_weight, inner_bias in inner:
        x = leaky_relu(linear(x, inner_weight, inner_bias))
    return linear(x, weight, bias)
