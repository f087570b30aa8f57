"""The beta-VAE: its loss by hand, its parts with given weights, and vmap."""

import math

import pytest
import torch
from torch.distributions import Normal, kl_divergence
from torch.func import vmap

from unskew.engine.runners import suits_vectorising
from unskew.errors import UnskewError
from unskew.models import make
from unskew.models.functional import Batch, FunctionalModel
from unskew.models.layout import flatten
from unskew.models.vae import draw_codes

SMALL = "vae:hidden=6-5,latent=3,beta=4,mean=0.25,sd=0.5"


def batch_of(x, noise_per_sample, seed=0):
    generator = torch.Generator().manual_seed(seed)
    noise = torch.rand(len(x), noise_per_sample, generator=generator).clamp(1e-6, 1 - 1e-6)
    return Batch(x, torch.zeros(len(x)), torch.ones(len(x)), noise)


def small(seed=0):
    network = FunctionalModel(make(SMALL, (1, 2, 4), 10, seed=seed))
    return network, 3 * flatten(network.module, network.layout)


def test_parameters_of_the_thesis():
    layers = [(784, 512), (512, 256), (256, 2), (256, 2), (2, 256), (256, 512), (512, 784)]
    expected = sum(inputs * outputs + outputs for inputs, outputs in layers)
    assert FunctionalModel(make("vae", (1, 28, 28), 10)).layout.size == expected == 1_068_820
    assert make("vae", (1, 28, 28), 10).goal.noise_per_sample == 2


def test_the_loss_by_the_definition():
    network, weights = small()
    batch = batch_of(torch.rand(5, 1, 2, 4), network.goal.noise_per_sample)
    mean, log_variance = network.run(weights, {}, batch.x, call="encode")
    posterior = Normal(mean, (log_variance / 2).exp())
    codes = posterior.icdf(batch.noise)
    decoded = network.run(weights, {}, codes, call="decode")
    error = (decoded - (batch.x.flatten(1) - 0.25) / 0.5).square().sum(1)
    divergence = kl_divergence(posterior, Normal(0, 1)).sum(1)
    torch.testing.assert_close(network.losses(weights, {}, batch), error + 4 * divergence)
    metrics = network.goal.metrics(network, weights, {}, batch)
    expected = {
        "loss": error + divergence,
        "loss_at_beta": error + 4 * divergence,
        "reconstruction": error,
        "kl": divergence,
    }
    assert list(metrics) == list(expected)
    for name, value in expected.items():
        assert metrics[name].dtype == torch.float64
        torch.testing.assert_close(metrics[name].float(), value)


def test_by_hand_with_weights_of_zero():
    # The code is N(0, I) and the decoder returns 1/2 everywhere.
    network, weights = small()
    x = torch.tensor([[0.25, 0.5, 0.0, 1.0, 0.25, 0.25, 0.25, 0.25]]).view(1, 1, 2, 4)
    batch = batch_of(x, 3)
    # Standardised: 0, 0.5, -0.5, 1.5, 0, 0, 0, 0.
    expected = 5 * 0.25 + 0 + 1 + 1
    assert network.losses(torch.zeros_like(weights), {}, batch).tolist() == [expected]
    assert network.goal.metrics(network, 0 * weights, {}, batch)["kl"].tolist() == [0]


def test_the_encoder_outputs_the_logarithm_of_the_deviation():
    network, weights = small()
    last = network.layout.tensors(0 * weights)
    last["encoder.4.bias"][:] = torch.tensor([1.0, 2, 3, math.log(2), 0, math.log(0.5)])
    vector = torch.cat([tensor.reshape(-1) for tensor in last.values()])
    mean, log_variance = network.run(vector, {}, torch.rand(1, 1, 2, 4), call="encode")
    assert mean.tolist() == [[1, 2, 3]]
    torch.testing.assert_close(log_variance.exp(), torch.tensor([[4.0, 1, 0.25]]))


def test_codes_are_quantiles():
    noise = torch.tensor([[0.5, 0.975, 0.025]])
    codes = draw_codes(torch.ones(1, 3), torch.full((1, 3), math.log(4)), noise)
    torch.testing.assert_close(codes, torch.tensor([[1, 1 + 2 * 1.959964, 1 - 2 * 1.959964]]))


def test_codes_are_finite_for_extreme_noise():
    smallest = torch.tensor([[2.0**-149, 2.0**-24, 1 - 2.0**-24]])
    assert torch.isfinite(draw_codes(torch.zeros(1, 3), torch.zeros(1, 3), smallest)).all()


def test_the_module_reconstructs_from_the_means_of_codes():
    network, weights = small()
    x = torch.rand(4, 1, 2, 4)
    mean, _ = network.run(weights, {}, x, call="encode")
    expected = network.run(weights, {}, mean, call="decode")
    assert torch.equal(network(weights, {}, x), expected)
    assert expected.shape == (4, 8)
    assert ((expected > 0) & (expected < 1)).all()


def test_vmap_over_a_cohort_equals_the_loop():
    network, _ = small()
    assert suits_vectorising(network, torch.zeros(2, 1, 2, 4), torch.device("cpu"))
    rows = torch.stack([small(seed)[1] for seed in (1, 2)]).double()
    batches = [batch_of(torch.rand(3, 1, 2, 4).double(), 3, seed) for seed in (1, 2)]
    x = torch.stack([batch.x for batch in batches])
    noise = torch.stack([batch.noise for batch in batches])

    def loss(row, x, noise):
        return network.losses(row, {}, Batch(x, x, x, noise)).sum()

    cohort = rows.clone().requires_grad_()
    vmap(loss)(cohort, x, noise).sum().backward()
    for row, gradient, batch in zip(rows, cohort.grad, batches, strict=True):
        alone = row.clone().requires_grad_()
        loss(alone, batch.x, batch.noise).backward()
        torch.testing.assert_close(gradient, alone.grad)
        assert gradient.any()


def test_a_batch_without_noise_is_rejected():
    network, weights = small()
    x = torch.rand(2, 1, 2, 4)
    with pytest.raises(UnskewError, match=r"batch\.noise: the loss"):
        network.losses(weights, {}, Batch(x, x, x))


def test_beta_changes_only_the_training_loss():
    x = torch.rand(2, 4)
    metrics = {}
    for beta in (0, 10):
        network = FunctionalModel(make(f"vae:hidden=3,latent=1,beta={beta}", (4,), 2))
        weights = flatten(network.module, network.layout)
        batch = batch_of(x, 1)
        metrics[beta] = network.goal.metrics(network, weights, {}, batch)
        torch.testing.assert_close(
            network.losses(weights, {}, batch).double(), metrics[beta]["loss_at_beta"]
        )
    assert torch.equal(metrics[0]["loss"], metrics[10]["loss"])
    assert torch.equal(metrics[0]["loss_at_beta"], metrics[0]["reconstruction"])
