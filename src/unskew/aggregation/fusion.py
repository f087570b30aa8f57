"""FedFusion's client weighting, from an allocation of clients to virtual components.

Duan et al., "Federated Learning with Data-Agnostic Distribution Fusion", CVPR 2023.
"""

from collections.abc import Callable
from dataclasses import replace
from math import ceil
from typing import Annotated, Any, Literal, Self

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from unskew.aggregation.fusion_allocation import (
    Allocation,
    B,
    C,
    Normalise,
    Pi,
    Reading,
    Rho,
    component_weights,
    expected_allocation,
    fusion_weights,
    raw_weights,
    sample_allocation,
)
from unskew.aggregation.fusion_fit import fit
from unskew.aggregation.fusion_vae import Codes, FusionVAE
from unskew.aggregation.norm_statistics import norm_statistics, project, standardise
from unskew.aggregation.uploads import Uploads
from unskew.aggregation.weighting import ClientWeighting, Diagnostics
from unskew.errors import UnskewError
from unskew.utils.rng import torch_generator
from unskew.utils.specs import OPTIONS, create

Count = Annotated[int, Field(ge=1)]


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class Fusion:
    """The options of FedFusion and its steps; each step is a pure function of its arguments.

    A server that keeps an autoencoder between rounds calls the steps itself; :func:`fusion` is
    the client weighting that fits a new autoencoder to the uploads.
    """

    components: Count | None = None
    """Number of virtual components; None means a third of all clients, at most 15."""
    latent: Count = 16
    """Dimension of a component's latent code."""
    wide: Count = 512
    """Width of the encoder's first hidden layer, and of the decoder's last."""
    narrow: Count = 256
    """Width of the encoder's second hidden layer, and of the decoder's first."""
    features: Count = 256
    """Longer vectors of statistics are projected to this length."""
    temperature: Annotated[float, Field(gt=0)] = 1.0
    """Temperature of the relaxed allocation during fitting; lower is steeper."""
    steps: Annotated[int, Field(ge=0)] = 30
    """Adam steps per fit."""
    kl: Annotated[float, Field(ge=0)] = 1e-3
    """Weight of the divergences from the priors in the autoencoder's loss."""
    codes: Codes = "component"
    """One learned code per "component", or one per component and "client" from the encoder."""
    pi: Pi = "softmax"
    """Weight of a component: "softmax" of its mean share, as in the paper, or the share of all
    clients in it, weighted by their prior ("mass")."""
    normalise: Normalise = "component"
    """Clients of a component share its weight, so that all weights sum to one ("component");
    "literal" uses the paper's weights, which do not sum to one."""
    rho: Rho = "partial"
    """Probability of a component: the product of the sticks up to it ("partial"); "literal" is the
    paper's Eq. 3, the product of all sticks, which is the same for every component."""
    c: C = "bernoulli"
    """How components are sampled: with probability rho ("bernoulli"); "literal" is the paper's
    Eq. 6, whose two terms differ by their noise only, so that it is a fair coin."""
    b: B = "softmax"
    """Proportions over components: "softmax" of normal scores; "literal" uses the scores, as the
    paper prints, which may be negative. It needs normalise=literal and pi=softmax."""
    prior: Literal["uniform", "samples"] = "uniform"
    """Weights of clients within a component: "uniform", or by their "samples"."""
    deterministic: bool = True
    """Allocate by posterior means; False samples from the posterior, as in the paper."""
    stats: Callable[[Uploads], Tensor] | None = None
    """A custom description of the clients: maps uploads to clients x features."""
    seed: int = 0
    """Seed of the autoencoder's initial parameters, its noise and the random projection."""

    def __post_init__(self) -> None:
        if self.b == "literal" and (self.normalise, self.pi) != ("literal", "softmax"):
            raise UnskewError(
                "fedfusion: b=literal may be negative, so it needs normalise=literal and "
                f"pi=softmax (got normalise={self.normalise}, pi={self.pi})"
            )

    def sized_for(self, clients: int) -> Self:
        """Return a copy with the number of components resolved for this number of clients."""
        return replace(self, components=self.components or min(15, ceil(clients / 3)))

    def describe(self, uploads: Uploads) -> Tensor:
        """Return the clients' statistics, standardised and projected for the autoencoder."""
        statistics = _checked((self.stats or norm_statistics)(uploads).to("cpu"), len(uploads))
        order = _content_order(statistics)
        described = project(standardise(statistics[order]), self.features, self.seed)
        return described.to(torch.float32)[order.argsort()]

    def refit(self, described: Tensor, parameters: Tensor | None = None, round_: int = 0) -> Tensor:
        """Fit the autoencoder, starting from the parameters of an earlier fit if given."""
        noise = torch_generator(self.seed, "fusion fit", round_)
        vae = self._vae(described)
        start = vae.initial(noise) if parameters is None else parameters
        ordered = described[_content_order(described)]
        options = {"temperature": self.temperature, "kl": self.kl}
        return fit(vae, start, ordered, noise, steps=self.steps, reading=self._reading, **options)[
            0
        ]

    def allocate(self, described: Tensor, parameters: Tensor, round_: int = 0) -> Allocation:
        """Allocate the clients to the components of a fitted autoencoder."""
        order = _content_order(described)
        posterior = self._vae(described).encode(parameters, described[order])
        if self.deterministic:
            return expected_allocation(posterior, self._reading).rows(order.argsort())
        noise = torch_generator(self.seed, "fusion allocation", round_)
        sampled = sample_allocation(posterior, noise, self.temperature, self._reading)
        return sampled.rows(order.argsort())

    def explain(self, uploads: Uploads, allocation: Allocation) -> Diagnostics:
        """Return the weights and the values they are derived from."""
        weights = fusion_weights(allocation, self._samples(uploads), self.pi, self.normalise)
        return {"weights": weights, **self.derive(uploads, allocation)[1]}

    def derive(self, uploads: Uploads, allocation: Allocation) -> tuple[Tensor, Diagnostics]:
        """Return the weights before normalisation, and the values they are derived from."""
        samples = self._samples(uploads)
        return raw_weights(allocation, samples, self.pi, self.normalise), {
            "allocation": allocation.shares,
            "cluster": allocation.components,
            "pi": component_weights(allocation, samples, self.pi),
        }

    @property
    def _reading(self) -> Reading:
        return Reading(self.rho, self.c, self.b)

    def _samples(self, uploads: Uploads) -> Tensor:
        return uploads.samples if self.prior == "samples" else torch.ones_like(uploads.samples)

    def _vae(self, described: Tensor) -> FusionVAE:
        assert self.components is not None
        features, widths = described.shape[1], (self.wide, self.narrow)
        return FusionVAE(features, self.components, self.latent, *widths, self.codes)


