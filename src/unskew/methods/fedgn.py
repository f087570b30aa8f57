"""Fed-GN: FedAvg on a network whose BatchNorm layers are GroupNorm.

Hsieh, Phanishayee, Mutlu and Gibbons, "The Non-IID Data Quagmire of Decentralized Machine
Learning", 2020. GroupNorm has no statistics that clients with skewed data could disagree about.
"""

import copy
from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from unskew.composition.parts import Setup
from unskew.composition.values import About
from unskew.errors import UnskewError
from unskew.models.norms import MIN_IMAGE_GROUP, MIN_VECTOR_GROUP, groups
from unskew.utils.specs import OPTIONS

_BATCH_NORM = nn.modules.batchnorm._BatchNorm


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class FedGN(Setup):
    """FedAvg with every BatchNorm replaced by GroupNorm."""

    groups: Annotated[int, Field(ge=1)] | None = None
    """Groups per layer; None: the largest divisor of its channels up to 32 that leaves at least two
    channels per group (eight where it replaces BatchNorm1d)."""

    about: ClassVar[About] = About(
        title="GroupNorm for BatchNorm",
        paper="Hsieh et al. 2020",
        kind="server",
        down="model with GroupNorm",
        up="model with GroupNorm",
        only_with_norms=True,
    )
    grid: ClassVar[Mapping[str, tuple[float, ...]]] = {"groups": (1, 2, 4, 8, 16, 32)}

    def adapt(self, module: nn.Module, example: Tensor) -> nn.Module:
        """Replace the layers at any depth; a layer that is used twice stays shared."""
        module = copy.deepcopy(module)
        replacements: dict[nn.Module, nn.Module] = {}
        for name, part in module.named_modules():
            if isinstance(part, _BATCH_NORM):
                replacements[part] = self._group_norm(part, name)
        for part in list(module.modules()):
            for name, child in part._modules.items():
                if child in replacements:
                    part._modules[name] = replacements[child]
        return replacements.get(module, module)

    def _group_norm(self, norm: _BATCH_NORM, name: str) -> nn.GroupNorm:
        """Return a GroupNorm with the scales and shifts of a BatchNorm."""
        channels = norm.num_features
        least = MIN_VECTOR_GROUP if isinstance(norm, nn.BatchNorm1d) else MIN_IMAGE_GROUP
        count = self.groups or groups(channels, least)
        if channels % count:
            raise UnskewError(
                f"method 'fedgn': groups={count} does not divide the {channels} channels of "
                f"{name or 'the network'}; omit it, or choose a divisor"
            )
        group_norm = nn.GroupNorm(count, channels, norm.eps, affine=norm.affine)
        if norm.affine:
            group_norm.weight, group_norm.bias = norm.weight, norm.bias
        return group_norm.train(norm.training)
