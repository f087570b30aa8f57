"""The base of methods with several models, where each client belongs to one model.

The server keeps the models as rows of a matrix, and for every client that has taken part the number
of its model and its sample count. Uploads are aggregated separately for each model, so the
weightings, rules and server optimisers of other methods apply within each model.

The *global* level of such a method is the mean of the models, weighted by the samples of their
clients. It is hardly meaningful once the models are far apart: use the *personal* level, where each
client uses its own model, or the level *outputs*, the mean of the models' individual results.
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
class Assignment:
    """The model that each upload belongs to, and the server after the assignment."""

    server: Server
    cluster: Tensor
    averaged: Tensor | None = None
    """Marks the uploads that are averaged into their model; None means all."""


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class MultiModelMethod(Method):
    """The base of methods with several models; :meth:`assign` decides where uploads belong."""

    cluster_slots: ClassVar[frozenset[str]] = frozenset({"models", "cluster", "samples"})
    """The slots of the server that hold the models; composed methods do not see them."""

    def assign(self, server: Server, uploads: Uploads) -> Assignment:
        """Return the model that each upload belongs to."""
        raise NotImplementedError

    def initial_models(self, vector: Tensor, layout: Layout) -> Tensor:
        """Return the models before the first round, one row per model."""
        raise NotImplementedError

    def begin(self, vector: Tensor, layout: Layout, earlier: Mapping[str, Server]) -> Server:
        """Add the initial models, and empty tables of the clients' models and samples."""
        server = super().begin(vector, layout, earlier)
        slots = {
            **server.slots,
            "models": self.initial_models(server.vector, layout),
            "cluster": torch.empty(0, dtype=torch.int64),
            "samples": torch.empty(0, dtype=torch.float64),
        }
        return replace(server, slots=slots)

    def broadcast(self, server: Server, client: int) -> Tensors:
        """Send the client its own model."""
        return super().broadcast(self.single(server, self.model_to_send(server, client)), client)

    def single(self, server: Server, number: int) -> Server:
        """Return the server of one model alone.

        Its vector is that model; its slots are those of the model and those shared by all models.
        """
        shared = {
            name: slot
            for name, slot in server.slots.items()
            if name not in self.cluster_slots and "/" not in name
        }
        return Server(server.slots["models"][number], {**shared, **_slots_of(server, number)})

    def model_to_send(self, server: Server, client: int) -> int:
        """Return the number of the model that a client is sent."""
        return model_of(server, client)

    def finish(self, client: Client, start: Start, trained: Trained, state: Tensors) -> Finished:
        """Store the client's id in its state, by which the server finds its model."""
        finished = super().finish(client, start, trained, state)
        return replace(finished, state={**finished.state, "client": torch.tensor(client.id)})

    def aggregate(self, server: Server, uploads: Uploads) -> tuple[Server, dict[str, Any]]:
        """Aggregate the uploads of each model separately; models without uploads stay unchanged."""
        assignment = self.assign(server, uploads)
        server, target = assignment.server, assignment.cluster
        if assignment.averaged is not None:
            target = torch.where(assignment.averaged, target, -1)
        models = server.slots["models"].clone()
        model_slots: dict[str, Tensor] = {}
        per_model = []
        for m in range(len(models)):
            rows = (target == m).nonzero().flatten()
            if len(rows):
                alone = self.single(server, m)
                updated, diagnostics = super().aggregate(alone, uploads.of_rows(rows, alone.vector))
                models[m] = updated.vector
                changed = {
                    name: slot
                    for name, slot in updated.slots.items()
                    if slot is not alone.slots.get(name)
                }
                model_slots |= {_slot_name(m, name): slot for name, slot in changed.items()}
                per_model.append((m, rows, diagnostics))
        server = replace(server, slots={**server.slots, **model_slots})
        server = _with_assignment(server, uploads, assignment)
        diagnostics = {**_merged(per_model, len(uploads)), "cluster": assignment.cluster}
        return with_models(server, models, uploads.layout), diagnostics

    def outputs(self, server: Server) -> Sequence[Tensor]:
        """Return the models that have clients; before the first round, all models."""
        samples = samples_per_model(server).tolist()
        numbers = [m for m, count in enumerate(samples) if count > 0] or range(len(samples))
        return [super(MultiModelMethod, self).model(self.single(server, m)) for m in numbers]

    def seen_by(self, server: Server, client: int) -> Server:
        """Return a server with the client's model as the only one."""
        view = super().seen_by(self.single(server, model_of(server, client)), client)
        slots = {
            **{_slot_name(0, name): slot for name, slot in view.slots.items()},
            "models": view.vector[None],
            "cluster": torch.empty(0, dtype=torch.int64),
            "samples": torch.empty(0, dtype=torch.float64),
        }
        return Server(view.vector, slots)

    def personal(self, layout: Layout, server: Server, state: Tensors) -> Tensor:
        """Return the client's current model; a new client gets the one with the most samples."""
        number = model_of(server, int(state["client"]) if "client" in state else -1)
        return super().personal(layout, self.single(server, number), state)


