"""FedBN: BatchNorm layers stay on their clients.

Li, Jiang, Zhang, Kamp and Dou, "FedBN: Federated Learning on Non-IID Features via Local Batch
Normalization", 2021. For a network without BatchNorm it is FedAvg.
"""

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic.dataclasses import dataclass
from torch import Tensor

from unskew.composition.parts import Personalization
from unskew.composition.values import About
from unskew.models.layout import Entry, Layout, TensorKind
from unskew.utils.specs import OPTIONS


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class FedBN(Personalization):
    """FedAvg of everything but BatchNorm's scales, shifts, statistics and counters."""

    norms: Literal["batch", "all"] = "batch"
    """Which layers stay on clients: BatchNorm layers ("batch"), or all norm layers ("all")."""
    fallback: Literal["average", "initial"] = "average"
    """What the global model and new clients use: the "average" of the clients' norm layers, which
    are then sent to the server, or the "initial" values, and then they are not sent."""

    about: ClassVar[About] = About(
        title="Local BatchNorm layers",
        paper="Li et al. 2021",
        kind="personal",
        level="personal",
        down="all but BatchNorm, BatchNorm (once)",
        only_with_norms=True,
    )
    grid: ClassVar[Mapping[str, tuple[float, ...]]] = {}

    def stays(self, layout: Layout) -> Tensor:
        """Keep the norm layers on the client."""
        return layout.mask_where(self._stays)

    def shares_on_upload(self, layout: Layout) -> Tensor | None:
        """Let the server average the norm layers for the global model and new clients."""
        return None if self.fallback == "initial" else self.stays(layout)

    def _stays(self, entry: Entry) -> bool:
        other_norm = self.norms == "all" and entry.kind in (
            TensorKind.NORM_AFFINE,
            TensorKind.NORM_STATISTIC,
        )
        return entry.batch_norm or other_norm
