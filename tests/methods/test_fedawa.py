"""FedAWA: FedAvg without steps, the objective and a step by hand, and what full steps lead to."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import unskew as us
from toys import federation_of, vector_of
from unskew.aggregation.uploads import Uploads
from unskew.composition.values import Server
from unskew.methods import make_method
from unskew.methods.fedawa import FedAWA

OPTIONS = {"model": "mlp:hidden=6", "rounds": 3, "batch_size": 8, "lr": 0.1}

PREVIOUS = torch.tensor([1.0, 0.0])
UPDATES = torch.tensor([[0.0, 1.0], [0.0, 1.0], [0.0, -2.0]])


def uploads_of(updates=UPDATES, previous=PREVIOUS, samples=(1, 1, 2), **options):
    return Uploads.of(previous + updates, list(samples), previous=previous, **options)


def weights_after(rounds, uploads, **options):
    """The weights of the last of several rounds with the same uploads, and the server."""
    server, method = Server(uploads.previous), make_method(FedAWA(**options))
    for _ in range(rounds):
        after, diagnostics = method.aggregate(server, uploads)
        server = Server(uploads.previous, after.state)
    return diagnostics["weights"], server


def objective(logits, updates, previous, distance="cosine"):
    """The authors' loss as plain sums over vectors, with gradients by autograd."""
    weights = torch.softmax(logits, 0)
    mean = (weights[:, None] * updates).sum(0)
    spread = (updates - mean).norm(dim=1)
    models = previous + updates
    if distance == "cosine":
        away = 1 - torch.cosine_similarity(models, previous[None], dim=1)
    else:
        away = updates.square().mean(1)
    return (weights * (spread + away)).sum()


@pytest.mark.parametrize("runner", ["loop", "vectorised"])
def test_without_a_learning_rate_it_is_fedavg_bit_for_bit(federation, runner):
    for cohort in (4, 2):
        options = OPTIONS | {"runner": runner, "cohort": cohort}
        runs = [us.train(federation, m, **options) for m in ("fedavg", "fedawa:weight_lr=0")]
        assert torch.equal(*map(vector_of, runs))


def test_a_step_by_hand():
    """The mean is -1/2; clients 0 and 1 are 3/2 away from it, client 2 as well.

    With a = (1/4, 1/4, 1/2) the derivative of the spread is zero, since the three distances are
    equal and shifts of the mean cancel. The cosines of (1, 1) and (1, -2) with (1, 0) are 0.7071
    and 0.4472, so clients 0 and 1 gain; Adam's first step has the length of the learning rate.
    """
    weights, server = weights_after(1, uploads_of(), weight_lr=0.1)
    torch.testing.assert_close(
        server.state["fedawa/logs"], torch.tensor([0.1, 0.1, -0.1]).double(), rtol=1e-5, atol=1e-5
    )
    expected = torch.tensor([np.exp(0.1), np.exp(0.1), 2 * np.exp(-0.1)])
    torch.testing.assert_close(weights, expected / expected.sum(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("distance", ["cosine", "squared"])
@pytest.mark.parametrize("literal", [False, True])
def test_rounds_are_adam_on_the_authors_objective(distance, literal):
    torch.manual_seed(1)
    updates, previous = torch.randn(4, 7).double(), torch.randn(7).double()
    samples = torch.tensor([3.0, 10, 1, 6]).double()
    shares = samples / samples.sum()
    leaf = (shares if literal else shares.log()).clone().requires_grad_()
    for _ in range(2):  # a new optimizer per round, as theirs
        adam = torch.optim.Adam([leaf], 0.01, (0.5, 0.999))
        for _ in range(3):
            used = leaf.detach().clone()
            adam.zero_grad()
            objective(leaf, updates, previous, distance).backward()
            adam.step()
    expected = torch.softmax(used if literal else leaf.detach(), 0)
    uploads = uploads_of(updates.float(), previous.float(), samples)
    options = {"weight_lr": 0.01, "steps": 3, "distance": distance, "literal": literal}
    weights, _ = weights_after(2, uploads, **options)
    torch.testing.assert_close(weights, expected, rtol=1e-5, atol=1e-6)


def test_the_literal_weights_are_nearly_uniform():
    weights, _ = weights_after(1, uploads_of(samples=(90, 9, 1)), literal=True)
    expected = torch.softmax(torch.tensor([0.9, 0.09, 0.01]).double(), 0)
    torch.testing.assert_close(weights, expected)  # before the first step


def test_many_steps_give_all_weight_to_one_client():
    """With one client the disagreement is zero, so the objective's minimum is degenerate."""
    torch.manual_seed(0)
    uploads = uploads_of(torch.randn(5, 9), torch.randn(9), (1,) * 5)
    weights, _ = weights_after(1, uploads, weight_lr=0.1, steps=300)
    assert weights.max() > 0.99


@given(st.integers(1, 5), st.floats(0.0, 1.0), st.booleans())
def test_weights_are_valid_for_any_updates(clients, spread, literal):
    torch.manual_seed(clients)
    updates = spread * torch.randn(clients, 3)
    uploads = uploads_of(updates, torch.zeros(3), (2,) * clients)
    weights, _ = weights_after(2, uploads, steps=3, literal=literal)
    assert torch.isfinite(weights).all()
    assert float(weights.sum()) == pytest.approx(1)


def test_a_client_keeps_its_factor_until_it_takes_part_again():
    method, server = make_method(FedAWA(weight_lr=0.1)), Server(PREVIOUS)
    for clients in ((0, 5, 2), (1, 3, 4), (0, 5, 2)):
        after, _ = method.aggregate(server, uploads_of(clients=clients))
        server = Server(PREVIOUS, after.state)
    logs = server.state["fedawa/logs"]  # rows are sorted by id: client 5 holds the second update
    assert logs.shape == (6,)
    torch.testing.assert_close(logs[[1, 3]], torch.tensor([0.1, 0.1]).double(), rtol=0, atol=1e-5)
    assert logs[0] > 0.15


def test_identical_clients_keep_equal_weights():
    x = np.random.default_rng(0).normal(size=(20, 5))
    y = np.arange(20) % 3
    fed = federation_of((x, y), (x, y), (x, y))
    run = us.train(fed, "fedawa:weight_lr=0.1", **OPTIONS | {"batch_size": 20})
    for table in run.client_tables:  # their models differ by rounding
        np.testing.assert_allclose(table["weight"], 1 / 3, atol=1e-5)


def test_the_weights_of_a_run_follow_the_updates(federation):
    runs = [us.train(federation, m, **OPTIONS) for m in ("fedavg", "fedawa:weight_lr=0.1")]
    assert not torch.equal(*map(vector_of, runs))
