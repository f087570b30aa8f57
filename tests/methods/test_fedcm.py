"""FedCM: FedAvg as a special case, two rounds by hand, and MoFedSAM without a perturbation."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import unskew as us
from toys import federation_of, vector_of
from unskew.aggregation.uploads import Uploads
from unskew.composition.values import Server
from unskew.errors import UnskewError
from unskew.methods import make_method

OPTIONS = {"model": "mlp:hidden=6", "rounds": 3, "batch_size": 8, "lr": 0.1}


@pytest.mark.parametrize("runner", ["loop", "vectorised"])
def test_with_alpha_1_it_is_fedavg_bit_for_bit(federation, runner):
    options = OPTIONS | {"runner": runner}
    methods = ("fedavg", "fedcm:alpha=1")
    assert torch.equal(*(vector_of(us.train(federation, m, **options)) for m in methods))


def test_mofedsam_without_a_perturbation_is_fedcm(federation):
    methods = ("fedcm:alpha=0.3", "mofedsam:rho=0,alpha=0.3")
    torch.testing.assert_close(*(vector_of(us.train(federation, m, **OPTIONS)) for m in methods))


def test_rounds_follow_the_algorithm_of_the_paper():
    """Full batches, two steps per round: v = alpha g + (1 - alpha) D, D = -(w' - w) / (lr K)."""
    rng = np.random.default_rng(0)
    clients = [(rng.normal(size=(6, 5)), rng.integers(0, 3, 6)) for _ in range(3)]
    alpha, lr, rounds = 0.4, 0.3, 3
    options = {"rounds": rounds, "steps": 2, "batch_size": 6, "lr": lr}
    torch.manual_seed(0)
    module = nn.Linear(5, 3)
    weights = torch.cat([module.weight.detach().flatten(), module.bias.detach()]).double()
    run = us.train(federation_of(*clients), f"fedcm:alpha={alpha}", model=module, **options)

    def gradient(w, x, y):
        w = w.clone().requires_grad_()
        logits = torch.as_tensor(x, dtype=torch.float32).double() @ w[:15].view(3, 5).T + w[15:]
        return torch.autograd.grad(F.cross_entropy(logits, torch.as_tensor(y)), w)[0]

    momentum = torch.zeros_like(weights)
    for _ in range(rounds):
        ends = []
        for x, y in clients:
            local = weights
            for _ in range(2):
                local = local - lr * (alpha * gradient(local, x, y) + (1 - alpha) * momentum)
            ends.append(local)
        mean = torch.stack(ends).mean(0)
        momentum, weights = (weights - mean) / (2 * lr), mean
    torch.testing.assert_close(vector_of(run).double(), weights, rtol=1e-4, atol=1e-5)


def test_the_momentum_by_hand():
    """Updates -2 and -6 after effective steps 1 and 3, equal samples: mean -4 over mean 2."""
    extras = {"fedcm/effective_step": [torch.tensor(1.0), torch.tensor(3.0)]}
    uploads = Uploads.of(torch.tensor([[3.0], [-1]]), previous=torch.tensor([5.0]), extras=extras)
    server, _ = make_method("fedcm").aggregate(Server(torch.tensor([5.0])), uploads)
    assert server.state["fedcm/momentum"].tolist() == [2.0]


def test_coordinates_that_stay_follow_their_gradient(federation):
    run = us.train(federation, "fedcm+fedper", **OPTIONS)
    assert torch.isfinite(vector_of(run)).all()


def test_the_training_loss_is_that_of_the_samples(federation):
    """The momentum changes gradients, not the reported loss: the first round's is FedAvg's."""
    options = OPTIONS | {"rounds": 1, "steps": 1}
    losses = [
        us.train(federation, m, **options).metrics[0]["train_loss"] for m in ("fedavg", "fedcm")
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


def test_it_needs_sgd(federation):
    with pytest.raises(UnskewError, match="optimizer: fedcm estimates gradients"):
        us.train(federation, "fedcm", rounds=1, optimizer="adam", model="logistic")
