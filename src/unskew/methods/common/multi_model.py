"""What methods with several models share: each client belongs to one of them.

The server keeps the models as rows of a matrix, and of every client it has heard of which model it
belongs to and how many samples it has. Inside each model a round goes on as ever, so the weights,
rules and server optimisers of other methods apply there.

The *global* level of such a method is the mean of the models, by the samples of the clients that
belong to each. It says little once the models lie far apart: look at the *personal* level, where
each client uses its own, and at the level *outputs*, the mean of what each model reaches by itself.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass as plain_dataclass
from dataclasses import replace
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from unskew.aggregation.combine import weighted_sum
from unskew.aggregation.uploads import Uploads
from unskew.methods.common.base import Client, Finished, Method, Server, Start, Tensors, Trained
from unskew.models.layout import Layout
from unskew.utils.specs import OPTIONS

Count = Annotated[int, Field(ge=1)]


@plain_dataclass(frozen=True, eq=False)
class Placed:
    """Which model each upload belongs to, on the server as the placing left it."""

    server: Server
    cluster: Tensor
    averaged: Tensor | None = None
    """Marks the uploads that enter their model; None means all."""


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class MultiModelMethod(Method):
    """The base of methods with several models; they say where uploads belong, in :meth:`place`."""

    own_slots: ClassVar[frozenset[str]] = frozenset({"models", "cluster", "samples"})
    """In which slots the models are kept; no other method sees these."""

    def place(self, server: Server, uploads: Uploads) -> Placed:
        """Say which model each upload belongs to."""
        raise NotImplementedError

    def first_models(self, vector: Tensor, layout: Layout) -> Tensor:
        """Return the models before the first round, a row each."""
        raise NotImplementedError

    def begin(self, vector: Tensor, layout: Layout, earlier: Mapping[str, Server]) -> Server:
        """Keep the models, and of every client its model and its samples: nobody's yet."""
        server = super().begin(vector, layout, earlier)
        slots = {
            **server.slots,
            "models": self.first_models(server.vector, layout),
            "cluster": torch.empty(0, dtype=torch.int64),
            "samples": torch.empty(0, dtype=torch.float64),
        }
        return replace(server, slots=slots)

    def broadcast(self, server: Server, client: int) -> Tensors:
        """Send the client its own model."""
        return super().broadcast(self.inside(server, self.sent(server, client)), client)

    def inside(self, server: Server, number: int) -> Server:
        """Return the server as it looks from inside one model.

        There it is that model, with its own slots and what other methods keep for all models.
        """
        shared = {
            name: slot
            for name, slot in server.slots.items()
            if name not in self.own_slots and "/" not in name
        }
        return Server(server.slots["models"][number], {**shared, **_slots_of(server, number)})

    def sent(self, server: Server, client: int) -> int:
        """Return the number of the model that a client is sent."""
        return model_of(server, client)

    def finish(self, client: Client, start: Start, trained: Trained, state: Tensors) -> Finished:
        """Let the client remember its number, by which the server knows its model."""
        finished = super().finish(client, start, trained, state)
        return replace(finished, state={**finished.state, "client": torch.tensor(client.id)})

    def aggregate(self, server: Server, uploads: Uploads) -> tuple[Server, dict[str, Any]]:
        """Combine the uploads of each model as if they were alone; others stay as they are."""
        placed = self.place(server, uploads)
        server, enters = placed.server, placed.cluster
        if placed.averaged is not None:
            enters = torch.where(placed.averaged, enters, -1)
        models = server.slots["models"].clone()
        inner: dict[str, Tensor] = {}
        found = []
        for m in range(len(models)):
            rows = (enters == m).nonzero().flatten()
            if len(rows):
                own = self.inside(server, m)
                updated, told = super().aggregate(own, uploads.of_rows(rows, own.vector))
                models[m] = updated.vector
                changed = {
                    name: slot
                    for name, slot in updated.slots.items()
                    if slot is not own.slots.get(name)
                }
                inner |= {_inner_name(m, name): slot for name, slot in changed.items()}
                found.append((m, rows, told))
        server = _remembered(replace(server, slots={**server.slots, **inner}), uploads, placed)
        diagnostics = {**_joined(found, len(uploads)), "cluster": placed.cluster}
        return with_models(server, models, uploads.layout), diagnostics

    def outputs(self, server: Server) -> Sequence[Tensor]:
        """Return the models that have clients; before the first round, all."""
        masses = masses_of(server).tolist()
        numbers = [m for m, mass in enumerate(masses) if mass > 0] or range(len(masses))
        return [super(MultiModelMethod, self).model(self.inside(server, m)) for m in numbers]

    def seen_by(self, server: Server, client: int) -> Server:
        """Show a client its own model, as if there were no other."""
        view = super().seen_by(self.inside(server, model_of(server, client)), client)
        slots = {
            **{_inner_name(0, name): slot for name, slot in view.slots.items()},
            "models": view.vector[None],
            "cluster": torch.empty(0, dtype=torch.int64),
            "samples": torch.empty(0, dtype=torch.float64),
        }
        return Server(view.vector, slots)

    def personal(self, layout: Layout, server: Server, state: Tensors) -> Tensor:
        """Return the client's model as it is now; a client never heard of takes the largest."""
        number = model_of(server, int(state["client"]) if "client" in state else -1)
        return super().personal(layout, self.inside(server, number), state)


