"""q-FedAvg and AFL: special cases, one round by hand, and a lower worst loss."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import unskew as us
from toys import vector_of
from unskew.aggregation.simplex import nearest_on_simplex
from unskew.aggregation.uploads import Uploads
from unskew.composition.values import Client, Server, Start, Trained
from unskew.methods import make_method
from unskew.methods.afl import AFL
from unskew.methods.common.client_loss import training_loss
from unskew.methods.qffl import QFFL
from unskew.models.functional import FunctionalModel

OPTIONS = {"model": "mlp:hidden=8", "rounds": 3, "batch_size": 8, "lr": 0.1}
LOGISTIC = 5 * 3 + 3


@pytest.mark.parametrize("runner", ["loop", "vectorised"])
@pytest.mark.parametrize(
    ("special", "plain"), [("qffl:q=0", "fedavg"), ("afl:mixture_lr=0", "mean")]
)
def test_special_cases_bit_for_bit(federation, runner, special, plain):
    for cohort in (4, 2):
        options = OPTIONS | {"runner": runner, "cohort": cohort}
        first, second = (us.train(federation, method, **options) for method in (special, plain))
        assert torch.equal(vector_of(first), vector_of(second))


@pytest.mark.parametrize("method", ["qffl:q=2", "afl:mixture_lr=0.2"])
def test_vectorised_equals_the_loop(federation, method):
    runs = [us.train(federation, method, runner=r, **OPTIONS) for r in ("loop", "vectorised")]
    torch.testing.assert_close(vector_of(runs[0]), vector_of(runs[1]), rtol=1e-4, atol=1e-5)


def test_traffic(federation):
    for method, numbers in (("qffl", 2), ("afl", 1)):
        run = us.train(federation, method, model="logistic", rounds=2, evaluate_every=0)
        assert run.cost.parameters_up == 2 * 4 * (LOGISTIC + numbers)
        assert run.cost.bytes_up == 2 * 4 * 4 * (LOGISTIC + numbers)
        assert run.cost.parameters_down == 2 * 4 * LOGISTIC


def test_one_round_of_qffl_is_the_paper_s_formula():
    """Delta_k and h_k as the paper has them, from losses, models and learning rate."""
    torch.manual_seed(0)
    q, lr, dimensions = 1.7, 0.25, 6
    before, models = torch.randn(dimensions), torch.randn(3, dimensions)
    losses, samples = torch.tensor([0.5, 2.0, 1.2]).double(), torch.tensor([10.0, 5, 1]).double()
    deltas = (before - models).double() / lr
    h = q * losses ** (q - 1) * deltas.square().sum(1) + losses**q / lr
    step = ((samples * losses**q)[:, None] * deltas).sum(0) / (samples * h).sum()
    squared = (before - models).double().square().sum(1)
    sent = torch.stack([losses, q * squared / (lr * losses)], 1)
    extras = {"qffl/fairness": list(sent)}
    uploads = Uploads.of(models, samples=samples, previous=before, extras=extras)
    server, diagnostics = make_method(QFFL(q=q)).aggregate(Server(before), uploads)
    torch.testing.assert_close(server.vector.double(), before - step, rtol=1e-5, atol=1e-6)
    assert diagnostics["loss_before"].tolist() == losses.tolist()


def test_a_client_sends_its_loss_before_training_and_what_shortens_the_step(federation):
    x, y = (torch.from_numpy(each) for each in federation.train.client(0))
    client = Client(0, x, y, FunctionalModel(nn.Linear(5, 3)), 3, lr=0.5)
    start, end = torch.randn(LOGISTIC), torch.randn(LOGISTIC)
    finished = make_method(QFFL(q=3)).finish(client, Start(start, start), Trained(end, 1, 0.0), {})
    sent = finished.extras["qffl/fairness"]
    loss = training_loss(client, start)
    squared = float((end - start).square().sum())
    assert sent.tolist() == pytest.approx([loss, 3 * squared / (0.5 * loss)], rel=1e-5)


@given(
    q=st.floats(0, 20),
    losses=st.lists(st.floats(1e-6, 1e6), min_size=2, max_size=5),
)
def test_the_higher_the_loss_the_higher_the_weight(q, losses):
    sent = [torch.tensor([loss, 0.0]) for loss in losses]
    uploads = Uploads.of(torch.zeros(len(losses), 2), extras={"qffl/fairness": sent})
    _, diagnostics = make_method(QFFL(q=q)).aggregate(Server(torch.zeros(2)), uploads)
    order = np.argsort(losses)
    assert np.all(np.diff(diagnostics["weights"].numpy()[order]) >= -1e-12)


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=8))
def test_the_nearest_point_of_the_simplex(values):
    """Positive coordinates are lowered by the same amount; it would make the others negative."""
    values = torch.tensor(values).double()
    nearest = nearest_on_simplex(values)
    assert bool((nearest >= 0).all())
    assert float(nearest.sum()) == pytest.approx(1)
    lowered = (values - nearest)[nearest > 0]
    torch.testing.assert_close(lowered, lowered[:1].expand_as(lowered), rtol=0, atol=1e-9)
    assert bool((values[nearest == 0] <= lowered[0] + 1e-9).all())
    torch.testing.assert_close(nearest_on_simplex(nearest), nearest, rtol=0, atol=1e-12)


def agnostic(clients, losses, server, mixture_lr=0.1):
    models = torch.arange(1.0, len(clients) + 1)[:, None]
    extras = {"afl/loss_before": [torch.tensor(loss) for loss in losses]}
    uploads = Uploads.of(models, clients=clients, previous=server.vector, extras=extras)
    return make_method(AFL(mixture_lr=mixture_lr)).aggregate(server, uploads)


def test_two_rounds_of_afl_by_hand():
    server, diagnostics = agnostic([0, 1], [1.0, 3.0], Server(torch.zeros(1)))
    assert diagnostics["weights"].tolist() == [0.5, 0.5]
    assert server.vector.item() == 1.5
    mixture = server.state["afl/mixture"].tolist()
    assert mixture == pytest.approx([0.4, 0.6])  # +0.1 and +0.3, less 0.2
    server, diagnostics = agnostic([0, 1], [0.0, 20.0], server)
    assert server.vector.item() == pytest.approx(0.4 * 1 + 0.6 * 2)
    assert server.state["afl/mixture"].tolist() == [0.0, 1.0]


def test_new_clients_join_afl_with_an_even_share_and_clients_of_weight_zero_change_nothing():
    server, _ = agnostic([0], [1.0], Server(torch.zeros(1)))
    server, diagnostics = agnostic([0, 3], [1.0, 1.0], server)
    assert diagnostics["weights"].tolist() == [0.5, 0.5]
    assert server.state["afl/mixture"].tolist() == pytest.approx([0.5, -1, -1, 0.5])
    server, _ = agnostic([0, 3], [0.0, 50.0], server)
    stayed, diagnostics = agnostic([0], [0.0], server)
    assert diagnostics["weights"].tolist() == [0.0]
    assert torch.equal(stayed.vector, server.vector)


@pytest.mark.parametrize("method", ["qffl:q=2", "afl:mixture_lr=0.02"])
def test_the_highest_loss_falls(method):
    """Five clients follow one rule and the sixth another: its loss must fall."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(240, 4)).astype(np.float32)
    owner = np.repeat(np.arange(6), 40)
    y = np.where(owner == 5, x[:, 1] > 0, x[:, 0] > 0).astype(np.int64)
    federation = us.Federation.from_arrays(x, y, owner, holdout=0.25)
    options = {"model": "logistic", "rounds": 40, "lr": 0.2, "evaluate_every": 40}
    fair, plain = (us.train(federation, m, **options) for m in (method, "fedavg"))
    worst = [max(run.client_tables[-2]["loss"]) for run in (fair, plain)]
    assert worst[0] < worst[1] - 0.05
