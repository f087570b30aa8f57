"""FedBN: BatchNorm layers stay with their clients.

Li, Jiang, Zhang, Kamp and Dou, "FedBN: Federated Learning on Non-IID Features via Local Batch
Normalization", 2021. Without BatchNorm in the network it is FedAvg.
"""

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic.dataclasses import dataclass
from torch import Tensor

from unskew.methods.common.base import About, Method
from unskew.models.layout import Entry, Kind, Layout
from unskew.models.masks import joined, without
from unskew.utils.specs import OPTIONS


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class FedBN(Method):
    """FedAvg of everything but BatchNorm's scales, shifts, statistics and counters."""

    norms: Literal["batch", "all"] = "batch"
    """Which layers stay with clients: those of BatchNorm ("batch"), or of any norm ("all")."""
    fallback: Literal["average", "initial"] = "average"
    """What the global model and newcomers use: the "average" of the clients' layers, who send
    theirs for it, or the "initial" values, and then they send none."""

    about: ClassVar[About] = About(
        title="Local BatchNorm layers",
        paper="Li et al. 2021",
        kind="personal",
        level="personal",
        down="all but BatchNorm, BatchNorm (once)",
        only_with_norms=True,
    )
    grid: ClassVar[Mapping[str, tuple[float, ...]]] = {}

    def travels(self, layout: Layout) -> Tensor | None:
        """Take the norm layers out."""
        return without(super().travels(layout), layout.mask_where(self._stays))

    def shares_on_upload(self, layout: Layout) -> Tensor | None:
        """Let the server average the norm layers for those who have none."""
        lent = super().shares_on_upload(layout)
        return lent if self.fallback == "initial" else joined(lent, layout.mask_where(self._stays))

    def _stays(self, entry: Entry) -> bool:
        other = self.norms == "all" and entry.kind in (Kind.NORM_AFFINE, Kind.NORM_STATISTIC)
        return entry.batch_norm or other
