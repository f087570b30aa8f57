"""Ditto: the global model is FedAvg's, the personal one stays near it."""

from dataclasses import replace

import pytest
import torch
from torch import nn

import unskew as us
from toys import loss_after_steps, vector_of
from unskew.composition.parts import ClientSide
from unskew.composition.values import Client, Server, Start
from unskew.errors import UnskewError
from unskew.methods import make_method
from unskew.methods.ditto import Ditto
from unskew.models import make
from unskew.models.functional import Batch, FunctionalModel

OPTIONS = {"model": "mlp:hidden=6", "rounds": 3, "batch_size": 8, "lr": 0.1}
RUNNERS = pytest.mark.parametrize("runner", ["loop", "vectorised"])


@RUNNERS
@pytest.mark.parametrize("lam", [0, 0.1, 10])
def test_the_global_model_is_fedavg_s_bit_for_bit(federation, runner, lam):
    options = OPTIONS | {"runner": runner, "lr": 0.05}
    plain, ditto = (us.train(federation, m, **options) for m in ("fedavg", f"ditto:lam={lam}"))
    assert torch.equal(vector_of(plain), vector_of(ditto))
    assert plain.cost == ditto.cost
    assert plain.last("local") == ditto.last("local")
    assert plain.last("personal", "loss") != ditto.last("personal", "loss")


@RUNNERS
def test_without_strength_the_personal_model_is_local_training(federation, runner):
    """Full batches: three rounds of two epochs are six steps of gradient descent."""
    run = us.train(
        federation, "ditto:lam=0,epochs=2", runner=runner, **OPTIONS | {"batch_size": 1000}
    )
    losses = []
    for k in range(4):
        module = make("mlp:hidden=6", (5,), 3)
        losses.append(loss_after_steps(module, module, federation, k, steps=6))
    assert run.client_tables[-1]["loss"] == pytest.approx(losses, rel=1e-4)


def test_a_step_of_one_over_lam_without_gradient_ends_at_the_global_model():
    """One class: the loss is flat, so only the proximal term acts, towards the received model."""
    (training,) = make_method(Ditto(lam=4)).extra_trainings()
    network = FunctionalModel(nn.Linear(1, 1))
    client = Client(0, torch.ones(1, 1), torch.zeros(1, dtype=torch.int64), network, 1)
    received, own = torch.tensor([1.0, 0.0]), torch.tensor([3.0, -1.0])
    start = training.method.prepare(client, {"model": received}, {"ditto/personal": own})
    assert torch.equal(start.vector, own)
    weights = own.clone().requires_grad_()
    batch = Batch(client.x, client.y, torch.ones(1))
    loss = training.method.objective(network, weights, {}, batch, start.refs)
    (gradient,) = torch.autograd.grad(loss, weights)
    torch.testing.assert_close(own - 0.25 * gradient, received)


class StartsElsewhere(ClientSide):
    """Training starts at 2, not at the received model."""

    def prepare(self, client, start, payload, state):
        return replace(start, vector=torch.full_like(start.vector, 2))


@pytest.mark.parametrize(
    "method", [Ditto() + StartsElsewhere(), StartsElsewhere() + Ditto()], ids=str
)
def test_the_proximal_center_is_the_received_model_wherever_training_starts(method):
    (training,) = method.extra_trainings()
    network = FunctionalModel(nn.Linear(1, 1))
    client = Client(0, torch.ones(1, 1), torch.zeros(1, dtype=torch.int64), network, 1)
    received, own = torch.tensor([1.0, 0.0]), torch.tensor([3.0, -1.0])
    state = {"ditto/personal": own}
    assert method.prepare(client, {"model": received}, state).vector.tolist() == [2.0, 2.0]
    start = training.method.prepare(client, {"model": received}, state)
    assert torch.equal(start.refs["fedprox/center"], received)


@pytest.mark.parametrize("name", ["ditto+fedala", "fedala+ditto"])
def test_two_kinds_of_personal_models_are_refused(name):
    with pytest.raises(UnskewError, match="both replace the personal models"):
        make_method(name)


def test_with_several_models_the_proximal_center_is_the_client_s_choice():
    (training,) = make_method("ifca:models=2+ditto").extra_trainings()
    assert training.name == "personal"
    network = FunctionalModel(nn.Linear(1, 2, bias=False))
    client = Client(0, torch.ones(1, 1), torch.ones(1, dtype=torch.int64), network, 2)
    wrong, right = torch.tensor([5.0, 0.0]), torch.tensor([0.0, 5.0])
    start = training.method.prepare(client, {"model": wrong, "ifca/others": right[None]}, {})
    assert torch.equal(start.refs["fedprox/center"], right)


@RUNNERS
def test_with_several_models_and_own_heads_the_global_models_are_unaffected(federation, runner):
    """The client also chooses among incomplete models when it trains its personal one."""
    plain, ditto = (
        us.train(federation, f"ifca:models=2+{name}", runner=runner, **OPTIONS)
        for name in ("fedper", "ditto+fedper")
    )
    assert torch.equal(vector_of(plain), vector_of(ditto))
    assert plain.last("personal", "loss") != ditto.last("personal", "loss")


def test_a_client_that_never_trained_uses_the_global_model():
    method, server = make_method(Ditto()), Server(torch.ones(2))
    layout = FunctionalModel(nn.Linear(1, 1)).layout
    assert torch.equal(method.personal(layout, server, {}), server.vector)
    own = torch.zeros(2)
    assert torch.equal(method.personal(layout, server, {"ditto/personal": own}), own)


def test_a_stronger_proximal_term_keeps_personal_models_nearer(federation):
    distances = []
    for lam in (0.0, 0.5, 5.0):
        ends = {}

        class Measured(Ditto):
            def finish(self, client, start: Start, trained, state):
                ends[client.id] = (state["personal"] - start.vector).norm()  # noqa: B023
                return super().finish(client, start, trained, state)

        us.train(federation, Measured(lam=lam), runner="loop", **OPTIONS | {"epochs": 4})
        distances.append(torch.stack([ends[k] for k in sorted(ends)]))
    assert bool((distances[0] > distances[1]).all())
    assert bool((distances[1] > distances[2]).all())


def test_a_personal_model_that_diverges_is_discarded(federation):
    """The term is so strong that steps overshoot and diverge; the global model is unaffected."""
    run = us.train(federation, "ditto:lam=1e6,epochs=30", **OPTIONS)
    assert torch.isfinite(torch.tensor(run.last("personal", "loss")))
    assert torch.equal(vector_of(run), vector_of(us.train(federation, "fedavg", **OPTIONS)))


def test_a_run_resumes_bit_for_bit(federation, tmp_path):
    options = OPTIONS | {"cohort": 2}
    whole = us.train(federation, "ditto", **options)
    us.train(federation, "ditto", out=tmp_path, **options | {"rounds": 2})
    resumed = us.train(federation, "ditto", out=tmp_path, resume=True, **options)
    assert whole.last("personal", "loss") == resumed.last("personal", "loss")
