"""The base of parts that are one aggregation rule."""

from pydantic.dataclasses import dataclass
from torch import Tensor

from unskew.aggregation.rule import Rule
from unskew.aggregation.uploads import Uploads
from unskew.aggregation.weighting import Diagnostics
from unskew.composition.parts import Aspect, ServerSide, WeightedMean
from unskew.composition.values import Server
from unskew.utils.specs import OPTIONS


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class RulePart(ServerSide):
    """A part whose rule combines the uploads and decides how much each client counts."""

    replaces = frozenset({Aspect.COMBINATION, Aspect.WEIGHTS})

    def rule(self) -> Rule:
        """Return the rule."""
        raise NotImplementedError

    def combine(
        self, server: Server, uploads: Uploads, mean: WeightedMean
    ) -> tuple[Tensor, Diagnostics]:
        """Apply the rule."""
        del server, mean
        return self.rule().apply(uploads)