def fusion(components: int | None = None, **options: Any) -> ClientWeighting:
    """Weight clients by an autoencoder that is fitted to these uploads.

    ``components`` is the number of virtual components, by default a third of all clients and at
    most 15. The other options are the fields of :class:`Fusion`. Client weights always sum to one,
    so with ``normalise="literal"`` only their proportions are those of the paper, and
    ``b="literal"``, which may be negative, is possible with the method ``fedfusion`` only.
    """
    rule = create(Fusion, {"components": components, **options}, "fusion")
    if rule.b == "literal":
        raise UnskewError("fusion: b=literal may be negative; use it with the method fedfusion")

    def derive(uploads: Uploads) -> tuple[Tensor, Diagnostics]:
        sized = rule.sized_for(uploads.num_clients_total)
        described = sized.describe(uploads)
        return sized.derive(uploads, sized.allocate(described, sized.refit(described)))

    return ClientWeighting("fusion", derive)


def _checked(statistics: Tensor, clients: int) -> Tensor:
    if statistics.ndim != 2 or len(statistics) != clients or statistics.shape[1] == 0:
        shape = tuple(statistics.shape)
        raise UnskewError(f"stats must return {clients} rows, one per client (got shape {shape})")
    if not bool(torch.isfinite(statistics).all()):
        raise UnskewError("stats must return finite numbers (got inf or nan)")
    return statistics


def _content_order(rows: Tensor) -> Tensor:
    """Return the order of rows by content, so that sums and noise ignore the client order."""
    keys = [row.numpy().tobytes() for row in rows]
    return torch.tensor(sorted(range(len(keys)), key=keys.__getitem__))
