"""Mean: every client counts the same, however many samples it has.

Often called FedAvg in public code; here the two rules have two names.
"""

from typing import ClassVar

from pydantic.dataclasses import dataclass
from torch import Tensor

from unskew.methods.base import About, Method
from unskew.rules.uploads import Uploads
from unskew.rules.weighers import uniform
from unskew.spelling import OPTIONS


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class Mean(Method):
    """FedAvg with equal weights."""

    about: ClassVar[About] = About(
        title="Unweighted average", paper="baseline of Yeganeh et al. 2020", kind="server"
    )

    def weigh(self, uploads: Uploads) -> Tensor:
        """Give every client the same weight."""
        return uniform()(uploads)
