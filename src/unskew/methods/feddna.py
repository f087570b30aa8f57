"""FedDNA: norm statistics are pooled as moments, in the manner of FedDNA.

Duan et al., "FedDNA: Federated Learning with Decoupled Normalization-Layer Aggregation for Non-IID
Data", 2021, aggregates running statistics separately from parameters. The variance of a mixture is
not the mean of the variances: it also includes the variance of the clients' means.
"""

from dataclasses import replace
from typing import ClassVar

import torch
from pydantic.dataclasses import dataclass

from unskew.aggregation.uploads import Uploads
from unskew.aggregation.weighting import Diagnostics
from unskew.composition.parts import Aspect, ServerSide
from unskew.composition.values import About, Server
from unskew.errors import UnskewError
from unskew.models.layout import Entry, Layout, TensorKind
from unskew.utils.specs import OPTIONS


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class FedDNA(ServerSide):
    """FedAvg whose running variances are those of the pooled samples of all clients."""

    about: ClassVar[About] = About(
        title="Norm statistics pooled as moments",
        paper="after Duan et al. 2021",
        kind="server",
        only_with_norms=True,
    )

    replaces = frozenset({Aspect.STATISTICS})

    def conclude(
        self, before: Server, after: Server, uploads: Uploads, diagnostics: Diagnostics
    ) -> tuple[Server, Diagnostics]:
        """Replace the mean variances by the variances of the mixture."""
        pairs = moments_of(uploads.layout)
        if not pairs:
            return after, {}
        if "weights" not in diagnostics:
            raise UnskewError(
                "method: feddna pools statistics by the clients' weights, and this rule has none; "
                "remove one of them"
            )
        vector, weights, between = after.vector.clone(), diagnostics["weights"].double(), []
        for mean, variance in pairs:
            means = uploads.stack[:, mean.slice].double()
            deviations = (means - weights @ means).square()
            variances = uploads.stack[:, variance.slice].double() + deviations
            vector[variance.slice] = (weights @ variances).to(vector)
            between.append((weights @ deviations).mean())
        return replace(after, vector=vector), {"variance between clients": torch.stack(between)}


def moments_of(layout: Layout) -> list[tuple[Entry, Entry]]:
    """Return the running mean and variance of each normalisation layer."""
    statistics = {entry.name: entry for entry in layout if entry.kind is TensorKind.NORM_STATISTIC}
    means = [name for name in statistics if name.endswith("running_mean")]
    return [(statistics[name], statistics[name.removesuffix("mean") + "var"]) for name in means]
