"""FedFusion: clients are allocated to virtual components, which get roughly equal weight.

Duan et al., "Federated Learning with Data-Agnostic Distribution Fusion", CVPR 2023. The server
describes each client by its model's normalisation statistics, and an autoencoder that it keeps
between rounds allocates the clients; docs/fedfusion.md has the equations and design choices.
"""

from dataclasses import replace
from typing import Annotated, Any, ClassVar, Self

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from unskew.aggregation.combine import weighted_sum
from unskew.aggregation.fusion import Fusion
from unskew.aggregation.rule import Rule
from unskew.aggregation.uploads import Uploads
from unskew.aggregation.weighting import ClientWeighting, Diagnostics
from unskew.errors import UnskewError
from unskew.methods.common.base import About, Method, Server
from unskew.utils.specs import OPTIONS


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class FedFusion(Fusion, Method):
    """The weighting ``fusion``, with an autoencoder that is kept between rounds."""

    vae_every: Annotated[int, Field(ge=1)] = 10
    """Number of rounds between refits of the autoencoder."""

    about: ClassVar[About] = About(
        title="Weights from virtual components",
        paper="Duan et al. 2023",
        kind="server",
        needs_individual_updates=True,
    )

    def aggregate(self, server: Server, uploads: Uploads) -> tuple[Server, dict[str, Any]]:
        """Refit the autoencoder if it is due, then aggregate.

        The number of components is fixed in the first round.
        """
        slots = server.slots
        round_ = int(slots["round"]) if "round" in slots else 0
        rule = self._sized(server, uploads)
        parameters = slots.get("vae")
        if parameters is None or round_ % self.vae_every == 0:
            parameters = rule.refit(rule.describe(uploads), parameters, round_)
        kept = {
            **slots,
            "round": torch.tensor(round_ + 1),
            "components": torch.tensor(rule.components),
            "vae": parameters,
        }
        return super().aggregate(replace(server, slots=kept), uploads)

    def weightings(self, server: Server) -> tuple[ClientWeighting, ...]:
        """Add the weights of the allocation."""
        return (
            *super().weightings(server),
            ClientWeighting("fusion", lambda up: self._derive(server, up)),
        )

    def rule(self, server: Server) -> Rule:
        """Return the weighted mean, or the weighted sum with the paper's literal weights."""
        if self.normalise == "component":
            return super().rule(server)
        if len(self.weightings(server)) > 1:
            raise UnskewError(
                "fedfusion: normalise=literal cannot be multiplied with other weights; remove the "
                "other weighting, or use normalise=component"
            )

        def apply(uploads: Uploads) -> tuple[Tensor, Diagnostics]:
            raw, diagnostics = self._derive(server, uploads)
            vector = weighted_sum(uploads.stack, raw, uploads.layout)
            return vector, {"weights": raw, **diagnostics}

        return Rule("fusion, literal", apply)

    def _derive(self, server: Server, uploads: Uploads) -> tuple[Tensor, Diagnostics]:
        rule = self._sized(server, uploads)
        round_ = int(server.slots["round"]) - 1
        allocation = rule.allocate(rule.describe(uploads), server.slots["vae"], round_)
        return rule.derive(uploads, allocation)

    def _sized(self, server: Server, uploads: Uploads) -> Self:
        """Return the rule with its number of components resolved."""
        components = server.slots.get("components")
        rule = self if components is None else replace(self, components=int(components))
        return rule.sized_for(uploads.num_clients_total)
