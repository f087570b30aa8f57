"""MADE: dependencies between outputs and inputs, parameter counts, losses, and vmap."""

import copy
import itertools
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.func import jacrev, vmap
from torch.nn.functional import binary_cross_entropy

from unskew.engine.runners import suits_vectorising
from unskew.models import make
from unskew.models.bernoulli import bernoulli_losses
from unskew.models.functional import Batch, FunctionalModel
from unskew.models.layout import flatten
from unskew.models.made import draw_degrees

SPECS = ["made:hidden=9", "made:hidden=12-7,order=random", "made:hidden=5-6-7,masks=3"]


def filled(spec, shape, seed=1):
    """A network with positive weights, so that every ReLU is active and every connection counts."""
    network = FunctionalModel(make(spec, shape, 10))
    generator = torch.Generator().manual_seed(seed)
    weights = 0.1 + torch.rand(network.layout.size, generator=generator)
    return network, weights


@pytest.mark.parametrize("spec", SPECS)
def test_outputs_depend_only_on_features_of_smaller_degree(spec):
    network, weights = filled(spec, (1, 2, 4))
    x = torch.rand(1, 1, 2, 4)
    jacobian = jacrev(lambda x: network(weights, {}, x))(x).view(8, 8)
    degrees = network.module.degrees[0]
    hidden = [set(layer.tolist()) for layer in network.module.degrees[1:]]
    for i, j in itertools.product(range(8), range(8)):
        # A path exists if each layer has a unit of at least the degree of the previous one.
        lowest = degrees[j]
        for layer in hidden:
            lowest = min((unit for unit in layer if unit >= lowest), default=np.inf)
        assert (jacobian[i, j] != 0) == (lowest < degrees[i])
        if degrees[j] >= degrees[i]:
            assert jacobian[i, j] == 0
    assert (jacobian != 0).any()


@given(
    st.integers(1, 20),
    st.lists(st.integers(1, 30), min_size=1, max_size=3),
    st.integers(0, 99),
    st.sampled_from(["natural", "random"]),
)
def test_degrees_are_a_permutation_and_every_unit_is_connected(features, widths, masks, order):
    inputs, *hidden = draw_degrees(features, widths, masks, order)
    assert sorted(inputs) == list(range(1, features + 1))
    assert [len(layer) for layer in hidden] == widths
    for below, layer in itertools.pairwise([inputs, *hidden]):
        assert layer.min() >= below.min()
        assert layer.max() <= max(1, features - 1)
    again = draw_degrees(features, widths, masks, order)
    assert all(map(np.array_equal, (inputs, *hidden), again))


def test_orders():
    assert draw_degrees(5, [3], 0, "natural")[0].tolist() == [1, 2, 3, 4, 5]
    assert draw_degrees(50, [3], 0, "random")[0].tolist() != list(range(1, 51))


def test_hidden_degrees_are_uniformly_distributed():
    _, hidden = draw_degrees(5, [4000], 0, "natural")
    counts = np.bincount(hidden, minlength=6)
    assert counts[[0, 5]].tolist() == [0, 0]
    assert (abs(counts[1:5] - 1000) < 120).all()  # more than four deviations of 27.4


def test_masks_depend_on_their_own_seed_only():
    one, other = make("made", (6,), 2, seed=0), make("made", (6,), 2, seed=9)
    drawn = make("made:masks=1", (6,), 2, seed=0)
    assert torch.equal(one.layers.hidden1.mask, other.layers.hidden1.mask)
    assert not torch.equal(one.layers.hidden1.weight, other.layers.hidden1.weight)
    assert not torch.equal(one.layers.hidden1.mask, drawn.layers.hidden1.mask)


@pytest.mark.parametrize(
    ("spec", "shape", "expected"),
    [
        ("made:hidden=30", (1, 28, 28), 47_854),
        ("made:hidden=50", (1, 32, 32), 103_474),
        ("made:hidden=400", (1, 28, 28), 628_384),
        ("made:hidden=100-50", (4,), (4 * 100 + 100) + (100 * 50 + 50) + (50 * 4 + 4)),
    ],
)
def test_parameters_are_counted_without_masks(spec, shape, expected):
    module = make(spec, shape, 10)
    network = FunctionalModel(module)
    assert network.layout.size == network.layout.trainable == expected
    assert network.layout.nbytes() == 4 * expected
    assert not any("mask" in name for name in module.state_dict())


