"""Norm statistics pooled as moments, in the manner of FedDNA.

Duan et al., "FedDNA: Federated Learning with Decoupled Normalization-Layer Aggregation for Non-IID
Data", 2021, treats running statistics apart from parameters. The variance of a mixture is not the
mean of the variances: clients whose means differ add to it.
"""

from dataclasses import replace
from typing import Any, ClassVar

import torch
from pydantic.dataclasses import dataclass

from unskew.aggregation.uploads import Uploads
from unskew.errors import UnskewError
from unskew.methods.common.base import About, Method, Server
from unskew.models.layout import Entry, Kind, Layout
from unskew.utils.specs import OPTIONS


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class FedDNA(Method):
    """FedAvg whose running variances are those of all clients' samples together."""

    about: ClassVar[About] = About(
        title="Norm statistics pooled as moments",
        paper="after Duan et al. 2021",
        kind="server",
        only_with_norms=True,
    )

    def aggregate(self, server: Server, uploads: Uploads) -> tuple[Server, dict[str, Any]]:
        """Combine as ever, then put the variance of the mixture in place of the mean variance."""
        updated, told = super().aggregate(server, uploads)
        pairs = moments_of(uploads.layout)
        if not pairs:
            return updated, told
        if "weights" not in told:
            raise UnskewError(
                "method: feddna pools statistics by the clients' weights, and this rule gives "
                "none; leave one of them away"
            )
        vector, weights, between = updated.vector.clone(), told["weights"].double(), []
        for mean, variance in pairs:
            means = uploads.stack[:, mean.place].double()
            gaps = (means - weights @ means).square()
            spread = uploads.stack[:, variance.place].double() + gaps
            vector[variance.place] = (weights @ spread).to(vector)
            between.append((weights @ gaps).mean())
        told = {**told, "variance between clients": torch.stack(between)}
        return replace(updated, vector=vector), told


def moments_of(layout: Layout) -> list[tuple[Entry, Entry]]:
    """Return the running mean and variance of each normalisation layer."""
    known = {entry.name: entry for entry in layout if entry.kind is Kind.NORM_STATISTIC}
    means = [name for name in known if name.endswith("running_mean")]
    return [(known[name], known[name.removesuffix("mean") + "var"]) for name in means]
