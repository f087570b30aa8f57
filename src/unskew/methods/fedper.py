"""FedPer: a shared body, and a personal head per client.

Arivazhagan, Aggarwal, Singh and Choudhary, "Federated Learning with Personalization Layers", 2019.
Body and head are trained together.
"""

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic.dataclasses import dataclass
from torch import Tensor

from unskew.composition.parts import Aspect, Personalization
from unskew.composition.values import About
from unskew.methods.common.head import head_mask
from unskew.models.layout import Layout
from unskew.utils.specs import OPTIONS


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class FedPer(Personalization):
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

    replaces = frozenset({Aspect.HEAD})

    def stays(self, layout: Layout) -> Tensor:
        """Keep the head on the client; raise an error if the network has none."""
        return head_mask(layout)

    def shares_on_upload(self, layout: Layout) -> Tensor | None:
        """Let the server average the heads, if the fallback is their average."""
        return None if self.fallback == "initial" else head_mask(layout)
