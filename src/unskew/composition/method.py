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
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from unskew.aggregation.bounds import clipped
from unskew.aggregation.product import product
from unskew.aggregation.rule import weighted_mean
from unskew.aggregation.uploads import Uploads
from unskew.aggregation.weighting import Diagnostics, by_samples
from unskew.composition.description import described
from unskew.composition.part_files import spec_name
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
from unskew.composition.returned import expect, expect_pair, expect_tensors
from unskew.composition.scopes import on_own_uploads, own_server, own_uploads, with_own, without_own
from unskew.composition.values import (
    About,
    Beginning,
    Client,
    ExtraTraining,
    Finished,
    Perturbation,
    Server,
    Stage,
    Start,
    Step,
    Tensors,
    Trained,
)
from unskew.errors import UnskewError
from unskew.models import masks
from unskew.models.functional import Batch, Buffers, ForwardPass, FunctionalModel
from unskew.models.layout import Layout, TensorKind
from unskew.models.masks import none_if_empty, without
from unskew.utils.specs import spec_of

if TYPE_CHECKING:
    from unskew.data.federation import Federation

KEPT = "kept"
"""The key of a client's state that holds the coordinates which stay on the client."""


@dataclass(frozen=True)
class Method:
    """Parts that are applied together; without any, FedAvg.

    :func:`unskew.methods.make_method` builds methods and refuses parts that clash.
    """

    parts: tuple[Part, ...] = ()

    def __post_init__(self) -> None:
        several = any(Aspect.NUMBER_OF_MODELS in part.replaces for part in self.parts)
        if several and not self.has_several_models:
            raise UnskewError(f"method: build {self.spec} with unskew.methods.make_method")

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
        return "+".join(spec_of(part, spec_name(type(part))) for part in self.parts)

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

    @property
    def parts_for_classes(self) -> list[Part]:
        """The parts that cannot train a regression."""
        return [part for part in self.parts if part.needs_classes or part.needs]

    @cached_property
    def _needs_label_counts(self) -> bool:
        return any("label_counts" in part.needs for part in self.parts)

    @cached_property
    def _keeps_statistics(self) -> bool:
        return any(part.buffers == "local" for part in self.parts)

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
    def _with_terms(self) -> tuple[ClientSide, ...]:
        return tuple(part for part in self._client_sides if Aspect.LOCAL_LOSS in part.adds)

    @cached_property
    def _perturbing(self) -> ClientSide | None:
        part: ClientSide | None = self._replacing(Aspect.PERTURBATION)
        return part

    @property
    def reads_gradient(self) -> bool:
        """Whether a step needs the gradient of :meth:`samples_loss` before its own."""
        return self._perturbing is not None and self._perturbing.reads_gradient

    @cached_property
    def changing_refs(self) -> tuple[str, ...]:
        """The names of the references that change from step to step."""
        names = [part.prefixed(dict.fromkeys(part.changing_refs)) for part in self._client_sides]
        return tuple(name for own in names for name in own)

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
        for part in self._settings:
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
            sent = expect_tensors(part.broadcast(own_server(server, part), client))
            if sent:
                payload |= part.prefixed(sent)
        return payload

    def aggregate(self, server: Server, uploads: Uploads) -> tuple[Server, dict[str, Any]]:
        """Combine a round's uploads; the diagnostics hold at least the weight of each client."""
        received, keeping = server, list[ServerSide]()
        for part in self._server_sides:
            slots = part.receive(own_server(server, part), own_uploads(uploads, part))
            if slots is None:
                keeping.append(part)
            else:
                received = with_own(received, part, slots)
        if keeping:  # the round changes nothing but these parts
            weights = torch.zeros(len(uploads), dtype=torch.float64)
            return self._concluded(keeping, server, server, uploads, {"weights": weights})
        vector, diagnostics = self._combined(received, uploads)
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
            concluded = part.conclude(
                own_server(before, part),
                own_server(after, part),
                own_uploads(uploads, part),
                diagnostics,
            )
            own, added = expect_pair(concluded)
            after = with_own(replace(after, vector=own.vector), part, own.slots)
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

        return part.combine(own_server(server, part), own_uploads(uploads, part), mean)

    def _mean(self, server: Server, uploads: Uploads) -> tuple[Tensor, Diagnostics]:
        factors = [
            on_own_uploads(part.client_weights(own_server(server, part)), part)
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
        if not self._client_sides:
            return start
        refs: dict[str, Tensor] = dict(start.refs)
        for part in self._client_sides:
            own = (part.scoped(payload), part.scoped(state))
            start = expect(Start, part.prepare(client, _with_refs(start, {}), *own))
            refs |= part.prefixed(start.refs)
        return _with_refs(start, refs)

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
        return self.step_objective(network, weights, buffers, batch, refs)[0]

    def step_objective(
        self,
        network: FunctionalModel,
        weights: Tensor,
        buffers: Buffers,
        batch: Batch,
        refs: Tensors,
        gradient: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        """Return the objective, and the next values of :attr:`changing_refs`, in their order.

        ``gradient`` is that of :meth:`samples_loss`, for methods that read it.
        """
        step = Step(network, weights, buffers, batch, gradient=gradient)
        reads = any(part.reads_forward_pass for part in self._client_sides)
        passes: list[ForwardPass] = []
        moved, linear = step, None
        if self._perturbing is not None:
            own_refs = self._perturbing.scoped(refs)
            perturbation = expect(Perturbation, self._perturbing.perturbation(step, own_refs))
            moved, linear = _perturbed(step, perturbation)
            step = replace(step, shift=perturbation.shift)
        with network.capture_passes() if reads else nullcontext(passes) as passes:
            loss = (self._losses(moved, refs) * batch.scale).sum()
        if linear is not None:
            loss = loss + (linear - linear.detach())
        if passes:
            step = replace(step, forward_pass=passes[0])
        for part in self._with_terms:
            term = part.loss_term(step, part.scoped(refs))
            if term is not None:
                loss = loss + term
        return loss, *self._next_refs(step, refs)

    def _next_refs(self, step: Step, refs: Tensors) -> list[Tensor]:
        """Return the next values of :attr:`changing_refs`."""
        if not self.changing_refs:
            return []
        changed: dict[str, Tensor] = {}
        for part in self._client_sides:
            if part.changing_refs:
                changed |= part.prefixed(expect_tensors(part.next_refs(step, part.scoped(refs))))
        return [changed[name].detach() for name in self.changing_refs]

    def samples_loss(
        self,
        network: FunctionalModel,
        weights: Tensor,
        buffers: Buffers,
        batch: Batch,
        refs: Tensors,
    ) -> Tensor:
        """Return the loss of one batch without the terms that parts add."""
        step = Step(network, weights, buffers, batch)
        return (self._losses(step, refs) * batch.scale).sum()

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
        kept, end_refs = self.kept(client.network.layout), trained.refs
        new = state if kept is None else {**state, KEPT: trained.vector[kept]}
        if self._needs_label_counts:
            extras["label_counts"] = torch.bincount(client.y.long(), minlength=client.classes)
        for part in self._client_sides:
            own_start = _with_refs(start, part.scoped(start.refs))
            own_state = part.scoped(state)
            if end_refs:
                trained = replace(trained, refs=part.scoped(end_refs))
            finished = expect(Finished, part.finish(client, own_start, trained, own_state))
            extras |= part.prefixed(finished.extras)
            if finished.state or own_state:
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
        if not self._keeps_statistics:
            return None
        return none_if_empty(layout.mask(TensorKind.NORM_STATISTIC, TensorKind.COUNTER))

    def kept(self, layout: Layout) -> Tensor | None:
        """Mark the coordinates that the client keeps between rounds; None means none."""
        if not self._personalizations and not self._keeps_statistics:
            return None
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


def _perturbed(step: Step, perturbation: Perturbation) -> tuple[Step, Tensor | None]:
    """Return the step at the perturbed weights, and a term whose gradient is what it is mixed with.

    The perturbed weights depend on the weights by the gradient's share alone.
    """
    weights, share, rest = step.weights, perturbation.share, perturbation.rest
    shift = perturbation.shift.detach()
    if rest is None:
        return replace(step, weights=weights + shift), None
    constant = weights.detach()
    moved = constant + shift + share * (weights - constant)
    return replace(step, weights=moved), ((1 - share) * rest * weights).sum()


def _with_refs(start: Start, refs: Tensors) -> Start:
    """Return the start with other references; ``replace`` takes several times as long."""
    return Start(start.vector, start.received, refs, start.sample_weights)
