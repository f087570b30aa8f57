"""Methods with several models, where each client belongs to one model.

The server keeps the models as rows of a matrix, and for every client that has taken part the number
of its model and its sample count. Uploads are aggregated separately for each model, so the
weightings, rules and server optimisers of other parts apply within each model.

The *global* level of such a method is the mean of the models, weighted by the samples of their
clients. It is hardly meaningful once the models are far apart: use the *personal* level, where each
client uses its own model, or the level *outputs*, the mean of the models' individual results.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass as plain_dataclass
from dataclasses import replace
from functools import cached_property
from typing import Annotated, Any

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from unskew.aggregation.combine import weighted_sum
from unskew.aggregation.uploads import Uploads
from unskew.composition.hook_calls import call
from unskew.composition.method import Method
from unskew.composition.parts import Aspect, ClientSide, ServerSide
from unskew.composition.scopes import own_server, own_uploads, with_own, without_own
from unskew.composition.values import (
    Beginning,
    Client,
    Finished,
    Server,
    Start,
    Tensors,
    Trained,
)
from unskew.models.layout import Layout
from unskew.utils.specs import OPTIONS

Count = Annotated[int, Field(ge=1)]

MODELS = "models"
"""The scope of the tensors that other parts keep for one of the models: ``models/0/part/name``."""


@plain_dataclass(frozen=True, eq=False)
class Assignment:
    """The model that each upload belongs to, and the part's server after the assignment."""

    server: Server
    cluster: Tensor
    averaged: Tensor | None = None
    """Marks the uploads that are averaged into their model; None means all."""
    copied: Sequence[int] = ()
    """The models that the new models, appended in this order, are copies of."""


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class ModelSelector(ClientSide, ServerSide):
    """A part with several models; :meth:`assign` decides where uploads belong."""

    replaces = frozenset({Aspect.NUMBER_OF_MODELS})

    def initial_models(self, vector: Tensor, layout: Layout) -> Tensor:
        """Return the models before the first round, one row per model."""
        raise NotImplementedError

    def assign(self, server: Server, uploads: Uploads) -> Assignment:
        """Return the model that each upload belongs to."""
        raise NotImplementedError

    def sent(self, server: Server, client: int) -> tuple[Sequence[int], Tensor]:
        """Return the numbers of the models sent to a client, and the vector it trains first."""
        number = model_of(server, client)
        return [number], server.state["models"][number]

    def finish(self, client: Client, start: Start, trained: Trained, state: Tensors) -> Finished:
        """Store the client's id in its state, by which the server finds its model."""
        del start, trained
        return Finished(state={**state, "client": torch.tensor(client.id)})

    def mixed(self, server: Server, layout: Layout) -> Server:
        """Return the server after all models of a round are aggregated."""
        del layout
        return server


