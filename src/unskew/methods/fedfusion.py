"""FedFusion: clients are allocated to virtual components, which get roughly equal weight.

Duan et al., "Federated Learning with Data-Agnostic Distribution Fusion", CVPR 2023. The server
describes each client by its model's normalisation statistics, and an autoencoder that it keeps
between rounds allocates the clients; docs/fedfusion.md has the equations and design choices.
"""

from dataclasses import replace
from typing import Annotated, ClassVar, Self

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from unskew.aggregation.combine import weighted_sum
from unskew.aggregation.fusion import Fusion
from unskew.aggregation.uploads import Uploads
from unskew.aggregation.weighting import ClientWeighting, Diagnostics
from unskew.composition.parts import Aspect, ServerSide, WeightedMean
from unskew.composition.values import About, Server, Tensors
from unskew.utils.specs import OPTIONS


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class FedFusion(Fusion, ServerSide):
    """The weighting ``fusion``, with an autoencoder that is kept between rounds."""

    vae_every: Annotated[int, Field(ge=1)] = 10
    """Number of rounds between refits of the autoencoder."""

    about: ClassVar[About] = About(
        title="Weights from virtual components",
        paper="Duan et al. 2023",
        kind="server",
        needs_individual_updates=True,
    )

    @property
    def adds(self) -> frozenset[Aspect]:
        """A factor of the weights, unless they are the paper's literal ones."""
        return frozenset({Aspect.WEIGHTS} if self.normalise == "component" else ())

    @property
    def replaces(self) -> frozenset[Aspect]:
        """The weighted mean, if weights are the paper's literal ones, which do not sum to one."""
        literal = {Aspect.WEIGHTS, Aspect.COMBINATION}
        return frozenset(() if self.normalise == "component" else literal)

    def receive(self, server: Server, uploads: Uploads) -> Tensors:
        """Refit the autoencoder if it is due; the first round sets the number of components."""
        state = server.state
        round_ = int(state["round"]) if "round" in state else 0
        rule = self._sized(server, uploads)
        parameters = state.get("vae")
        if parameters is None or round_ % self.vae_every == 0:
            parameters = rule.refit(rule.describe(uploads), parameters, round_)
        return {
            "round": torch.tensor(round_ + 1),
            "components": torch.tensor(rule.components),
            "vae": parameters,
        }

    def client_weights(self, server: Server) -> ClientWeighting:
        """Weight clients by the allocation."""
        return ClientWeighting("fusion", lambda uploads: self._derive(server, uploads))

    def combine(
        self, server: Server, uploads: Uploads, mean: WeightedMean
    ) -> tuple[Tensor, Diagnostics]:
        """Return the weighted sum with the paper's literal weights."""
        raw, diagnostics = self._derive(server, uploads)
        vector = weighted_sum(uploads.stack, raw, uploads.layout)
        return vector, {"weights": raw, **diagnostics}

    def _derive(self, server: Server, uploads: Uploads) -> tuple[Tensor, Diagnostics]:
        rule = self._sized(server, uploads)
        round_ = int(server.state["round"]) - 1
        allocation = rule.allocate(rule.describe(uploads), server.state["vae"], round_)
        return rule.derive(uploads, allocation)

    def _sized(self, server: Server, uploads: Uploads) -> Self:
        """Return the rule with its number of components resolved."""
        components = server.state.get("components")
        rule = self if components is None else replace(self, components=int(components))
        return rule.sized_for(uploads.num_clients_total)
