"""FedCluster: groups of clients act one after the other, each on the model the last one left.

Chen, Chen, Zhou and Kailkhura, "FedCluster: Boosting the Convergence of Federated Learning via
Cluster-Cycling", 2020. There is one model. A round of the paper is ``groups`` rounds here: in each,
one group takes part.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from unskew.methods.base import About, Method
from unskew.rng import generator
from unskew.spelling import OPTIONS


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class FedCluster(Method):
    """``groups`` groups, drawn once; with one it is FedAvg.

    ``order`` is that of the groups: drawn anew in each cycle, or the same in all.
    """

    groups: Annotated[int, Field(ge=1)] = 5
    order: Literal["shuffled", "fixed"] = "shuffled"

    about: ClassVar[About] = About(
        title="Groups of clients in sequence", paper="Chen et al. 2020", kind="server"
    )
    grid: ClassVar[Mapping[str, tuple[float, ...]]] = {"groups": (5, 10, 20)}

    def candidates(self, clients: int, round_: int, seed: int) -> Sequence[int] | None:
        """Return the group whose turn it is."""
        groups = min(self.groups, clients)
        cycle, turn = divmod(round_, groups)
        if self.order == "shuffled":
            turn = int(generator(seed, "order of groups", cycle).permutation(groups)[turn])
        members = generator(seed, "groups of clients").permutation(clients)[turn::groups]
        return [int(k) for k in np.sort(members)]