@plain_dataclass(frozen=True)
class MultiModelMethod(Method):
    """Parts of which one selects among several models, and the others apply to each of them."""

    has_several_models = True

    @cached_property
    def selector(self) -> ModelSelector:
        """The part that selects."""
        return next(part for part in self.parts if isinstance(part, ModelSelector))

    @cached_property
    def inner(self) -> Method:
        """The method of each model: all other parts."""
        return Method(tuple(part for part in self.parts if part is not self.selector))

    @cached_property
    def has_own_personal_models(self) -> bool:
        """Always true: clients use their own model."""
        return True

    @cached_property
    def _client_sides(self) -> tuple[ClientSide, ...]:
        return (self.selector, *self.inner._client_sides)

    # On the server.

    def begin(self, beginning: Beginning) -> Server:
        """Add the initial models, and empty tables of the clients' models and samples."""
        server = self.inner.begin(beginning)
        beginning = replace(beginning, sent_mask=self.sent_mask(beginning.layout))
        models = self.selector.initial_models(beginning.vector, beginning.layout)
        state = {
            "models": beginning.layout.with_frozen(models, beginning.vector),
            **_no_clients(),
            **call(self.selector, "begin", beginning),
        }
        return with_own(server, self.selector, state)

    def single(self, server: Server, number: int) -> Server:
        """Return the server of one model alone.

        Its vector is that model; its state holds what belongs to that model and what all share.
        """
        state = without_own(server.state, self.selector)
        shared = {
            name: tensor for name, tensor in state.items() if not name.startswith(f"{MODELS}/")
        }
        vector = self._own(server).state["models"][number]
        return Server(vector, {**shared, **_of_model(state, number)})

    def broadcast(self, server: Server, client: int) -> Tensors:
        """Send the client its model, or all models to choose from, and what comes with each."""
        own = self._own(server)
        numbers, vector = self.selector.sent(own, client)
        first, *others = (self.inner.broadcast(self.single(server, m), client) for m in numbers)
        payload = {"model": vector}
        for name, tensor in first.items():
            if name != "model" and all(tensor is other.get(name) for other in others):
                payload[name] = tensor  # the same for all models, so it is sent once
        for number, besides in zip(numbers, (first, *others), strict=True):
            payload |= {
                f"{MODELS}/{number}/{name}": tensor
                for name, tensor in besides.items()
                if name != "model" and name not in payload
            }
        return payload | self.selector.prefixed(call(self.selector, "broadcast", own, client))

    def aggregate(self, server: Server, uploads: Uploads) -> tuple[Server, dict[str, Any]]:
        """Aggregate the uploads of each model separately; models without uploads stay unchanged."""
        assignment = self.selector.assign(self._own(server), own_uploads(uploads, self.selector))
        server = self._with_copies(server, assignment)
        target = assignment.cluster
        if assignment.averaged is not None:
            target = torch.where(assignment.averaged, target, -1)
        models = assignment.server.state["models"].clone()
        model_state: dict[str, Tensor] = {}
        per_model = []
        for m in range(len(models)):
            rows = (target == m).nonzero().flatten()
            if len(rows):
                alone = self.single(server, m)
                updated, diagnostics = self.inner.aggregate(
                    alone, uploads.of_rows(rows, alone.vector)
                )
                models[m] = updated.vector
                changed = {
                    name: tensor
                    for name, tensor in updated.state.items()
                    if tensor is not alone.state.get(name)
                }
                model_state |= {f"{MODELS}/{m}/{name}": tensor for name, tensor in changed.items()}
                per_model.append((m, rows, diagnostics))
        own = _with_assignment(assignment, uploads)
        own = self.selector.mixed(with_models(own, models, uploads.layout), uploads.layout)
        server = with_own(replace(server, vector=own.vector), self.selector, own.state)
        diagnostics = {**_merged(per_model, len(uploads)), "cluster": assignment.cluster}
        return replace(server, state={**server.state, **model_state}), diagnostics

    def _with_copies(self, server: Server, assignment: Assignment) -> Server:
        """Return the server after an assignment, new models with the tensors of their originals."""
        count = len(assignment.server.state["models"]) - len(assignment.copied)
        state = dict(server.state)
        for child, parent in enumerate(assignment.copied, start=count):
            state |= {
                f"{MODELS}/{child}/{name}": tensor
                for name, tensor in _of_model(state, parent).items()
            }
        return with_own(replace(server, state=state), self.selector, assignment.server.state)

    def _own(self, server: Server) -> Server:
        return own_server(server, self.selector)

    def model(self, server: Server) -> Tensor:
        """Return the mean of the models."""
        return server.vector

    def outputs(self, server: Server) -> Sequence[Tensor]:
        """Return the models that have clients; before the first round, all models."""
        samples = samples_per_model(self._own(server)).tolist()
        numbers = [m for m, count in enumerate(samples) if count > 0] or range(len(samples))
        return [self.inner.model(self.single(server, m)) for m in numbers]

    def seen_by(self, server: Server, client: int) -> Server:
        """Return a server with the client's model as the only one."""
        number = model_of(self._own(server), client)
        view = self.inner.seen_by(self.single(server, number), client)
        state = {"models": view.vector[None], **_no_clients()}
        return with_own(view, self.selector, state)

    # On the client.

    def received(self, client: Client, payload: Tensors, state: Tensors) -> Tensor:
        """Return the received model that the client uses."""
        return self._selected(client, payload, state)[0].received

    def prepare(self, client: Client, payload: Tensors, state: Tensors) -> Start:
        """Let the selector choose among the received models; the others prepare that model."""
        start, payload = self._selected(client, payload, state)
        return self.inner._prepared(client, start, payload, state)

    def _selected(self, client: Client, payload: Tensors, state: Tensors) -> tuple[Start, Tensors]:
        """Return the start from the selected model, and what was sent with that model."""
        received, part = super().received(client, payload, state), self.selector
        start = Start(received, received)
        start = call(part, "prepare", client, start, part.scoped(payload), part.scoped(state))
        if "cluster" in start.refs:
            payload = {**payload, **_of_model(payload, int(start.refs["cluster"]))}
        return replace(start, refs=part.prefixed(start.refs)), payload

    def personal(self, layout: Layout, server: Server, state: Tensors) -> Tensor:
        """Return the client's current model; a new client gets the one with the most samples."""
        own = self.selector.scoped(state)
        number = model_of(self._own(server), int(own["client"]) if "client" in own else -1)
        return self.inner.personal(layout, self.single(server, number), state)


def _no_clients() -> dict[str, Tensor]:
    return {
        "cluster": torch.empty(0, dtype=torch.int64),
        "samples": torch.empty(0, dtype=torch.float64),
    }


def _of_model(tensors: Tensors, number: int) -> dict[str, Tensor]:
    """Return the tensors that other parts keep for one of the models."""
    start = f"{MODELS}/{number}/"
    return {name[len(start) :]: each for name, each in tensors.items() if name.startswith(start)}


def model_of(server: Server, client: int) -> int:
    """Return the number of a client's model; for a new client, the model with the most samples."""
    cluster = server.state["cluster"]
    if 0 <= client < len(cluster) and cluster[client] >= 0:
        return int(cluster[client])
    totals = samples_per_model(server).tolist()
    return totals.index(max(totals))


def samples_per_model(server: Server) -> Tensor:
    """Return the total number of samples of each model's clients."""
    cluster, samples = server.state["cluster"], server.state["samples"]
    known = cluster >= 0
    totals = torch.zeros(len(server.state["models"]), dtype=torch.float64)
    return totals.index_add_(0, cluster[known], samples[known])


def with_models(server: Server, models: Tensor, layout: Layout) -> Server:
    """Return the server with these models; the global vector is their mean weighted by samples."""
    models = layout.with_frozen(models, server.vector)
    server = replace(server, state={**server.state, "models": models})
    samples = samples_per_model(server)
    vector = weighted_sum(models, samples / samples.sum(), layout)
    return replace(server, vector=layout.with_frozen(vector, server.vector))


def _with_assignment(assignment: Assignment, uploads: Uploads) -> Server:
    """Return the part's server with the models and sample counts of this round's clients."""
    server, ids = assignment.server, torch.tensor(uploads.clients)
    old = server.state["cluster"]
    size = max(len(old), int(ids.max()) + 1)
    cluster, samples = torch.full((size,), -1), torch.zeros(size, dtype=torch.float64)
    cluster[: len(old)], samples[: len(old)] = old, server.state["samples"]
    cluster[ids], samples[ids] = assignment.cluster, uploads.samples
    return replace(server, state={**server.state, "cluster": cluster, "samples": samples})


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
