"""A method: a list of parts, and the operations of a round that they make up.

The engine calls these operations in the order of a round, whether clients run here or on Flower::

    server: broadcast ─▶ client: prepare ─▶ objective, step by step ─▶ finish ─▶ server: aggregate

Every operation starts from FedAvg and applies the parts one by one, the last part first. A part
sees its own tensors only: they are stored as ``part/name``.
"""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn

from unskew.aggregation.bounds import clipped
from unskew.aggregation.product import product
from unskew.aggregation.rule import weighted_mean
from unskew.aggregation.uploads import Uploads
from unskew.aggregation.weighting import ClientWeighting, Diagnostics, by_samples
from unskew.composition.description import described
from unskew.composition.parts import (
    Aspect,
    ClientSide,
    Part,
    Personalization,
    ServerSide,
    Setting,
    joined,
)
from unskew.composition.received import LABEL_COUNTS, TRAIN_ACCURACY, TRAIN_LOSS, Value
from unskew.composition.values import (
    About,
    Beginning,
    Client,
    ExtraTraining,
    Finished,
    Server,
    Stage,
    Start,
    Step,
    Tensors,
    Trained,
)
from unskew.models import masks
from unskew.models.functional import Batch, Buffers, ForwardPass, FunctionalModel
from unskew.models.layout import Layout, TensorKind
from unskew.models.masks import none_if_empty, without
from unskew.utils.specs import spec_of

if TYPE_CHECKING:
    from unskew.data.federation import Federation

T = TypeVar("T")

KEPT = "kept"
"""The key of a client's state that holds the coordinates which stay on the client."""


