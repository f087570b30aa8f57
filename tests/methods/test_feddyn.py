"""FedDyn: its terms by hand, the mean slope h, convergence, and the evaluated model."""

import pytest
import torch
from torch import nn

import unskew as us
from toys import slope, small_federation, vector_of
from unskew.aggregation.uploads import Uploads
from unskew.composition.values import Server
from unskew.errors import UnskewError
from unskew.methods import make_method
from unskew.methods.feddyn import FedDyn
from unskew.models.functional import Batch, FunctionalModel

pytestmark = pytest.mark.usefixtures("hooks_called_once")

QUICK = {"model": "logistic", "batch_size": 8, "lr": 0.1}


def test_the_terms_by_hand():
    """One class, so the task's loss is 0 and flat: only -<g, w> and the quadratic."""
    weights = torch.tensor([3.0, -1.0], requires_grad=True)
    refs = {"feddyn/center": torch.tensor([1.0, 0.0]), "feddyn/slope": torch.tensor([0.5, 2.0])}
    batch = Batch(torch.ones(1, 1), torch.tensor([0]), torch.ones(1))
    network, method = FunctionalModel(nn.Linear(1, 1)), make_method(FedDyn(alpha=0.5))
    loss = method.objective(network, weights, {}, batch, refs)
    (gradient,) = torch.autograd.grad(loss, weights)
    assert loss.item() == pytest.approx(0.25 * (4 + 1))  # the linear term does not change the loss
    assert gradient.tolist() == [-0.5 + 1.0, -2.0 - 0.5]


def test_the_server_by_hand():
    """Two of four clients moved from 1 to 2 and to 4: h = -alpha/4 (1 + 3), mean 3."""
    uploads = Uploads.of(torch.tensor([[2.0], [4.0]]), samples=[10, 90], previous=torch.ones(1))
    uploads = Uploads(**{**vars(uploads), "population": 4})
    method = make_method(FedDyn(alpha=0.5))
    server, _ = method.aggregate(Server(torch.ones(1)), uploads)
    assert server.state["feddyn/slope"].tolist() == [-0.5]
    assert method.model(server).tolist() == [3.0]
    assert server.vector.tolist() == [3.0 + 0.5 / 0.5]
    sent = make_method(FedDyn(alpha=0.5, evaluate="sent"))
    assert sent.model(server).tolist() == [4.0]


@pytest.mark.parametrize("cohort", [1, 2, 4])
def test_h_is_the_mean_slope_of_all_clients(federation, cohort):
    slopes, h = {}, []

    class Watched(FedDyn):
        def finish(self, client, start, trained, state):
            finished = super().finish(client, start, trained, state)
            slopes[client.id] = finished.state["slope"]
            return finished

        def conclude(self, before, after, uploads, diagnostics):
            h.append(after.state["slope"])
            return super().conclude(before, after, uploads, diagnostics)

    us.train(federation, Watched(alpha=0.1), rounds=5, cohort=cohort, **QUICK)
    everyone = torch.stack([slopes.get(k, torch.zeros_like(h[0])) for k in range(4)])
    torch.testing.assert_close(h[-1], everyone.mean(0), rtol=1e-4, atol=1e-6)


def test_the_first_round_is_mean_with_a_proximal_term(federation):
    """All slopes are zero then, and the mean of the clients is evaluated."""
    options = QUICK | {"rounds": 1, "epochs": 3}
    dyn = us.train(federation, "feddyn:alpha=0.2", **options)
    prox = us.train(federation, "fedprox:mu=0.2+mean", **options)
    torch.testing.assert_close(vector_of(dyn), vector_of(prox), rtol=1e-6, atol=1e-7)
    sent = us.train(federation, "feddyn:alpha=0.2,evaluate=sent", **options)
    assert not torch.allclose(vector_of(sent), vector_of(prox), atol=1e-3)


def test_it_converges_where_the_mean_of_the_losses_is_flat():
    federation = small_federation(sizes=(30, 30, 30), holdout=0)
    options = {"model": "logistic", "batch_size": 1000, "lr": 0.3, "steps": 12, "rounds": 14}
    slopes = {}
    for name in ("mean", "feddyn:alpha=0.3"):
        run = us.train(federation, name, weight_decay=0.1, evaluate_every=0, **options)
        slopes[name] = slope(run, federation, weight_decay=0.1)
    assert slopes["feddyn:alpha=0.3"] < 5e-4
    assert slopes["mean"] > 1e-3


def test_it_sends_nothing_more_than_fedavg(federation):
    runs = [us.train(federation, name, rounds=3, **QUICK) for name in ("fedavg", "feddyn")]
    assert runs[0].cost == runs[1].cost


def test_alpha_must_be_positive():
    with pytest.raises(UnskewError, match="alpha"):
        make_method("feddyn:alpha=0")
