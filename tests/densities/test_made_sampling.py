"""Samples of a MADE follow its density, and the density sums to one."""

import itertools

import pytest
import torch

from unskew.densities import sampling
from unskew.densities.sampling import draw, draw_from_uniforms, log_density
from unskew.errors import UnskewError
from unskew.models import make
from unskew.models.functional import FunctionalModel
from unskew.utils.rng import torch_generator

SPECS = ["made:hidden=8", "made:hidden=30,order=random", "made:hidden=9-14-5,order=random"]


def random_network(spec, features):
    """A network with weights far from zero, so that features depend strongly on each other."""
    network = FunctionalModel(make(spec, (features,), 2))
    generator = torch.Generator().manual_seed(4)
    return network, 1.5 * torch.randn(network.layout.size, generator=generator).double()


def all_binary(features):
    return torch.tensor(list(itertools.product([0.0, 1.0], repeat=features))).double()


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("features", [1, 2, 6])
def test_probabilities_of_all_binary_samples_sum_to_one(spec, features):
    network, weights = random_network(spec, features)
    probabilities = log_density(network, weights, all_binary(features)).exp()
    assert probabilities.sum().item() == pytest.approx(1, abs=1e-12)
    assert probabilities.max() < 1


@pytest.mark.parametrize("spec", SPECS)
def test_samples_follow_the_density(spec):
    features, count = 6, 40_000
    network, weights = random_network(spec, features)
    probabilities = log_density(network, weights, all_binary(features)).exp()
    samples = draw(network, weights, count, torch_generator(0, "test"))
    indices = (samples @ (2.0 ** torch.arange(features - 1, -1, -1).double())).long()
    counts = torch.bincount(indices, minlength=2**features)
    common = probabilities * count >= 5
    expected = torch.cat([probabilities[common], probabilities[~common].sum()[None]]) * count
    observed = torch.cat([counts[common], counts[~common].sum()[None]])
    statistic = ((observed - expected).square() / expected.clamp(min=1e-9)).sum().item()
    freedom = len(expected) - 1
    assert freedom >= 10
    assert statistic < freedom + 4 * (2 * freedom) ** 0.5


def pass_by_pass(network, weights, uniforms):
    """Draw one feature at a time, each with a whole pass through the network."""
    x = torch.zeros_like(uniforms)
    for feature in network.module.degrees[0].argsort():
        logits = network(weights, {}, x)
        x[:, feature] = (uniforms[:, feature] < logits[:, feature].sigmoid()).to(x)
    return x


@pytest.mark.parametrize("spec", [*SPECS, "made:hidden=3"])
@pytest.mark.parametrize("features", [1, 2, 17])
def test_computing_each_unit_once_gives_the_same_samples(spec, features):
    network, weights = random_network(spec, features)
    generator = torch.Generator().manual_seed(1)
    uniforms = torch.rand(300, features, generator=generator).double()
    samples = draw_from_uniforms(network, weights, uniforms)
    assert torch.equal(samples, pass_by_pass(network, weights, uniforms))
    assert set(samples.unique().tolist()) == {0, 1}


def test_images_are_drawn_as_flat_rows_of_pixels():
    network = FunctionalModel(make("made:hidden=5,order=random", (1, 3, 3), 10))
    weights = torch.zeros(network.layout.size)
    weights[-9:] = torch.tensor([50.0, -50] * 4 + [50])  # the biases of the outputs
    samples = draw(network, weights, 4, torch_generator(0, "test"))
    assert samples.tolist() == [[1, 0, 1, 0, 1, 0, 1, 0, 1]] * 4
    assert samples.dtype == torch.float32


def test_samples_depend_on_the_generator(monkeypatch):
    network, weights = random_network("made", 5)
    one, same, other = (
        draw(network, weights, 50, torch_generator(seed, "test")) for seed in (0, 0, 1)
    )
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert draw(network, weights, 0, torch_generator(0, "test")).shape == (0, 5)
    monkeypatch.setattr(sampling, "_CHUNK", 7)
    assert draw(network, weights, 50, torch_generator(0, "test")).shape == (50, 5)


def test_bytes_are_grey_levels():
    network, weights = random_network("made", 3)
    grey = torch.tensor([[0, 51, 255]], dtype=torch.uint8)
    expected = log_density(network, weights, torch.tensor([[0, 0.2, 1]]).double())
    found = log_density(network, weights.float(), grey)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("bad", [-0.1, 1.5, float("nan")])
def test_features_outside_the_unit_interval_are_rejected(bad):
    network, weights = random_network("made", 3)
    with pytest.raises(UnskewError, match="x must lie between 0 and 1"):
        log_density(network, weights, torch.tensor([[0, bad, 1]]).double())


def test_other_networks_have_no_density():
    network = FunctionalModel(make("mlp", (3,), 2))
    weights = torch.zeros(network.layout.size)
    with pytest.raises(UnskewError, match="network must be a MADE \\(got Classifier\\)"):
        draw(network, weights, 3, torch_generator(0, "test"))
    with pytest.raises(UnskewError, match="network must be a MADE"):
        log_density(network, weights, torch.zeros(1, 3))
