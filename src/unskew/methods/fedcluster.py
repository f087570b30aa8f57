"""FedCluster: groups of clients take turns, each training the model of the group before.

Chen, Chen, Zhou and Kailkhura, "FedCluster: Boosting the Convergence of Federated Learning via
Cluster-Cycling", 2020. There is one model. A round of the paper is ``groups`` rounds here: one
group takes part in each.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from pydantic.dataclasses import dataclass

from unskew.aggregation.uploads import Uploads
from unskew.aggregation.weighting import Diagnostics
from unskew.composition.parts import Aspect, ServerSide, Setup
from unskew.composition.values import About, Beginning, Server, Tensors
from unskew.utils.rng import generator
from unskew.utils.specs import OPTIONS


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class FedCluster(ServerSide, Setup):
    """Random groups of clients, drawn once, that take part in turn."""

    groups: Annotated[int, Field(ge=1)] = 5
    """Number of groups. 1 is FedAvg."""
    order: Literal["shuffled", "fixed"] = "shuffled"
    """Order of the groups: drawn for each cycle ("shuffled"), or the same in all ("fixed")."""

    about: ClassVar[About] = About(
        title="Groups of clients in sequence", paper="Chen et al. 2020", kind="server"
    )
    grid: ClassVar[Mapping[str, tuple[float, ...]]] = {"groups": (5, 10, 20)}

    replaces = frozenset({Aspect.CANDIDATES})
    affects_clients = False

    def candidates(self, clients: int, round_: int, seed: int) -> Sequence[int]:
        """Return the group whose turn it is."""
        groups = min(self.groups, clients)
        cycle, turn = divmod(round_, groups)
        if self.order == "shuffled":
            turn = int(generator(seed, "order of groups", cycle).permutation(groups)[turn])
        return np.flatnonzero(self._groups(clients, seed) == turn).tolist()

    def begin(self, beginning: Beginning) -> Tensors:
        """Store the clients' groups, so that they can be reported."""
        return {"group": torch.from_numpy(self._groups(beginning.num_clients, beginning.seed))}

    def conclude(
        self, before: Server, after: Server, uploads: Uploads, diagnostics: Diagnostics
    ) -> tuple[Server, Diagnostics]:
        """Report the clients' groups."""
        return after, {"cluster": after.state["group"][list(uploads.clients)]}

    def _groups(self, clients: int, seed: int) -> NDArray[np.int64]:
        """Return the group of each client; group sizes differ by at most one."""
        groups = np.empty(clients, dtype=np.int64)
        order = generator(seed, "groups of clients").permutation(clients)
        groups[order] = np.arange(clients) % min(self.groups, clients)
        return groups
