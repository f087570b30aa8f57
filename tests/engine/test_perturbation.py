"""Parts that perturb the weights of a step, and references that change from step to step."""

import pytest
import torch
from torch import nn

import unskew as us
from toys import small_federation, vector_of
from unskew.composition.values import Perturbation
from unskew.engine.private_steps import check_private
from unskew.errors import UnskewError
from unskew.methods import Aspect, Finished, make_method
from unskew.models.functional import FunctionalModel

pytestmark = pytest.mark.usefixtures("hooks_called_once")

QUICK = {"rounds": 2, "batch_size": 4, "lr": 0.1, "model": "mlp:hidden=6"}
DROPOUT = nn.Sequential(nn.Linear(5, 8), nn.Dropout(0.5), nn.Linear(8, 3))
EQUAL = small_federation(sizes=(12, 12, 12), holdout=0)


class Still(us.ClientSide):
    """Reads the gradient and perturbs nothing."""

    replaces = frozenset({Aspect.PERTURBATION})
    reads_gradient = True

    def perturbation(self, step, refs):
        return Perturbation(0 * step.gradient)


@pytest.mark.parametrize(
    "options",
    [
        {"runner": "loop"},
        {"runner": "loop", "model": DROPOUT},
        {"runner": "loop", "model": "mlp:hidden=6,norm=batch"},
        {"runner": "vectorised"},
        {"runner": "vectorised", "model": "mlp:hidden=6,norm=batch"},
    ],
)
def test_no_perturbation_is_fedavg_bit_for_bit(options):
    """Dropout masks are drawn once per step, and running statistics count a batch once."""
    first, second = (us.train(EQUAL, each, **QUICK | options) for each in (Still(), "fedavg"))
    assert torch.equal(vector_of(first), vector_of(second))


def test_running_statistics_are_those_of_the_weights_themselves():
    """One step from the same weights: the perturbed pass leaves the statistics alone."""
    options = QUICK | {"rounds": 1, "steps": 1, "model": "mlp:hidden=6,norm=batch"}
    first, second = (
        dict(us.train(EQUAL, each, **options).model.named_buffers())
        for each in ("fedsam:rho=5", "fedavg")
    )
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("runner", ["loop", "vectorised"])
def test_frozen_coordinates_are_not_perturbed(federation, runner):
    """FedBABU trains the body alone, so the gradient of its head reads zero."""
    seen = []

    class Spy(Still):
        changing_refs = ("slope",)

        def prepare(self, client, start, payload, state):
            slope = torch.zeros(client.network.layout.trainable)
            return us.methods.Start(start.vector, start.received, {"slope": slope})

        def next_refs(self, step, refs):
            return {"slope": step.gradient}

        def finish(self, client, start, trained, state):
            seen.append(trained.refs["slope"])
            return Finished()

    us.train(federation, make_method("fedbabu") + Spy(), **QUICK | {"runner": runner, "rounds": 1})
    head = 6 * 3 + 3
    assert all(not each[-head:].any() and each[:-head].any() for each in seen)


COUNTED = {}


class Counting(us.ClientSide):
    """Counts a client's steps and sums its batch sizes, in references."""

    changing_refs = ("steps", "samples")

    def prepare(self, client, start, payload, state):
        refs = {"steps": torch.zeros(()), "samples": torch.zeros(()), "one": torch.ones(())}
        return us.methods.Start(start.vector, start.received, refs)

    def next_refs(self, step, refs):
        samples = (step.batch.scale > 0).sum()
        return {"samples": refs["samples"] + samples, "steps": refs["steps"] + refs["one"]}

    def finish(self, client, start, trained, state):
        COUNTED[client.id] = (trained.refs["steps"].item(), trained.refs["samples"].item())
        return Finished()


@pytest.mark.parametrize("runner", ["loop", "vectorised"])
@pytest.mark.parametrize("cohort", [1, None])
def test_references_change_from_step_to_step(federation, runner, cohort):
    """Clients take different numbers of steps, and a cohort of one shares nothing."""
    COUNTED.clear()
    options = QUICK | {"runner": runner, "epochs": 2, "rounds": 4 if cohort else 1}
    us.train(federation, make_method("fedprox") + Counting(), cohort=cohort, **options)
    sizes = [len(federation.train.client(k)[1]) for k in range(len(federation))]
    for k, counted in COUNTED.items():
        assert counted == (2 * -(-sizes[k] // 4), 2 * sizes[k])


def test_a_method_that_reads_gradients_is_not_private():
    network = FunctionalModel(nn.Linear(2, 2))
    for method in (make_method("fedsam"), make_method(Counting())):
        with pytest.raises(UnskewError, match=r"privacy: .* would not be private"):
            check_private(method, network)


def test_a_hook_that_returns_something_else_is_named(federation):
    class Wrong(Still):
        def perturbation(self, step, refs):
            return step.gradient

    with pytest.raises(UnskewError, match="must return a Perturbation"):
        us.train(federation, Wrong(), **QUICK)
