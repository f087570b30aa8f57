"""Data sharing: every client trains on a small set of common samples besides its own.

Zhao et al., "Federated Learning with Non-IID Data", 2018. Samples leave their clients, which
federated learning is meant to avoid; the method is included as an upper reference.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from pydantic.dataclasses import dataclass

from unskew.aggregation.uploads import Uploads
from unskew.composition.parts import ServerSide, Setup
from unskew.composition.values import About, Server, Tensors
from unskew.utils.rng import generator
from unskew.utils.specs import OPTIONS

if TYPE_CHECKING:
    from unskew.data.federation import Federation

Share = Annotated[float, Field(ge=0, le=1)]


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class DataSharing(ServerSide, Setup):
    """FedAvg on the clients' own samples and a set of samples that the server shares with them."""

    beta: Share = 0.05
    """Size of the shared set, as a fraction of all training samples. 0 is FedAvg."""
    alpha: Share = 1.0
    """Fraction of the shared set that each client gets, from 0 (FedAvg) to 1 (all of it)."""

    name: ClassVar[str] = "data-sharing"
    about: ClassVar[About] = About(
        title="A small set shared by all (upper reference)",
        paper="Zhao et al. 2018",
        kind="server",
        down="model, shared samples (once)",
    )
    grid: ClassVar[Mapping[str, tuple[float, ...]]] = {
        "beta": (0.025, 0.05, 0.1, 0.15, 0.2, 0.25),
        "alpha": (0.1, 0.2, 0.5, 1.0),
    }

    def shared_samples(self, federation: "Federation", seed: int) -> tuple["Federation", Tensors]:
        """Append the shared samples to each client's own; all classes are shared equally."""
        train = federation.train
        shared = _balanced_draw(train.y, round(self.beta * train.samples), seed)
        per_client = round(self.alpha * len(shared))
        if not per_client:
            return federation, {}
        rows = [
            np.concatenate(
                [np.arange(*train.offsets[k : k + 2]), _drawn(shared, per_client, seed, k)]
            )
            for k in range(len(train))
        ]
        samples = {
            "x": torch.from_numpy(np.take(train.x, shared[:per_client], axis=0)),
            "y": torch.from_numpy(np.take(train.y, shared[:per_client])),
        }
        extended = type(train).gathered(train.x, train.y, rows)
        return replace(federation, train=extended), samples

    def broadcast(self, server: Server, client: int) -> Tensors:
        """Send the shared samples with a client's first model, afterwards the model alone.

        Sending them only counts their traffic: :meth:`shared_samples` has already added them.
        """
        state = server.state
        served = state.get("served", torch.empty(0, dtype=torch.bool))
        if "x" not in state or (client < len(served) and bool(served[client])):
            return {}
        return {"x": state["x"], "y": state["y"]}

    def receive(self, server: Server, uploads: Uploads) -> Tensors:
        """Mark the clients that have received the shared samples."""
        served = server.state.get("served", torch.empty(0, dtype=torch.bool))
        size = max(len(served), max(uploads.clients) + 1)
        updated = torch.zeros(size, dtype=torch.bool)
        updated[: len(served)] = served
        updated[list(uploads.clients)] = True
        return {**server.state, "served": updated}


def _balanced_draw(labels: NDArray[np.int64], number: int, seed: int) -> NDArray[np.int64]:
    """Draw samples, equally many per class until a class runs out."""
    order = generator(seed, "shared samples").permutation(len(labels))
    drawn = labels[order]
    # A sample's rank is the number of samples of its class before it; taking the lowest ranks
    # first takes equally many of all classes.
    sorted_places = np.argsort(drawn, kind="stable")
    starts = np.searchsorted(drawn[sorted_places], drawn[sorted_places])
    ranks = np.empty(len(labels), np.int64)
    ranks[sorted_places] = np.arange(len(labels)) - starts
    return order[np.argsort(ranks, kind="stable")[:number]]


def _drawn(shared: NDArray[np.int64], count: int, seed: int, client: int) -> NDArray[np.int64]:
    """Draw one client's part of the shared set."""
    if count == len(shared):
        return shared
    return generator(seed, "shared with", client).choice(shared, count, replace=False)
