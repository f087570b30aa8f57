"""FedDecorr: FedAvg without the term, correlations by hand, and batches that have none."""

import numpy as np
import pytest
import torch
from torch import nn

import unskew as us
from toys import federation_of, vector_of
from unskew.composition.values import Step
from unskew.errors import UnskewError
from unskew.methods.feddecorr import FedDecorr, mean_squared_correlation
from unskew.models.functional import Batch, ForwardPass

OPTIONS = {"model": "mlp:hidden=6", "rounds": 3, "batch_size": 8, "lr": 0.1}


@pytest.mark.parametrize("runner", ["loop", "vectorised"])
def test_with_beta_0_it_is_fedavg_bit_for_bit(federation, runner):
    options, spec = OPTIONS | {"runner": runner}, "feddecorr:beta=0"
    assert torch.equal(*(vector_of(us.train(federation, m, **options)) for m in ("fedavg", spec)))


def test_by_hand():
    """(1, -1, 1, -1) against (1, -1, 1, -1) correlates by 1, against (1, 1, -1, -1) by 0.

    Variances divide by 3 and correlations by 4 samples, so that a correlation of 1 counts as 3/4.
    Of the six pairs of different features two have it.
    """
    one, other = torch.tensor([1.0, -1, 1, -1]), torch.tensor([1.0, 1, -1, -1])
    features = torch.stack([one, 5 * one + 2, other], 1)
    found = mean_squared_correlation(features, torch.ones(4))
    assert float(found) == pytest.approx(2 / 6 * 0.75**2, rel=1e-5)


def authors_loss(x):
    """The steps of the authors' loss, written out."""
    samples, width = x.shape
    scaled = (x - x.mean(0)) / (x.var(0) + 1e-8).sqrt()
    products = scaled.T @ scaled
    off = products[~torch.eye(width, dtype=torch.bool)]
    return off.square().mean() / samples


def term(part, features, scale):
    batch = Batch(torch.zeros(len(scale), 1), torch.zeros(len(scale)), scale)
    return part.loss_term(Step(None, None, {}, batch, ForwardPass(None, features)), {})


def test_the_literal_term_is_the_authors():
    torch.manual_seed(0)
    features = torch.randn(9, 4) @ torch.randn(4, 5)
    scale = torch.full((9,), 1 / 9)
    expected = 0.3 * authors_loss(features)
    torch.testing.assert_close(term(FedDecorr(beta=0.3, literal=True), features, scale), expected)
    torch.testing.assert_close(term(FedDecorr(beta=0.3), features, scale), expected / 9)


def test_padding_does_not_count():
    torch.manual_seed(0)
    features = torch.randn(7, 4)
    padded = torch.cat([features, 100 * torch.randn(3, 4)])
    present = torch.tensor([1.0] * 7 + [0] * 3)
    torch.testing.assert_close(
        mean_squared_correlation(padded, present),
        mean_squared_correlation(features, torch.ones(7)),
    )


@pytest.mark.parametrize("features", [torch.ones(4, 3), torch.randn(1, 3), torch.randn(5, 1)])
def test_constant_features_single_samples_and_single_features_have_no_gradient(features):
    features = features.clone().requires_grad_()
    value = mean_squared_correlation(features, torch.ones(len(features)))
    (gradient,) = torch.autograd.grad(value, features)
    assert float(value.detach()) == 0
    assert not bool(gradient.any())


def test_runners_agree_on_clients_of_unequal_size():
    rng = np.random.default_rng(0)
    clients = [(rng.normal(size=(n, 5)), rng.integers(0, 3, n)) for n in (1, 9, 17, 4)]
    federation = federation_of(*clients)
    runs = [
        us.train(federation, "feddecorr:beta=1", runner=r, **OPTIONS)
        for r in ("loop", "vectorised")
    ]
    torch.testing.assert_close(*map(vector_of, runs), rtol=1e-4, atol=1e-5)


def test_it_decorrelates(federation):
    def correlation(beta):
        options = OPTIONS | {"rounds": 20, "evaluate_every": 0}
        model = us.train(federation, f"feddecorr:beta={beta}", **options).model
        with torch.no_grad():
            features = model.body(torch.from_numpy(federation.train.x).float())
        return float(mean_squared_correlation(features, torch.ones(len(features))))

    assert correlation(1) < 0.8 * correlation(0)


def test_a_network_without_a_head_is_an_error(federation):
    module = nn.Sequential(nn.Unflatten(1, (1, 5)), nn.Conv1d(1, 3, 5), nn.Flatten())
    with pytest.raises(UnskewError, match="feddecorr needs the input of a linear head"):
        us.train(federation, "feddecorr", **OPTIONS | {"model": module})
