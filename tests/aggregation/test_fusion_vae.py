"""The autoencoder of FedFusion: distributions, gradients and fit."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, special, stats
from torch.distributions import Bernoulli, Normal, kl_divergence

from unskew.aggregation import kumaraswamy
from unskew.aggregation.fusion_allocation import Reading, expected_allocation, sample_allocation
from unskew.aggregation.fusion_fit import FlatAdam, bernoulli_kl, divergence, fit, loss, normal_kl
from unskew.aggregation.fusion_vae import FusionVAE, Posterior

SHAPES = [(1.0, 1.0), (10.0, 1.0), (2.0, 3.0), (0.5, 0.7), (6.0, 8.0)]


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def two_groups(clients=12, features=40, gap=2.0, seed=0):
    """Standardised statistics of clients; the second half has a different centre."""
    noise = generator(seed)
    group = torch.arange(clients) >= clients // 2
    centers = gap / 2 * torch.randn(2, features, generator=noise)
    rows = centers[group.long()] + torch.randn(clients, features, generator=noise)
    return (rows - rows.mean(0)) / rows.std(0, correction=0), group


def tensors(*values):
    return tuple(torch.tensor(value, dtype=torch.float64) for value in values)


@pytest.mark.parametrize(("zeta", "kappa"), SHAPES)
def test_sticks_have_the_mean_of_the_distribution(zeta, kappa):
    size = 200_000
    uniform = torch.rand(size, generator=generator(), dtype=torch.float64)
    sticks = kumaraswamy.log_sample(*tensors(zeta, kappa), uniform).exp()
    mean = kappa * special.beta(1 + 1 / zeta, kappa)
    # Values in (0, 1) have a deviation of at most 1/2: five standard errors are 0.0056.
    assert float(sticks.mean()) == pytest.approx(mean, abs=5 * 0.5 / math.sqrt(size))
    assert float(kumaraswamy.log_mean(*tensors(zeta, kappa)).exp()) == pytest.approx(mean)


@given(st.floats(0.2, 20), st.floats(0.5, 20), st.floats(0.001, 0.999))
def test_sampling_inverts_the_distribution_function(zeta, kappa, u):
    stick = float(kumaraswamy.log_sample(*tensors(zeta, kappa, u)).exp())
    assert (1 - stick**zeta) ** kappa == pytest.approx(u, rel=1e-6)


@pytest.mark.parametrize(("zeta", "kappa"), SHAPES)
def test_the_divergence_of_sticks_is_the_integral(zeta, kappa):
    def integrand(u):  # over the distribution function, which has no poles
        x = float(kumaraswamy.log_sample(*tensors(zeta, kappa, u)).exp())
        density = zeta * kappa * x ** (zeta - 1) * (1 - x**zeta) ** (kappa - 1)
        return math.log(density) - stats.beta.logpdf(x, 10, 1)

    integral, _ = integrate.quad(integrand, 1e-12, 1 - 1e-12, limit=200)
    found = float(kumaraswamy.kl_to_power(*tensors(zeta, kappa), 10.0))
    assert found == pytest.approx(integral, abs=1e-5)
    assert (found == pytest.approx(0, abs=1e-12)) == ((zeta, kappa) == (10.0, 1.0))


@given(st.floats(-3, 3), st.floats(-3, 3), st.floats(0.01, 0.99), st.floats(0.01, 0.99))
def test_the_other_divergences_match_torch(center, log_sd, p, q):
    center, log_sd, p, q = tensors(center, log_sd, p, q)
    standard = Normal(torch.zeros_like(center), torch.ones_like(center))
    torch.testing.assert_close(
        normal_kl(center, log_sd), kl_divergence(Normal(center, log_sd.exp()), standard)
    )
    torch.testing.assert_close(bernoulli_kl(p, q), kl_divergence(Bernoulli(p), Bernoulli(q)))


def test_an_encoder_with_zero_output_gives_the_prior():
    vae = FusionVAE(features=5, components=3, codes="client")
    posterior = vae.encode(torch.zeros(sum(vae.sizes)), torch.ones(2, 5))
    rho = expected_allocation(posterior).rho
    expectation = torch.tensor([10 / 11, 100 / 121, 1000 / 1331]).expand(2, 3)
    torch.testing.assert_close(rho, expectation, atol=1e-4, rtol=0)
    assert float(divergence(posterior, rho)) == pytest.approx(0, abs=1e-4)


@pytest.mark.parametrize("codes", ["component", "client"])
def test_gradients_reach_every_parameter(codes):
    statistics, _ = two_groups(features=6)
    vae = FusionVAE(6, components=4, latent=3, wide=8, narrow=5, codes=codes)
    parameters = vae.initial(generator()).requires_grad_()
    total = torch.zeros_like(parameters)
    for seed in range(20):
        value = loss(vae, parameters, statistics, generator(seed), temperature=1.0, kl=1e-3)
        total += torch.autograd.grad(value, parameters)[0].abs()
    assert bool(torch.isfinite(total).all())
    assert bool((total > 0).all())


@pytest.mark.parametrize("codes", ["component", "client"])
@pytest.mark.parametrize("clients", [1, 2, 12])
def test_thirty_steps_lower_the_loss(codes, clients):
    statistics, _ = two_groups(features=60)
    vae = FusionVAE(60, components=4, codes=codes)
    noise = generator()
    _, losses = fit(vae, vae.initial(noise), statistics[:clients], noise, steps=30)
    assert sum(losses[-5:]) < 0.8 * sum(losses[:5])


def test_adam_matches_torch():
    ours = torch.randn(20, generator=generator())
    theirs = ours.clone().requires_grad_()
    adam, reference = FlatAdam(ours), torch.optim.Adam([theirs], lr=1e-3, weight_decay=1e-4)
    for step in range(5):
        gradient = torch.randn(20, generator=generator(step))
        ours, theirs.grad = adam.step(ours, gradient), gradient
        reference.step()
    torch.testing.assert_close(ours, theirs.detach())


def test_the_same_seed_gives_the_same_bits_and_keeps_torchs_random_state():
    statistics, _ = two_groups()
    vae = FusionVAE(40, components=4)
    before = torch.get_rng_state()
    first, second, other = (
        fit(vae, vae.initial(generator(s)), statistics, generator(s), steps=5)[0] for s in (1, 1, 2)
    )
    assert torch.equal(first, second)
    assert not torch.equal(first, other)
    assert torch.equal(before, torch.get_rng_state())


def test_a_sample_is_a_valid_allocation():
    statistics, _ = two_groups()
    vae = FusionVAE(40, components=5)
    posterior = vae.encode(3 * vae.initial(generator()), statistics)
    sampled = sample_allocation(posterior, generator(1), 1.0)
    for allocation in (expected_allocation(posterior), sampled):
        assert set(allocation.c.unique().tolist()) <= {0.0, 1.0}
        assert bool((allocation.c.sum(1) >= 1).all())
        assert bool((allocation.rho.diff(dim=1) <= 0).all())  # a product of sticks decreases
        torch.testing.assert_close((allocation.b * allocation.c).sum(1), torch.ones(12))


def test_samples_of_c_follow_rho():
    statistics, _ = two_groups(clients=2, features=8)
    vae = FusionVAE(8, components=3)
    posterior = vae.encode(vae.initial(generator()), statistics)
    samples = [sample_allocation(posterior, generator(seed), 1.0) for seed in range(2000)]
    observed = torch.stack([allocation.c[:, 1:] for allocation in samples]).mean(0)
    expected = expected_allocation(posterior).rho[:, 1:]
    # Two thousand Bernoulli samples: five standard errors are 5 * 0.5 / sqrt(2000).
    torch.testing.assert_close(observed, expected, atol=0.056, rtol=0)


def test_codes_of_components_separate_two_groups():
    statistics, group = two_groups(clients=12, features=200)
    vae = FusionVAE(200, components=4)
    noise = generator()
    parameters, _ = fit(vae, vae.initial(noise), statistics, noise, steps=60)
    components = expected_allocation(vae.encode(parameters, statistics)).components
    assert set(components[group].tolist()).isdisjoint(components[~group].tolist())


def posterior_of(sticks, scores):
    """Sticks that are uniform on (0, 1) where zeta is 1, and scores without noise."""
    zeta, score = torch.tensor(sticks), torch.tensor(scores)
    shape = (*zeta.shape, 2)
    return Posterior(
        zeta=zeta,
        kappa=torch.ones_like(zeta),
        score=score,
        log_score_sd=torch.full_like(score, -40),
        code=torch.zeros(shape),
        log_code_sd=torch.zeros(shape),
    )


def test_eq_3_as_printed_gives_every_component_the_product_of_all_sticks():
    # The mean of a stick is zeta / (zeta + 1) where kappa is 1: 0.9, 0.5 and 0.8.
    posterior = posterior_of([[9.0, 1.0, 4.0]], [[0.0, 0.0, 0.0]])
    partial, literal = (
        expected_allocation(posterior, Reading(rho=rho)).rho for rho in ("partial", "literal")
    )
    torch.testing.assert_close(partial, torch.tensor([[0.9, 0.45, 0.36]]))
    torch.testing.assert_close(literal, torch.tensor([[0.36, 0.36, 0.36]]))


def test_eq_3_as_printed_compares_with_the_same_product_of_prior_sticks():
    vae = FusionVAE(features=5, components=3, codes="client")
    posterior = vae.encode(torch.zeros(sum(vae.sizes)), torch.ones(2, 5))
    reading = Reading(rho="literal")
    rho = expected_allocation(posterior, reading).rho
    torch.testing.assert_close(rho, torch.full((2, 3), 1000 / 1331), atol=1e-4, rtol=0)
    assert float(divergence(posterior, rho, reading)) == pytest.approx(0, abs=1e-4)
    assert float(divergence(posterior, rho)) > 0.01


def test_eq_6_as_printed_is_a_fair_coin():
    # rho is nearly 1 for the first client and nearly 0 for the second.
    posterior = posterior_of([[1e5, 1e5], [0.01, 0.01]], [[0.0, 0.0]] * 2)
    observed = {}
    for c in ("bernoulli", "literal"):
        samples = [
            sample_allocation(posterior, generator(seed), 1.0, Reading(c=c)).c[:, 1]
            for seed in range(1000)
        ]
        observed[c] = torch.stack(samples).mean(0).tolist()
    # A thousand coins: five standard errors are 5 * 0.5 / sqrt(1000).
    assert observed["literal"] == pytest.approx([0.5, 0.5], abs=0.08)
    assert observed["bernoulli"] == pytest.approx([1, 0], abs=0.03)


def test_b_as_printed_is_the_score_of_the_components_a_client_is_in():
    posterior = posterior_of([[9.0, 9.0, 1.0]], [[-0.5, 2.0, 3.0]])  # rho: 0.9, 0.81, 0.405
    allocation = expected_allocation(posterior, Reading(b="literal"))
    assert allocation.c.tolist() == [[1, 1, 0]]
    torch.testing.assert_close(allocation.b, torch.tensor([[-0.5, 2.0, 0.0]]))
    sampled = sample_allocation(posterior, generator(), 1.0, Reading(b="literal"))
    torch.testing.assert_close(sampled.b, sampled.c * posterior.score)


@pytest.mark.parametrize("reading", [("literal", "bernoulli", "softmax"), ("literal",) * 3])
def test_thirty_steps_lower_the_loss_as_printed(reading):
    statistics, _ = two_groups(features=60)
    vae = FusionVAE(60, components=4)
    noise = generator()
    options = {"steps": 30, "reading": Reading(*reading)}
    _, losses = fit(vae, vae.initial(noise), statistics, noise, **options)
    assert sum(losses[-5:]) < 0.8 * sum(losses[:5])
