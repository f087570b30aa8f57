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

from unskew.errors import UnskewError
from unskew.methods.common.base import About, Method
from unskew.models.norms import MIN_IMAGE_GROUP, MIN_VECTOR_GROUP, groups
from unskew.utils.specs import OPTIONS

_BATCH_NORM = nn.modules.batchnorm._BatchNorm


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class FedGN(Method):
    """FedAvg with GroupNorm in the place of every BatchNorm."""

    groups: Annotated[int, Field(ge=1)] | None = None
    """Groups of every layer; None: the most that divide its channels, at most 32, of at least two
    channels each (eight in the place of BatchNorm1d)."""

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
        """Replace the layers, wherever they are; a layer that is used twice stays one."""
        module = copy.deepcopy(super().adapt(module, example))
        made: dict[nn.Module, nn.Module] = {}
        for name, part in module.named_modules():
            if isinstance(part, _BATCH_NORM):
                made[part] = self._instead_of(part, name)
        for part in list(module.modules()):
            for name, child in part._modules.items():
                if child in made:
                    part._modules[name] = made[child]
        return made.get(module, module)

    def _instead_of(self, norm: _BATCH_NORM, name: str) -> nn.GroupNorm:
        """Return the GroupNorm with a BatchNorm's scales and shifts."""
        channels = norm.num_features
        least = MIN_VECTOR_GROUP if isinstance(norm, nn.BatchNorm1d) else MIN_IMAGE_GROUP
        count = self.groups or groups(channels, least)
        if channels % count:
            raise UnskewError(
                f"method 'fedgn': groups={count} does not divide the {channels} channels of "
                f"{name or 'the network'}; leave it out, or choose a divisor"
            )
        made = nn.GroupNorm(count, channels, norm.eps, affine=norm.affine)
        if norm.affine:
            made.weight, made.bias = norm.weight, norm.bias
        return made.train(norm.training)
