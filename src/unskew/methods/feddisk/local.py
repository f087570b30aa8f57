"""The local density: a MADE that each client trains on its own samples alone."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from unskew.composition.values import About, Client, Start
from unskew.densities.sampling import log_density
from unskew.methods.feddisk.on_device import OnDevice
from unskew.utils.specs import NONE_IS_A_WORD, OPTIONS

Temper = Annotated[Literal["none", "dimension"], NONE_IS_A_WORD]


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class LocalDensity(OnDevice):
    """One density per client; ``sets_weights`` turns its ratio to the global into weights."""

    sets_weights: bool = False
    log_clip: Annotated[float, Field(gt=0)] = 5.0
    temper: Temper = "none"
    """Whether log ratios are divided by the number of features."""

    tensor_scope: ClassVar[str] = "feddisk"
    stage_name: ClassVar[str] = "local"
    about: ClassVar[About] = About(
        title="Local density", paper="Nguyen et al. 2023", kind="densities"
    )

    def log_ratio(self, client: Client, best: Tensor, start: Start) -> Tensor | None:
        """Return the difference of log-likelihoods, clipped."""
        if not self.sets_weights:
            return None
        log_p = log_density(client.network, start.refs["density"], client.x)
        log_q = log_density(client.network, best, client.x)
        features = client.x[0].numel() if self.temper == "dimension" else 1
        return ((log_p - log_q) / features).clamp(-self.log_clip, self.log_clip)
