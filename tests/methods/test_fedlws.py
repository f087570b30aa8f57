"""FedLWS: FedAvg without shrinking, the factors by hand, and layers that cannot be shrunk."""

import pytest
import torch
from torch import nn

import unskew as us
from toys import vector_of
from unskew.aggregation.uploads import Uploads
from unskew.composition.values import Server
from unskew.errors import UnskewError
from unskew.methods import make_method
from unskew.methods.common.head import layers_of
from unskew.methods.fedlws import FedLWS
from unskew.models import make
from unskew.models.functional import FunctionalModel
from unskew.models.layout import Layout

OPTIONS = {"model": "mlp:hidden=6", "rounds": 3, "batch_size": 8, "lr": 0.1}


@pytest.mark.parametrize(
    ("runner", "model"), [("loop", "mlp:hidden=6,norm=batch"), ("vectorised", "mlp:hidden=6")]
)
def test_without_strength_it_is_fedavg_bit_for_bit(federation, runner, model):
    options = OPTIONS | {"runner": runner, "model": model}
    methods = ("fedavg", "fedlws:beta=0,min_tau=0")
    assert torch.equal(*(vector_of(us.train(federation, m, **options)) for m in methods))


def aggregated(uploads, **options):
    server, diagnostics = make_method(FedLWS(**options)).aggregate(
        Server(uploads.previous), uploads
    )
    return server.vector, diagnostics["layer_factors"][0]


def test_a_layer_by_hand():
    """The mean of (3, 0) and (3, 8) is (3, 4); each is 4 away, so tau = 0.1 * 4.

    The previous layer (0, 4) has length 4 and moves by 3: the factor is 4 / (4 + 0.4 * 3).
    """
    uploads = Uploads.of(torch.tensor([[3.0, 0], [3, 8]]), previous=torch.tensor([0.0, 4]))
    vector, factors = aggregated(uploads, beta=0.1, max_tau=1)
    assert factors.tolist() == pytest.approx([4 / 5.2])
    assert vector.tolist() == pytest.approx([3 * 4 / 5.2, 4 * 4 / 5.2])


@pytest.mark.parametrize(
    ("options", "tau"), [({"min_tau": 2, "max_tau": 3}, 2), ({"beta": 9, "max_tau": 0.5}, 0.5)]
)
def test_tau_has_two_bounds(options, tau):
    uploads = Uploads.of(torch.tensor([[3.0, 0], [3, 8]]), previous=torch.tensor([0.0, 4]))
    _, factors = aggregated(uploads, **options)
    assert factors.tolist() == pytest.approx([4 / (4 + tau * 3)])


def test_the_formula_of_every_layer_of_a_network():
    """The authors' steps on plain tensors: gradients, their mean, distances, clamp, factor."""
    torch.manual_seed(0)
    layout = FunctionalModel(make("mlp:hidden=6-4,norm=batch", (5,), 3, seed=0)).layout
    previous, stack = torch.randn(layout.size), torch.randn(4, layout.size)
    samples = torch.tensor([5.0, 1, 3, 2])
    vector, factors = aggregated(Uploads.of(stack, samples, layout, previous))
    mean = (samples / samples.sum()) @ stack
    layers = layers_of(layout)
    assert len(layers) == len(factors) == 3
    for layer, factor in zip(layers, factors, strict=True):
        old, new, rows = (
            torch.cat([each[..., entry.slice] for entry in layer], -1)
            for each in (previous, mean, stack)
        )
        gradients = rows - old
        spread = (gradients - gradients.mean(0)).norm(dim=1).mean()
        tau = (0.03 * spread).clamp(0.01, 0.2)
        expected = old.norm() / (old.norm() + tau * (new - old).norm())
        assert float(factor) == pytest.approx(float(expected), rel=1e-5)
        shrunk = torch.cat([vector[entry.slice] for entry in layer])
        torch.testing.assert_close(shrunk, new * expected)
    torch.testing.assert_close(  # statistics are not shrunk
        vector[layout.trainable : layout.counters.start],
        mean[layout.trainable : layout.counters.start],
    )


def test_a_layer_that_starts_at_zero_is_not_held_there(federation):
    module = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3))
    nn.init.zeros_(module[2].weight)
    nn.init.zeros_(module[2].bias)
    run = us.train(federation, "fedlws", **OPTIONS | {"model": module})
    assert bool(run.model[2].weight.any())


def test_a_layer_without_a_change_keeps_its_length():
    layout = Layout.of(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1)))
    previous = torch.ones(layout.size)
    stack = previous.repeat(3, 1)
    stack[:, 6:] += torch.arange(3.0)[:, None]
    vector, factors = aggregated(Uploads.of(stack, layout=layout, previous=previous))
    assert factors[0] == 1 > factors[1]
    assert torch.equal(vector[:6], previous[:6])


def test_it_shrinks_the_aggregate_of_other_methods(federation):
    norms = [
        vector_of(us.train(federation, method, **OPTIONS)).norm()
        for method in ("median", "median+fedlws:beta=1,max_tau=1", "ida+fedawa+fedlws")
    ]
    assert norms[1] < norms[0]
    assert torch.isfinite(norms[2])


def test_bounds_in_the_wrong_order_are_an_error():
    with pytest.raises(UnskewError, match="max_tau must be at least min_tau"):
        make_method("fedlws:min_tau=0.5")
