"""FedCluster: groups of clients act one after the other, each on the model the last one left.

Chen, Chen, Zhou and Kailkhura, "FedCluster: Boosting the Convergence of Federated Learning via
Cluster-Cycling", 2020. There is one model. A round of the paper is ``groups`` rounds here: in each,
one group takes part.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from pydantic.dataclasses import dataclass

from unskew.aggregation.uploads import Uploads
from unskew.methods.common.base import About, Method, Server, Tensors
from unskew.utils.rng import generator
from unskew.utils.specs import OPTIONS


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class FedCluster(Method):
    """Groups of clients, drawn once, that take part in turn."""

    groups: Annotated[int, Field(ge=1)] = 5
    """How many groups there are. 1 is FedAvg."""
    order: Literal["shuffled", "fixed"] = "shuffled"
    """Order of the groups: drawn anew in each cycle ("shuffled"), or the same in all ("fixed")."""

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
        return np.flatnonzero(self._groups(clients, seed) == turn).tolist()

    def initial_state(self, clients: int, seed: int) -> Tensors:
        """Let the server hold the list of groups, to tell them."""
        groups = torch.from_numpy(self._groups(clients, seed))
        return {**super().initial_state(clients, seed), "group": groups}

    def aggregate(self, server: Server, uploads: Uploads) -> tuple[Server, dict[str, Any]]:
        """Tell the group whose turn it was; inside one of several models there is no such list."""
        server, told = super().aggregate(server, uploads)
        if "group" not in server.slots:
            return server, told
        return server, {**told, "cluster": server.slots["group"][list(uploads.clients)]}

    def _groups(self, clients: int, seed: int) -> NDArray[np.int64]:
        """Return the group of each client: all have the same size, or one more."""
        groups = np.empty(clients, dtype=np.int64)
        order = generator(seed, "groups of clients").permutation(clients)
        groups[order] = np.arange(clients) % min(self.groups, clients)
        return groups