def test_copies_include_the_masks():
    module = make("made:masks=5", (7,), 2).eval()
    x = torch.rand(3, 7)
    for copied in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert torch.equal(copied(x), module(x))
        assert copied.layers.output.mask is not module.layers.output.mask
    assert module.double()(x.double()).dtype == torch.float64


def test_the_logit_of_a_single_feature_is_its_bias():
    network, weights = filled("made:hidden=4", (1,))
    logits = network(weights, {}, torch.tensor([[0.0], [1.0]]))
    assert torch.equal(logits, weights[-1].expand(2, 1))


@pytest.mark.parametrize("spec", SPECS)
def test_vmap_over_a_cohort_equals_the_loop(spec):
    network = FunctionalModel(make(spec, (1, 2, 4), 10))
    assert suits_vectorising(network, torch.zeros(2, 1, 2, 4), torch.device("cpu"))
    nets = [make(spec, (1, 2, 4), 10, seed=seed) for seed in (1, 2)]
    rows = torch.stack([flatten(net, network.layout) for net in nets])
    x = torch.rand(2, 3, 1, 2, 4)

    def loss(row, x):
        return network.losses(row, {}, Batch(x, x, x)).sum()

    cohort = rows.clone().requires_grad_()
    vmap(loss)(cohort, x).sum().backward()
    for row, gradient, samples in zip(rows, cohort.grad, x, strict=True):
        alone = row.clone().requires_grad_()
        loss(alone, samples).backward()
        torch.testing.assert_close(gradient, alone.grad)


def test_masked_connections_get_no_gradient():
    module = make("made", (6,), 2)
    module(torch.rand(4, 6)).sum().backward()
    for layer in (module.layers.hidden1, module.layers.output):
        assert not layer.weight.grad[layer.mask == 0].any()
        assert layer.weight.grad[layer.mask == 1].any()


def test_the_loss_is_the_cross_entropy_summed_over_features():
    network, weights = filled("made:hidden=9", (2, 3))
    x, weights = torch.rand(5, 2, 3).double(), weights.double()
    batch = Batch(x, torch.zeros(5), torch.ones(5))
    probabilities = network(weights, {}, x).sigmoid()
    expected = binary_cross_entropy(probabilities, x.flatten(1), reduction="none").sum(1)
    torch.testing.assert_close(network.losses(weights, {}, batch), expected)
    metrics = network.goal.metrics(network, weights, {}, batch)
    assert list(metrics) == ["loss"]
    torch.testing.assert_close(metrics["loss"], expected)


def test_the_loss_is_numerically_stable():
    logits = torch.tensor([[1e4], [-1e4], [0.0], [30.0], [100.0]], requires_grad=True)
    x = torch.tensor([[0.0], [0.0], [0.25], [0.0], [1.0]])
    losses = bernoulli_losses(logits, x)
    torch.testing.assert_close(losses, torch.tensor([1e4, 0, np.log(2), 30, 0]).float())
    losses.sum().backward()
    torch.testing.assert_close(logits.grad, logits.detach().sigmoid() - x)


def test_training_learns_that_one_feature_copies_the_other():
    network = FunctionalModel(make("made:hidden=8", (2,), 10))
    weights = flatten(network.module, network.layout).requires_grad_()
    x = torch.tensor([[0.0, 0.0], [1.0, 1.0]])
    batch = Batch(x, torch.zeros(2), torch.full((2,), 0.5))
    optimizer = torch.optim.Adam([weights], 0.1)
    for _ in range(100):
        optimizer.zero_grad()
        (network.losses(weights, {}, batch) * batch.scale).sum().backward()
        optimizer.step()
    # Independent features would cost 2 log 2.
    loss = network.losses(weights, {}, batch).mean().item()
    assert loss == pytest.approx(np.log(2), abs=0.02)
