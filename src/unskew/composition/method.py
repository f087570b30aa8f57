"""A method: a list of parts, and the operations of a round that they make up.

The engine calls these operations in the order of a round, whether clients run here or on Flower::

    server: broadcast ─▶ client: prepare ─▶ objective, step by step ─▶ finish ─▶ server: aggregate

Every operation starts from FedAvg and applies the parts one by one, the last part first. A part
sees its own tensors only: they are stored as ``part/name``. The objective of a local step is in
:mod:`unskew.composition.objective`; which coordinates are trained, sent and kept is in
:mod:`unskew.composition.coordinates`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from unskew.aggregation.bounds import clipped
from unskew.aggregation.product import product
from unskew.aggregation.rule import weighted_mean
from unskew.aggregation.uploads import Uploads
from unskew.aggregation.weighting import Diagnostics, by_samples
from unskew.composition.coordinates import KEPT, Coordinates
from unskew.composition.hook_calls import call, weighting_of
from unskew.composition.objective import Objective
from unskew.composition.part_files import spec_name
from unskew.composition.parts import (
    Aspect,
    Part,
    Personalization,
    ServerSide,
    add_methods,
)
from unskew.composition.scopes import on_own_uploads, own_server, own_uploads, with_own, without_own
from unskew.composition.values import (
    Beginning,
    Client,
    ExtraTraining,
    Finished,
    Server,
    Stage,
    Start,
    Tensors,
    Trained,
)
from unskew.errors import UnskewError
from unskew.models.functional import FunctionalModel
from unskew.models.layout import Layout
from unskew.utils.specs import spec_of

if TYPE_CHECKING:
    from unskew.data.federation import Federation


@dataclass(frozen=True)
class Method(Objective, Coordinates):
    """Parts that are applied together; without any, FedAvg.

    :func:`unskew.methods.make_method` builds methods and refuses parts that clash.
    """

    def __post_init__(self) -> None:
        several = any(Aspect.NUMBER_OF_MODELS in part.replaces for part in self.parts)
        if several and not self.has_several_models:
            raise UnskewError(f"method: build {self.spec} with unskew.methods.make_method")

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if not cls.__module__.startswith("unskew."):
            raise TypeError(
                f"{cls.__name__} cannot derive from Method, which is a list of parts; derive it "
                "from ClientSide, ServerSide, Personalization or Setup of unskew.methods"
            )

    has_several_models = False
    """Whether the server keeps several models, of which each client uses one."""

    @cached_property
    def spec(self) -> str:
        """The spec string, such as ``fedprox:mu=0.1+ida``."""
        return "+".join(spec_of(part, spec_name(type(part))) for part in self.parts)

    @property
    def given_spec(self) -> str:
        """The spec string with all options that were given, also those at their default."""
        parts = self.parts
        return "+".join(spec_of(part, spec_name(type(part)), part.given_options) for part in parts)

    def __str__(self) -> str:
        return self.spec

    def __add__(self, other: "str | Part | Method") -> "Method":
        """Return both as one method: ``make_method("fedprox") + "ida"``."""
        return add_methods(self, other)

    def __radd__(self, other: str | Part) -> "Method":
        return add_methods(other, self)

    # The setup.

    def stages(self) -> tuple[Stage, ...]:
        """Return the stages of a run, in order; the last is the task."""
        stages: tuple[Stage, ...] = (Stage("task", self),)
        for part in self._setups:
            stages = call(part, "stages", stages)
        return stages

    def adapt(self, module: nn.Module, example: Tensor) -> nn.Module:
        """Return the network to train, given the run's."""
        for part in sorted(self._setups, key=lambda part: part.adapts_last):
            module = call(part, "adapt", module, example)
        return module

    def transform_federation(self, federation: "Federation") -> "Federation":
        """Return the federation to train on, given the run's."""
        for part in self._setups:
            federation = call(part, "transform_federation", federation)
        return federation

    def shared_samples(self, federation: "Federation", seed: int) -> tuple["Federation", Tensors]:
        """Return the federation to train on, and the samples that the server holds."""
        held: dict[str, Tensor] = {}
        for part in self._setups:
            federation, samples = call(part, "shared_samples", federation, seed)
            held |= part.prefixed(samples)
        return federation, held

    def candidates(self, clients: int, round_: int, seed: int) -> Sequence[int] | None:
        """Return the clients that may take part in a round, ascending; None means all clients."""
        part = self._replacing(Aspect.CANDIDATES)
        if part is None:
            return None
        found: Sequence[int] = call(part, "candidates", clients, round_, seed)
        return found

    def check(self, network: FunctionalModel, samples: Tensor) -> None:
        """Raise an error if a part cannot train a network; ``samples`` are a few test inputs."""
        for part in self._setups:
            call(part, "check", self, network, samples)

    def is_done(self, server: Server) -> bool:
        """Return whether a stage ends before all its rounds are run."""
        return any(call(part, "is_done", own_server(server, part)) for part in self._setups)

    # On the server.

    def begin(self, beginning: Beginning) -> Server:
        """Return the server's state before the first round of a stage."""
        state: dict[str, Tensor] = {}
        beginning = replace(beginning, sent_mask=self.sent_mask(beginning.layout))
        for part in self._server_sides:
            earlier = {name: own_server(each, part) for name, each in beginning.earlier.items()}
            state |= part.prefixed(call(part, "begin", replace(beginning, earlier=earlier)))
        return Server(beginning.vector, state)

    def broadcast(self, server: Server, client: int) -> Tensors:
        """Return the tensors sent to a client; ``model`` is the vector it trains."""
        payload = {"model": server.vector}
        for part in self._server_sides:
            sent = call(part, "broadcast", own_server(server, part), client)
            if sent:
                payload |= part.prefixed(sent)
        return payload

    def aggregate(self, server: Server, uploads: Uploads) -> tuple[Server, dict[str, Any]]:
        """Combine a round's uploads; the diagnostics hold at least the weight of each client."""
        received, keeping = server, list[ServerSide]()
        for part in self._server_sides:
            state = call(part, "receive", own_server(server, part), own_uploads(uploads, part))
            if state is None:
                keeping.append(part)
            else:
                received = with_own(received, part, state)
        if keeping:  # the round changes nothing but these parts
            weights = torch.zeros(len(uploads), dtype=torch.float64)
            return self._concluded(keeping, server, server, uploads, {"weights": weights})
        vector, diagnostics = self._combined(received, uploads)
        vector = uploads.layout.with_frozen(vector, server.vector)
        updated = self._stepped(received, vector, uploads)
        return self._concluded(self._server_sides, received, updated, uploads, dict(diagnostics))

    def _concluded(
        self,
        parts: Sequence[ServerSide],
        before: Server,
        after: Server,
        uploads: Uploads,
        diagnostics: dict[str, Any],
    ) -> tuple[Server, dict[str, Any]]:
        """Let parts conclude the round."""
        for part in parts:
            own, added = call(
                part,
                "conclude",
                own_server(before, part),
                own_server(after, part),
                own_uploads(uploads, part),
                diagnostics,
            )
            after = with_own(replace(after, vector=own.vector), part, own.state)
            diagnostics |= {
                f"{part.name}.{name}" if name in diagnostics else name: value
                for name, value in added.items()
            }
        return after, diagnostics

    def _combined(self, server: Server, uploads: Uploads) -> tuple[Tensor, Diagnostics]:
        """Combine the uploads into one vector; by default by a weighted mean."""
        part: ServerSide | None = self._replacing(Aspect.COMBINATION)
        if part is None:
            return self._mean(server, uploads)

        def mean(changed: Uploads) -> tuple[Tensor, Diagnostics]:
            return self._mean(server, replace(changed, extras=uploads.extras))

        own = own_server(server, part)
        combined: tuple[Tensor, Diagnostics] = call(
            part, "combine", own, own_uploads(uploads, part), mean
        )
        return combined

    def _mean(self, server: Server, uploads: Uploads) -> tuple[Tensor, Diagnostics]:
        factors = [
            on_own_uploads(weighting_of(part, own_server(server, part)), part)
            for part in self._server_sides
            if Aspect.WEIGHTS in part.adds
        ] or [by_samples()]
        weighting = factors[0] if len(factors) == 1 else product(*factors)
        if uploads.max_share is not None:
            weighting = clipped(weighting, high=max(uploads.max_share, 1 / len(uploads)))
        return weighted_mean(weighting).apply(uploads)

    def _stepped(self, server: Server, vector: Tensor, uploads: Uploads) -> Server:
        """Return the server after its step; by default the combined vector is the new model."""
        part: ServerSide | None = self._replacing(Aspect.SERVER_STEP)
        if part is None:
            return replace(server, vector=vector)
        own = own_uploads(uploads, part)
        after: Server = call(part, "step", own_server(server, part), vector, own)
        return with_own(replace(server, vector=after.vector), part, after.state)

    def model(self, server: Server) -> Tensor:
        """Return the global model to evaluate and save; by default the one that is sent."""
        part: ServerSide | None = self._replacing(Aspect.GLOBAL_MODEL)
        if part is None:
            return server.vector
        model: Tensor = call(part, "model", own_server(server, part))
        return model

    def outputs(self, server: Server) -> Sequence[Tensor]:
        """Return the models that a run ends with; by default only the global one."""
        return [self.model(server)]

    def seen_by(self, server: Server, client: int) -> Server:
        """Return what a remote client needs of the server for its :meth:`personal` model."""
        del client
        return Server(self.model(server))

    # On the client.

    def prepare(self, client: Client, payload: Tensors, state: Tensors) -> Start:
        """Build the start of local training from the payload and the client's state."""
        received = self.received(client, payload, state)
        return self._prepared(client, Start(received, received), payload, state)

    def _prepared(self, client: Client, start: Start, payload: Tensors, state: Tensors) -> Start:
        if not self._client_sides:
            return start
        refs: dict[str, Tensor] = dict(start.refs)
        for part in self._client_sides:
            own = (part.scoped(payload), part.scoped(state))
            start = call(part, "prepare", client, _with_refs(start, {}), *own)
            refs |= part.prefixed(start.refs)
        return _with_refs(start, refs)

    def received(self, client: Client, payload: Tensors, state: Tensors) -> Tensor:
        """Return the received model, with the client's own coordinates restored."""
        return self.with_kept(client.network.layout, payload["model"], state)

    def finish(self, client: Client, start: Start, trained: Trained, state: Tensors) -> Finished:
        """Return the extras to send and the state to keep: what is not sent, and the parts'."""
        extras: dict[str, Tensor] = {}
        kept, end_refs = self.kept(client.network.layout), trained.refs
        new = state if kept is None else {**state, KEPT: trained.vector[kept]}
        if self._needs_label_counts:
            extras["label_counts"] = torch.bincount(client.y.long(), minlength=client.classes)
        for part in self._client_sides:
            own_start = _with_refs(start, part.scoped(start.refs))
            own_state = part.scoped(state)
            if end_refs:
                trained = replace(trained, refs=part.scoped(end_refs))
            finished = call(part, "finish", client, own_start, trained, own_state)
            extras |= part.prefixed(finished.extras)
            if finished.state or own_state:
                new = without_own(new, part) | part.prefixed(finished.state)
        return Finished(extras, new)

    def extra_trainings(self) -> tuple[ExtraTraining, ...]:
        """Return the local trainings that come before the main one, in order."""
        return tuple(
            each for part in self._client_sides for each in call(part, "extra_trainings", self)
        )

    # The personal model.

    def personal(self, layout: Layout, server: Server, state: Tensors) -> Tensor:
        """Return the client's personal model: the global one, with its own coordinates."""
        model = self.with_kept(layout, self.model(server), state)
        part: Personalization | None = self._replacing(Aspect.PERSONAL_MODEL)
        return model if part is None else call(part, "personal", model, part.scoped(state))

    def fine_tuning(self) -> ExtraTraining | None:
        """Return how a personal model is fine-tuned before it is evaluated; None: not at all."""
        part: Personalization | None = self._replacing(Aspect.FINE_TUNING)
        return None if part is None else call(part, "fine_tuning")


def _with_refs(start: Start, refs: Tensors) -> Start:
    """Return the start with other references; ``replace`` takes several times as long."""
    return Start(start.vector, start.received, refs, start.sample_weights)
