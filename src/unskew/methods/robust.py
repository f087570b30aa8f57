"""The robust rules as methods: a few bad clients cannot pull the model away.

Median and trimmed mean: Yin et al. 2018. RFA, the geometric median: Pillutla et al. 2019. Krum and
Multi-Krum: Blanchard et al. 2017. Bulyan: El Mhamdi et al. 2018. ``f`` is the number of bad
clients to withstand in a round.
"""

from typing import Annotated, ClassVar

from pydantic import Field
from pydantic.dataclasses import dataclass

from unskew.aggregation.geometric import geometric_median
from unskew.aggregation.krum import bulyan, krum, multi_krum
from unskew.aggregation.order import coordinate_median, trimmed_mean
from unskew.aggregation.rule import Rule
from unskew.methods.common.base import About, Method, Server
from unskew.utils.specs import OPTIONS

Bad = Annotated[int, Field(ge=0)]


def _about(title: str, paper: str) -> About:
    return About(title=title, paper=paper, kind="server", needs_individual_updates=True)


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class Median(Method):
    """The median of each coordinate."""

    about: ClassVar[About] = _about("Coordinate-wise median", "Yin et al. 2018")

    def rule(self, server: Server) -> Rule:
        """Return the median."""
        del server
        return coordinate_median()


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class Trimmed(Method):
    """The mean of each coordinate without its extremes."""

    beta: Annotated[float, Field(ge=0, lt=0.5)] = 0.2
    """Share of the clients that is dropped on either side. 0 is the Mean."""

    about: ClassVar[About] = _about("Trimmed mean", "Yin et al. 2018")

    def rule(self, server: Server) -> Rule:
        """Return the trimmed mean."""
        del server
        return trimmed_mean(self.beta)


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class RFA(Method):
    """The geometric median, approached by smoothed Weiszfeld steps from FedAvg's mean."""

    iterations: Annotated[int, Field(ge=0)] = 4
    """Steps, at most; they end once the distances hardly change. 0 is FedAvg."""
    nu: Annotated[float, Field(gt=0)] = 1e-5
    """Models closer than this to the present point count as equally close."""

    about: ClassVar[About] = _about("Geometric median", "Pillutla et al. 2019")

    def rule(self, server: Server) -> Rule:
        """Return the geometric median."""
        del server
        return geometric_median(self.iterations, self.nu)


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class Krum(Method):
    """The one model that lies closest to its nearest others."""

    f: Bad = 1
    """Bad clients that are withstood; it takes 2 f + 3 clients a round, any number with 0."""

    about: ClassVar[About] = _about("The most central model", "Blanchard et al. 2017")

    def rule(self, server: Server) -> Rule:
        """Return Krum."""
        del server
        return krum(self.f)


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class MultiKrum(Method):
    """The mean of the most central models."""

    f: Bad = 1
    """Bad clients that are withstood; it takes 2 f + 3 clients a round, any number with 0."""
    m: Annotated[int, Field(ge=1)] | None = None
    """How many models are averaged. 1 is Krum; None: all but f, the most there may be."""

    about: ClassVar[About] = _about("Mean of central models", "Blanchard et al. 2017")

    def rule(self, server: Server) -> Rule:
        """Return Multi-Krum."""
        del server
        return multi_krum(self.f, self.m)


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class Bulyan(Method):
    """Krum's choice again and again, then a trimmed mean around the median."""

    f: Bad = 1
    """Bad clients that are withstood; it takes 4 f + 3 clients a round. 0 is the Mean."""

    about: ClassVar[About] = _about("Krum, then a trimmed mean", "El Mhamdi et al. 2018")

    def rule(self, server: Server) -> Rule:
        """Return Bulyan."""
        del server
        return bulyan(self.f)
