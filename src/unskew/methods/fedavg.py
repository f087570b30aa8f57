"""FedAvg: average the clients' models by their number of samples.

McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", 2017.
"""

from typing import ClassVar

from pydantic.dataclasses import dataclass

from unskew.methods.base import About, Method
from unskew.spelling import OPTIONS


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class FedAvg(Method):
    """Every hook at its default."""

    about: ClassVar[About] = About(
        title="Average by samples", paper="McMahan et al. 2017", kind="server"
    )
