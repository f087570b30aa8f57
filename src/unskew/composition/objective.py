"""What the clients of a method minimise: the loss of a batch, with what the parts change in it."""

from contextlib import nullcontext
from dataclasses import replace
from functools import cached_property

from torch import Tensor

from unskew.composition.declared import Parts
from unskew.composition.hook_calls import call
from unskew.composition.parts import Aspect, ClientSide
from unskew.composition.values import Perturbation, Step, Tensors
from unskew.models.functional import Batch, Buffers, ForwardPass, FunctionalModel


class Objective(Parts):
    """The objective of a local step, which all parts of the client side make up."""

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
            perturbation = call(self._perturbing, "perturbation", step, own_refs)
            moved, linear = _perturbed(step, perturbation)
            step = replace(step, shift=perturbation.shift)
        with network.capture_passes() if reads else nullcontext(passes) as passes:
            loss = (self._losses(moved, refs) * batch.scale).sum()
        if linear is not None:
            loss = loss + (linear - linear.detach())
        if passes:
            step = replace(step, forward_pass=passes[0])
        for part in self._with_terms:
            term = call(part, "loss_term", step, part.scoped(refs))
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
                changed |= part.prefixed(call(part, "next_refs", step, part.scoped(refs)))
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
        losses: Tensor = call(part, "losses", step, part.scoped(refs))
        return losses

    def proximal_strength(self) -> float:
        """Return the total strength mu of the terms mu/2 ||w - start||^2 in the objective."""
        return float(sum(call(part, "proximal_strength") for part in self._client_sides))

    def noise_per_sample(self, network: FunctionalModel) -> int:
        """Return how many random numbers (``batch.noise``) each sample of a step gets."""
        part: ClientSide | None = self._replacing(Aspect.LOSS)
        return network.goal.noise_per_sample if part is None else part.noise_per_sample

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
    def _with_terms(self) -> tuple[ClientSide, ...]:
        return tuple(part for part in self._client_sides if Aspect.LOCAL_LOSS in part.adds)

    @cached_property
    def _perturbing(self) -> ClientSide | None:
        part: ClientSide | None = self._replacing(Aspect.PERTURBATION)
        return part


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
