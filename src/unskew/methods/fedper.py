"""FedPer: a shared body, and a personal head per client.

Arivazhagan, Aggarwal, Singh and Choudhary, "Federated Learning with Personalization Layers", 2019.
Body and head are trained together.
"""

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic.dataclasses import dataclass
from torch import Tensor

from unskew.methods.common.base import About, Method, Server
from unskew.methods.common.head import head_mask
from unskew.models.layout import Layout
from unskew.models.masks import joined, without
from unskew.utils.specs import OPTIONS


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class FedPer(Method):
    """FedAvg of the body; the head stays on its client."""

    fallback: Literal["initial", "average"] = "initial"
    """Head of the global model and of new clients: the "initial" one, or the "average" of the
    clients' heads, which are then sent to the server."""

    about: ClassVar[About] = About(
        title="Personal heads",
        paper="Arivazhagan et al. 2019",
        kind="personal",
        level="personal",
        down="body",
        up="body",
    )
    grid: ClassVar[Mapping[str, tuple[float, ...]]] = {}

    def begin(self, vector: Tensor, layout: Layout, earlier: Mapping[str, Server]) -> Server:
        """Check that the network has a head."""
        head_mask(layout)
        return super().begin(vector, layout, earlier)

    def travels(self, layout: Layout) -> Tensor | None:
        """Exclude the head."""
        return without(super().travels(layout), head_mask(layout))

    def shares_on_upload(self, layout: Layout) -> Tensor | None:
        """Let the server average the heads, if the fallback is their average."""
        shared = super().shares_on_upload(layout)
        return shared if self.fallback == "initial" else joined(shared, head_mask(layout))