def _slots_of(server: Server, number: int) -> dict[str, Tensor]:
    prefix = _slot_name(number, "")
    return {
        name.removeprefix(prefix): slot
        for name, slot in server.slots.items()
        if name.startswith(prefix)
    }


def model_of(server: Server, client: int) -> int:
    """Return the number of a client's model; for a new client, the model with the most samples."""
    cluster = server.slots["cluster"]
    if 0 <= client < len(cluster) and cluster[client] >= 0:
        return int(cluster[client])
    totals = samples_per_model(server).tolist()
    return totals.index(max(totals))


def samples_per_model(server: Server) -> Tensor:
    """Return the total number of samples of each model's clients."""
    cluster, samples = server.slots["cluster"], server.slots["samples"]
    known = cluster >= 0
    totals = torch.zeros(len(server.slots["models"]), dtype=torch.float64)
    return totals.index_add_(0, cluster[known], samples[known])


def with_models(server: Server, models: Tensor, layout: Layout) -> Server:
    """Return the server with these models; the global vector is their mean weighted by samples."""
    server = replace(server, slots={**server.slots, "models": models})
    samples = samples_per_model(server)
    return replace(server, vector=weighted_sum(models, samples / samples.sum(), layout))


def with_copied_model(server: Server, parent: int) -> Server:
    """Return the server with one more model, a copy of the model ``parent``."""
    models, child = server.slots["models"], len(server.slots["models"])
    copied = {_slot_name(child, name): slot for name, slot in _slots_of(server, parent).items()}
    stack = torch.cat([models, models[parent : parent + 1]])
    return replace(server, slots={**server.slots, **copied, "models": stack})


def _slot_name(number: int, name: str) -> str:
    return f"model{number}/{name}"


def _with_assignment(server: Server, uploads: Uploads, assignment: Assignment) -> Server:
    """Return the server with the models and sample counts of this round's clients."""
    ids = torch.tensor(uploads.clients)
    old = server.slots["cluster"]
    size = max(len(old), int(ids.max()) + 1)
    cluster, samples = torch.full((size,), -1), torch.zeros(size, dtype=torch.float64)
    cluster[: len(old)], samples[: len(old)] = old, server.slots["samples"]
    cluster[ids], samples[ids] = assignment.cluster, uploads.samples
    return replace(server, slots={**server.slots, "cluster": cluster, "samples": samples})


def _merged(
    per_model: Iterable[tuple[int, Tensor, dict[str, Any]]], clients: int
) -> dict[str, Any]:
    """Merge the models' diagnostics: values per client into columns, other values by model.

    A client's weight is its weight within its own model, 0 if its upload was not averaged.
    """
    columns = {"weights": torch.zeros(clients, dtype=torch.float64)}
    rest: dict[str, Any] = {}
    for number, rows, diagnostics in per_model:
        for name, value in diagnostics.items():
            if isinstance(value, Tensor) and value.shape == rows.shape:
                blank = torch.full((clients,), torch.nan, dtype=torch.float64)
                columns.setdefault(name, blank)[rows] = value.double()
            else:
                rest[f"{name} of model {number}"] = value
    return {**rest, **columns}