@dataclass(frozen=True)
class Method:
    """Parts that are applied together; without any, FedAvg."""

    parts: tuple[Part, ...] = ()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if not cls.__module__.startswith("unskew."):
            raise TypeError(
                f"{cls.__name__} cannot derive from Method, which is a list of parts; derive it "
                "from ClientSide, ServerSide, Personalization or Setting of unskew.methods"
            )

    has_several_models = False
    """Whether the server keeps several models, of which each client uses one."""

    @cached_property
    def spec(self) -> str:
        """The spec string, such as ``fedprox:mu=0.1+ida``."""
        return "+".join(spec_of(part, part.name) for part in self.parts) or "fedavg"

    def __str__(self) -> str:
        return self.spec

    def __add__(self, other: "str | Part | Method") -> "Method":
        """Return both as one method: ``make_method("fedprox") + "ida"``."""
        return joined(self, other)

    def __radd__(self, other: str | Part) -> "Method":
        return joined(other, self)

    # What the parts declare.

    @cached_property
    def about(self) -> About:
        """The description of the method."""
        return described(self.parts)

    @cached_property
    def needs_train_accuracy(self) -> bool:
        """Whether clients measure their accuracy on their own training samples."""
        return any("train_accuracy" in part.needs for part in self.parts)

    @cached_property
    def receives(self) -> Mapping[str, Value]:
        """What the server accepts of each value that clients send besides the model."""
        measured = {"train_accuracy": TRAIN_ACCURACY, "label_counts": LABEL_COUNTS}
        values = {"train_loss": TRAIN_LOSS}
        for part in self.parts:
            values |= {name: measured[name] for name in part.needs}
            values |= part.prefixed(part.receives)
        return values

    @cached_property
    def sends_model(self) -> bool:
        """Whether the model is sent; False where it is trained on the server."""
        return all(part.sends_model for part in self.parts)

    @cached_property
    def has_own_personal_models(self) -> bool:
        """Whether a part computes or fine-tunes the clients' personal models."""
        personal, tuned = Aspect.PERSONAL_MODEL, Aspect.FINE_TUNING
        return self._replacing(personal) is not None or self._replacing(tuned) is not None

    @cached_property
    def _client_sides(self) -> tuple[ClientSide, ...]:
        return tuple(part for part in reversed(self.parts) if isinstance(part, ClientSide))

    @cached_property
    def _server_sides(self) -> tuple[ServerSide, ...]:
        return tuple(part for part in reversed(self.parts) if isinstance(part, ServerSide))

    @cached_property
    def _personalizations(self) -> tuple[Personalization, ...]:
        return tuple(part for part in reversed(self.parts) if isinstance(part, Personalization))

    @cached_property
    def _settings(self) -> tuple[Setting, ...]:
        return tuple(part for part in reversed(self.parts) if isinstance(part, Setting))

    def _replacing(self, aspect: Aspect) -> Any:
        """Return the part that replaces an aspect; None if no part does."""
        return next((part for part in self.parts if aspect in part.replaces), None)

    # The setting.

    def stages(self) -> tuple[Stage, ...]:
        """Return the stages of a run, in order; the last is the task."""
        stages: tuple[Stage, ...] = (Stage("task", self),)
        for part in self._settings:
            stages = part.stages(stages)
        return stages

    def adapt(self, module: nn.Module, example: Tensor) -> nn.Module:
        """Return the network to train, given the run's."""
        for part in sorted(self._settings, key=lambda part: part.adapts_last):
            module = part.adapt(module, example)
        return module

    def transform_federation(self, federation: "Federation") -> "Federation":
        """Return the federation to train on, given the run's."""
        for part in self._settings:
            federation = part.transform_federation(federation)
        return federation

    def shared_samples(self, federation: "Federation", seed: int) -> tuple["Federation", Tensors]:
        """Return the federation to train on, and the samples that the server holds."""
        held: dict[str, Tensor] = {}
        for part in self._settings:
            federation, samples = part.shared_samples(federation, seed)
            held |= part.prefixed(samples)
        return federation, held

    def candidates(self, clients: int, round_: int, seed: int) -> Sequence[int] | None:
        """Return the clients that may take part in a round, ascending; None means all clients."""
        part = self._replacing(Aspect.CANDIDATES)
        return None if part is None else part.candidates(clients, round_, seed)

    def check(self, network: FunctionalModel, samples: Tensor) -> None:
        """Raise an error if a part cannot train a network; ``samples`` are a few test inputs."""
        for part in self.parts:
            part.check(self, network, samples)

    def is_done(self, server: Server) -> bool:
        """Return whether a stage ends before all its rounds are run."""
        return any(part.is_done(own_server(server, part)) for part in self._settings)

    # On the server.

    def begin(self, beginning: Beginning) -> Server:
        """Return the server's state before the first round of a stage."""
        slots: dict[str, Tensor] = {}
        beginning = replace(beginning, travels=self.travels(beginning.layout))
        for part in self._server_sides:
            earlier = {name: own_server(each, part) for name, each in beginning.earlier.items()}
            slots |= part.prefixed(part.begin(replace(beginning, earlier=earlier)))
        return Server(beginning.vector, slots)

    def broadcast(self, server: Server, client: int) -> Tensors:
        """Return the tensors sent to a client; ``model`` is the vector it trains."""
        payload = {"model": server.vector}
        for part in self._server_sides:
            sent = _expect_tensors(part.broadcast(own_server(server, part), client))
            payload |= part.prefixed(sent)
        return payload

    def aggregate(self, server: Server, uploads: Uploads) -> tuple[Server, dict[str, Any]]:
        """Combine a round's uploads; the diagnostics hold at least the weight of each client."""
        keeps_model = False
        received = server
        for part in self._server_sides:
            slots = part.receive(own_server(server, part), own_uploads(uploads, part))
            if slots is None:
                keeps_model = True
            else:
                received = with_own(received, part, slots)
        diagnostics: dict[str, Any] = {"weights": torch.zeros(len(uploads), dtype=torch.float64)}
        updated = received
        if not keeps_model:
            vector, found = self._combined(received, uploads)
            updated, diagnostics = self._stepped(received, vector, uploads), dict(found)
        for part in self._server_sides:
            concluded = part.conclude(
                own_server(received, part),
                own_server(updated, part),
                own_uploads(uploads, part),
                diagnostics,
            )
            after, added = _expect_pair(concluded)
            updated = with_own(replace(updated, vector=after.vector), part, after.slots)
            diagnostics |= {
                f"{part.name}.{name}" if name in diagnostics else name: value
                for name, value in added.items()
            }
        return updated, diagnostics

    def _combined(self, server: Server, uploads: Uploads) -> tuple[Tensor, Diagnostics]:
        """Combine the uploads into one vector; by default by a weighted mean."""
        part: ServerSide | None = self._replacing(Aspect.COMBINATION)
        if part is None:
            return self._mean(server, uploads)

        def mean(changed: Uploads) -> tuple[Tensor, Diagnostics]:
            return self._mean(server, replace(changed, extras=uploads.extras))

        return part.combine(own_server(server, part), own_uploads(uploads, part), mean)

    def _mean(self, server: Server, uploads: Uploads) -> tuple[Tensor, Diagnostics]:
        factors = [
            _on_own_uploads(part.client_weights(own_server(server, part)), part)
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
        after = part.step(own_server(server, part), vector, own_uploads(uploads, part))
        return with_own(replace(server, vector=after.vector), part, after.slots)

    def model(self, server: Server) -> Tensor:
        """Return the global model to evaluate and save; by default the one that is sent."""
        part: ServerSide | None = self._replacing(Aspect.GLOBAL_MODEL)
        return server.vector if part is None else part.model(own_server(server, part))

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
        refs: dict[str, Tensor] = dict(start.refs)
        for part in self._client_sides:
            own = (part.scoped(payload), part.scoped(state))
            start = _expect(Start, part.prepare(client, replace(start, refs={}), *own))
            refs |= part.prefixed(start.refs)
        return replace(start, refs=refs)

    def received(self, client: Client, payload: Tensors, state: Tensors) -> Tensor:
        """Return the received model, with the client's own coordinates restored."""
        return self.with_kept(client.network.layout, payload["model"], state)

    def objective(
        self,
        network: FunctionalModel,
        weights: Tensor,
        buffers: Buffers,
        batch: Batch,
        refs: Tensors,
    ) -> Tensor:
        """Return the loss of one batch; a pure function, so that it can be vectorised."""
        step = Step(network, weights, buffers, batch)
        reads = any(part.reads_forward_pass for part in self._client_sides)
        passes: list[ForwardPass] = []
        with network.capture_passes() if reads else nullcontext(passes) as passes:
            loss = (self._losses(step, refs) * batch.scale).sum()
        if passes:
            step = replace(step, forward_pass=passes[0])
        for part in self._client_sides:
            term = part.loss_term(step, part.scoped(refs))
            if term is not None:
                loss = loss + term
        return loss

    def _losses(self, step: Step, refs: Tensors) -> Tensor:
        part: ClientSide | None = self._replacing(Aspect.LOSS)
        if part is None:
            return step.network.losses(step.weights, step.buffers, step.batch)
        return part.losses(step, part.scoped(refs))

    def proximal_strength(self) -> float:
        """Return the total strength mu of the terms mu/2 ||w - start||^2 in the objective."""
        return sum(part.proximal_strength() for part in self._client_sides)

    def noise_per_sample(self, network: FunctionalModel) -> int:
        """Return how many random numbers (``batch.noise``) each sample of a step gets."""
        part: ClientSide | None = self._replacing(Aspect.LOSS)
        return network.goal.noise_per_sample if part is None else part.noise_per_sample

    def finish(self, client: Client, start: Start, trained: Trained, state: Tensors) -> Finished:
        """Return the extras to send and the state to keep: what does not travel, and the parts'."""
        extras: dict[str, Tensor] = {}
        kept = self.kept(client.network.layout)
        new = state if kept is None else {**state, KEPT: trained.vector[kept]}
        if any("label_counts" in part.needs for part in self.parts):
            extras["label_counts"] = torch.bincount(client.y.long(), minlength=client.classes)
        for part in self._client_sides:
            own_start = replace(start, refs=part.scoped(start.refs))
            finished = _expect(
                Finished, part.finish(client, own_start, trained, part.scoped(state))
            )
            extras |= part.prefixed(finished.extras)
            new = without_own(new, part) | part.prefixed(finished.state)
        return Finished(extras, new)

    def extra_trainings(self) -> tuple[ExtraTraining, ...]:
        """Return the local trainings that come before the main one, in order."""
        return tuple(each for part in self._client_sides for each in part.extra_trainings(self))

    # Which coordinates are trained and sent, and the personal model.

    def trains(self, layout: Layout) -> Tensor | None:
        """Mark the trainable coordinates that local training may change; None means all."""
        mask = None
        for part in self._personalizations:
            frozen = part.freezes(layout)
            mask = mask if frozen is None else without(mask, frozen)
        return mask

    def travels(self, layout: Layout) -> Tensor | None:
        """Mark the coordinates that are sent and averaged; None means all."""
        statistics = self._statistics(layout)
        mask = None if statistics is None else ~statistics
        for part in self._personalizations:
            stays = part.stays(layout)
            mask = mask if stays is None else without(mask, stays)
        return mask

    def shares_on_upload(self, layout: Layout) -> Tensor | None:
        """Mark the coordinates that stay on the client but are also uploaded; None means none."""
        mask = self._statistics(layout)
        for part in self._personalizations:
            shared = part.shares_on_upload(layout)
            mask = mask if shared is None else masks.joined(mask, shared)
        return mask

    def _statistics(self, layout: Layout) -> Tensor | None:
        """Mark the norm statistics if a part keeps them on clients; None means none."""
        if all(part.buffers == "average" for part in self.parts):
            return None
        return none_if_empty(layout.mask(TensorKind.NORM_STATISTIC, TensorKind.COUNTER))

    def kept(self, layout: Layout) -> Tensor | None:
        """Mark the coordinates that the client keeps between rounds; None means none."""
        travels = self.travels(layout)
        mask = None if travels is None else ~travels
        for part in self._personalizations:
            constant = part.constant(layout)
            if mask is not None and constant is not None:
                mask = none_if_empty(mask & ~constant)
        return mask

    def with_kept(self, layout: Layout, model: Tensor, state: Tensors) -> Tensor:
        """Return a received model with the client's own coordinates restored."""
        kept = self.kept(layout)
        if kept is None or KEPT not in state:
            return model
        own = model.clone()
        own[kept] = state[KEPT]
        return own

    def personal(self, layout: Layout, server: Server, state: Tensors) -> Tensor:
        """Return the client's personal model: the global one, with its own coordinates."""
        model = self.with_kept(layout, self.model(server), state)
        part: Personalization | None = self._replacing(Aspect.PERSONAL_MODEL)
        return model if part is None else part.personal(model, part.scoped(state))

    def fine_tuning(self) -> ExtraTraining | None:
        """Return how a personal model is fine-tuned before it is evaluated; None: not at all."""
        part: Personalization | None = self._replacing(Aspect.FINE_TUNING)
        return None if part is None else part.fine_tuning()


# The tensors of one part.


def own_server(server: Server, part: Part) -> Server:
    """Return the server as a part sees it."""
    return Server(server.vector, part.scoped(server.slots))


def own_uploads(uploads: Uploads, part: Part) -> Uploads:
    """Return the uploads as a part sees them."""
    return replace(uploads, extras=part.scoped(uploads.extras))


def with_own(server: Server, part: Part, slots: Tensors) -> Server:
    """Return the server with a part's tensors replaced."""
    return replace(server, slots=without_own(server.slots, part) | part.prefixed(slots))


def without_own(tensors: Tensors, part: Part) -> dict[str, Tensor]:
    """Return all tensors but those of one part."""
    own = part.prefixed(part.scoped(tensors))
    return {name: each for name, each in tensors.items() if name not in own}


def _on_own_uploads(weighting: ClientWeighting, part: Part) -> ClientWeighting:
    """Return a weighting that reads the extras of its part alone."""

    def derive(uploads: Uploads) -> tuple[Tensor, Diagnostics]:
        return weighting.derive(own_uploads(uploads, part))

    return ClientWeighting(weighting.name, derive)


def _expect(kind: type[T], value: Any) -> T:
    """Return what a hook returned if it has the right type; otherwise raise an error."""
    if not isinstance(value, kind):
        raise TypeError(f"it must return a {kind.__name__} (got {type(value).__name__})")
    return value


def _expect_tensors(value: Any) -> Tensors:
    """Return what a hook returned if it is a mapping; otherwise raise an error."""
    if not isinstance(value, Mapping):
        raise TypeError(f"it must return a mapping of tensors (got {type(value).__name__})")
    return value


def _expect_pair(value: Any) -> tuple[Server, dict[str, Any]]:
    """Return what ``conclude`` returned if it has the right types; otherwise raise an error."""
    match value:
        case (Server() as server, dict() as diagnostics):
            return server, diagnostics
    raise TypeError("conclude must return a Server and a dict of diagnostics")