def _slots_of(server: Server, number: int) -> dict[str, Tensor]:
    prefix = _inner_name(number, "")
    return {
        name.removeprefix(prefix): slot
        for name, slot in server.slots.items()
        if name.startswith(prefix)
    }


def model_of(server: Server, client: int) -> int:
    """Return the number of a client's model; for one not heard of, that with the most samples."""
    cluster = server.slots["cluster"]
    if 0 <= client < len(cluster) and cluster[client] >= 0:
        return int(cluster[client])
    masses = masses_of(server).tolist()
    return masses.index(max(masses))


def masses_of(server: Server) -> Tensor:
    """Return how many samples the clients of each model have together."""
    cluster, samples = server.slots["cluster"], server.slots["samples"]
    known = cluster >= 0
    masses = torch.zeros(len(server.slots["models"]), dtype=torch.float64)
    return masses.index_add_(0, cluster[known], samples[known])


def with_models(server: Server, models: Tensor, layout: Layout) -> Server:
    """Return the server with these models; the global vector is their mean by samples."""
    server = replace(server, slots={**server.slots, "models": models})
    masses = masses_of(server)
    return replace(server, vector=weighted_sum(models, masses / masses.sum(), layout))


def grown(server: Server, parent: int) -> Server:
    """Return the server with one more model, which begins as a copy of another."""
    models, child = server.slots["models"], len(server.slots["models"])
    copied = {_inner_name(child, name): slot for name, slot in _slots_of(server, parent).items()}
    stack = torch.cat([models, models[parent : parent + 1]])
    return replace(server, slots={**server.slots, **copied, "models": stack})


def _inner_name(number: int, name: str) -> str:
    return f"model{number}/{name}"


def _remembered(server: Server, uploads: Uploads, placed: Placed) -> Server:
    """Note the model and the samples of this round's clients."""
    ids = torch.tensor(uploads.clients)
    old = server.slots["cluster"]
    size = max(len(old), int(ids.max()) + 1)
    cluster, samples = torch.full((size,), -1), torch.zeros(size, dtype=torch.float64)
    cluster[: len(old)], samples[: len(old)] = old, server.slots["samples"]
    cluster[ids], samples[ids] = placed.cluster, uploads.samples
    return replace(server, slots={**server.slots, "cluster": cluster, "samples": samples})


def _joined(found: Iterable[tuple[int, Tensor, dict[str, Any]]], clients: int) -> dict[str, Any]:
    """Join what was found inside the models: columns of clients, and the rest by model.

    A client's weight is that in its own model, 0 if its upload did not enter.
    """
    columns = {"weights": torch.zeros(clients, dtype=torch.float64)}
    rest: dict[str, Any] = {}
    for number, rows, told in found:
        for name, value in told.items():
            if isinstance(value, Tensor) and value.shape == rows.shape:
                blank = torch.full((clients,), torch.nan, dtype=torch.float64)
                columns.setdefault(name, blank)[rows] = value.double()
            else:
                rest[f"{name} of model {number}"] = value
    return {**rest, **columns}
