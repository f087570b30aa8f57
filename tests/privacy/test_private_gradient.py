"""The gradient of DP-SGD, compared with values by hand, and its guarantees."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from unskew.composition.method import Method
from unskew.errors import UnskewError
from unskew.models.functional import Batch, FunctionalModel
from unskew.privacy import gradient as module_under_test
from unskew.privacy import private_gradient, private_noise, reject_coupled


def half_square(w, x, y):
    """The loss of a linear model: its gradient is (w x - y) x."""
    return (w @ x - y).square() / 2


def noiseless(**options):
    return {"clip": 1.0, "noise_multiplier": 0.0, "noise": torch.zeros(2), "expected": 1} | options


X = torch.tensor([[3.0, 4.0], [1.0, 0.0], [0.0, 2.0]])
Y = torch.tensor([-1.0, -0.5, 0.0])
ONES = torch.ones(3)
# At w = (0, 0) the gradients are (3, 4), of norm 5; (0.5, 0), of norm 0.5; and (0, 0).


def test_each_gradient_is_clipped_before_they_are_summed():
    got, losses = private_gradient(half_square, torch.zeros(2), (X, Y), ONES, **noiseless())
    torch.testing.assert_close(got, torch.tensor([0.6 + 0.5, 0.8]))
    torch.testing.assert_close(losses, torch.tensor([0.5, 0.125, 0.0]))


def test_without_clipping_it_is_the_gradient_of_the_mean():
    got, _ = private_gradient(
        half_square, torch.zeros(2), (X, Y), ONES, **noiseless(clip=9, expected=3)
    )
    torch.testing.assert_close(got, torch.tensor([3.5 / 3, 4 / 3]))


def test_the_divisor_is_the_expected_batch_size_not_the_actual_one():
    got, _ = private_gradient(half_square, torch.zeros(2), (X, Y), ONES, **noiseless(expected=10))
    torch.testing.assert_close(got, torch.tensor([0.11, 0.08]))


def test_noise_is_in_units_of_the_clipping_norm():
    plain = noiseless(clip=0.5, expected=4)
    noisy = plain | {"noise_multiplier": 3.0, "noise": torch.tensor([1.0, -2.0])}
    without, _ = private_gradient(half_square, torch.zeros(2), (X, Y), ONES, **plain)
    got, _ = private_gradient(half_square, torch.zeros(2), (X, Y), ONES, **noisy)
    torch.testing.assert_close(got - without, 3 * 0.5 * torch.tensor([1.0, -2.0]) / 4)


def test_sample_weights_are_applied_before_clipping():
    # (3, 4) x 0.1 has norm 0.5 and stays; (0.5, 0) x 4 has norm 2 and becomes (1, 0).
    factors = torch.tensor([0.1, 4.0, 7.0])
    got, _ = private_gradient(half_square, torch.zeros(2), (X, Y), factors, **noiseless())
    torch.testing.assert_close(got, torch.tensor([0.3 + 1.0, 0.4]))


@pytest.mark.parametrize("padding", [7.0, float("nan"), float("inf")])
def test_padding_adds_exactly_zero(padding):
    padded = torch.cat([X, torch.full((2, 2), padding)]), torch.cat([Y, torch.tensor([5.0, 5.0])])
    factors = torch.tensor([1.0, 1.0, 1.0, 0.0, 0.0])
    alone, _ = private_gradient(half_square, torch.zeros(2), (X, Y), ONES, **noiseless())
    got, _ = private_gradient(half_square, torch.zeros(2), padded, factors, **noiseless())
    assert torch.equal(got, alone)


def test_a_gradient_that_is_not_finite_is_left_out():
    x = X.clone()
    x[0, 0] = float("inf")
    got, _ = private_gradient(half_square, torch.zeros(2), (x, Y), ONES, **noiseless())
    torch.testing.assert_close(got, torch.tensor([0.5, 0.0]))


numbers = st.floats(-1e6, 1e6, width=32)


@given(
    st.lists(st.tuples(numbers, numbers, numbers, numbers), min_size=1, max_size=5),
    st.floats(0.01, 100),
)
def test_no_record_changes_the_sum_by_more_than_the_clipping_norm(records, clip):
    a, b, y, factors = (torch.tensor(column) for column in zip(*records, strict=True))
    samples, weights = (torch.stack([a, b], 1), y), torch.tensor([0.3, -0.2])
    whole, _ = private_gradient(half_square, weights, samples, factors, **noiseless(clip=clip))
    fewer = factors.clone()
    fewer[0] = 0
    without, _ = private_gradient(half_square, weights, samples, fewer, **noiseless(clip=clip))
    assert (whole - without).norm() <= clip * (1 + 1e-5 * len(records))


class Case:
    """A cohort of small networks, with padding, sample weights and references per client."""

    clients, batch = 5, 7

    def __init__(self):
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 3))
        self.network, k, b = FunctionalModel(module), self.clients, self.batch
        self.size = self.network.layout.trainable
        self.weights = torch.randn(k, self.size)
        self.samples = torch.randn(k, b, 4), torch.randint(3, (k, b))
        self.factors = (
            torch.rand(k, b) * 3 * (torch.arange(b) < torch.tensor([[7], [7], [3], [1], [0]]))
        )
        self.references = (torch.randn(k, self.size),)
        self.noise = torch.stack([private_noise(1, "x", 0, i, 0, self.size) for i in range(k)])
        self.expected = torch.tensor([7.0, 7.0, 3.0, 1.0, 1.0])

    def loss(self, w, x, y, center):
        batch = Batch(x[None], y[None], torch.ones(1))
        proximal_term = 0.01 * (w - center).square().sum()
        return Method().objective(self.network, w, {}, batch, {}) + proximal_term

    def options(self, k=slice(None)):
        return {
            "clip": 0.7,
            "noise_multiplier": 1.3,
            "noise": self.noise[k],
            "expected": self.expected[k],
            "per_client": [tensor[k] for tensor in self.references],
        }

    def cohort(self):
        return private_gradient(
            self.loss, self.weights, self.samples, self.factors, **self.options()
        )

    def alone(self, k):
        samples = [tensor[k] for tensor in self.samples]
        return private_gradient(
            self.loss, self.weights[k], samples, self.factors[k], **self.options(k)
        )


@pytest.fixture(scope="module")
def case():
    return Case()


def test_a_cohort_and_each_client_alone_agree(case):
    gradients, losses = case.cohort()
    for k in range(case.clients):
        gradient, client_losses = case.alone(k)
        torch.testing.assert_close(gradients[k], gradient)
        torch.testing.assert_close(losses[k], client_losses)


def test_it_equals_a_loop_over_samples(case):
    gradients, _ = case.cohort()
    for k in range(case.clients):
        total = torch.zeros(case.size)
        for i in range(case.batch):
            w = case.weights[k].clone().requires_grad_()
            loss = case.loss(w, case.samples[0][k, i], case.samples[1][k, i], case.references[0][k])
            (g,) = torch.autograd.grad(loss * case.factors[k, i], w)
            total += g * min(1.0, 0.7 / max(float(g.norm()), 1e-12))
        expected = (total + 1.3 * 0.7 * case.noise[k]) / case.expected[k]
        torch.testing.assert_close(gradients[k], expected)


@pytest.mark.parametrize("rows_of_weights", [0, 1, 2, 7, 10, 14, 1000])
def test_blocks_of_any_size_give_the_same_gradient(case, monkeypatch, rows_of_weights):
    whole, losses = case.cohort()
    monkeypatch.setattr(module_under_test, "_BLOCK_NUMBERS", rows_of_weights * case.size)
    in_blocks, same_losses = case.cohort()
    torch.testing.assert_close(in_blocks, whole)
    torch.testing.assert_close(same_losses, losses)


@given(st.integers(0, 9), st.integers(0, 9), st.integers(1, 9), st.integers(1, 200))
def test_blocks_cover_every_sample_once_and_respect_the_memory_bound(clients, batch, size, bound):
    seen = torch.zeros(clients, batch)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module_under_test, "_BLOCK_NUMBERS", bound)
        for block in module_under_test._blocks(clients, batch, size):
            seen[block] += 1
            assert seen[block].numel() * size <= max(bound, size)
    assert torch.equal(seen, torch.ones(clients, batch))


def test_the_result_is_detached_from_weights_that_require_gradients():
    weights = torch.zeros(2, requires_grad=True)
    got, losses = private_gradient(half_square, weights, (X, Y), ONES, **noiseless())
    assert not got.requires_grad
    assert not losses.requires_grad


def test_noise_differs_between_steps_and_is_reproducible():
    ids = [(0, "a", 0, 0, 0), (1, "a", 0, 0, 0), (0, "b", 0, 0, 0)]
    ids += [(0, "a", 1, 0, 0), (0, "a", 0, 1, 0), (0, "a", 0, 0, 1)]
    drawn = {tuple(private_noise(*each, 4).tolist()) for each in ids * 2}
    assert len(drawn) == len(ids)


def test_noise_is_standard_normal():
    noise = private_noise(0, "a", 0, 0, 0, 100_000)
    assert abs(noise.mean()) < 5 / 100_000**0.5
    assert abs(noise.square().mean() - 1) < 5 * (2 / 100_000) ** 0.5


def test_networks_that_mix_samples_are_rejected():
    reject_coupled(FunctionalModel(nn.Linear(2, 2)))
    with pytest.raises(UnskewError, match="BatchNorm mixes"):
        reject_coupled(FunctionalModel(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))))
