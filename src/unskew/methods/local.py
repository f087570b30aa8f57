"""Local training: nothing is sent; the lower reference that federated learning must beat."""

from collections.abc import Mapping
from typing import ClassVar

import torch
from pydantic.dataclasses import dataclass
from torch import Tensor

from unskew.composition.parts import Personalization
from unskew.composition.values import About
from unskew.models.layout import Layout
from unskew.utils.specs import OPTIONS


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class Local(Personalization):
    """Each client trains its own model, from the same initial weights."""

    about: ClassVar[About] = About(
        title="Each client alone",
        paper="reference",
        kind="personal",
        level="personal",
        down="nothing",
        up="nothing",
    )
    grid: ClassVar[Mapping[str, tuple[float, ...]]] = {}

    def stays(self, layout: Layout) -> Tensor:
        """Send no coordinates."""
        return torch.ones(layout.size, dtype=torch.bool)
