"""IDA and INTRAC: values computed by hand, and properties that hold for all numbers."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from unskew.aggregation import (
    Uploads,
    by_samples,
    geometric_median,
    inverse_accuracy,
    inverse_distance,
    product,
    uniform,
    weighted_mean,
)
from unskew.errors import UnskewError

LINE = torch.tensor([[0.0], [1.0], [5.0]])  # mean 2: distances 2, 1 and 3
CROSS = torch.tensor([[-1.0], [0.0], [1.0]])


def random_rows(seed: int, clients: int, size: int = 12) -> torch.Tensor:
    return torch.randn(clients, size, generator=torch.Generator().manual_seed(seed))


def close(found: torch.Tensor, expected: object, atol: float = 1e-6) -> None:
    expected = torch.as_tensor(expected, dtype=found.dtype)
    torch.testing.assert_close(found, expected, atol=atol, rtol=1e-6)


def test_inverse_distances_by_hand():
    explained = inverse_distance(eps=0).explain(Uploads.of(LINE))
    close(explained["distances"], [2, 1, 3])
    # 1/2 : 1 : 1/3 is 3 : 6 : 2.
    close(explained["weights"], [3 / 11, 6 / 11, 2 / 11])
    assert explained["weights"].dtype == torch.float64


def test_the_two_norms_by_hand():
    stack = torch.tensor([[3.0, 4.0], [-3.0, -4.0], [0.0, 6.0], [0.0, -6.0]])
    uploads = Uploads.of(stack)
    close(inverse_distance(norm=1).explain(uploads)["distances"], [7, 7, 6, 6])
    close(inverse_distance(norm=2).explain(uploads)["distances"], [5, 5, 6, 6])


def test_relative_and_absolute_eps_by_hand():
    # The mean distance is 2. Relative: 1/(2 + 1), 1/(1 + 1), 1/(3 + 1) is 4 : 6 : 3.
    close(inverse_distance(eps=0.5)(Uploads.of(LINE)), [4 / 13, 6 / 13, 3 / 13])
    # Absolute: 1/(2 + 0.5), 1/(1 + 0.5), 1/(3 + 0.5) is 21 : 35 : 15.
    close(inverse_distance(eps=0.5, absolute=True)(Uploads.of(LINE)), [21 / 71, 35 / 71, 15 / 71])


def test_centers_by_hand():
    uploads = Uploads.of(LINE, samples=[2, 2, 0])
    close(inverse_distance(center="mean").explain(uploads)["distances"], [2, 1, 3])
    close(inverse_distance(center="fedavg").explain(uploads)["distances"], [0.5, 0.5, 4.5])
    close(inverse_distance(center="median").explain(uploads)["distances"], [1, 0, 4])


def test_a_client_at_the_mean_has_all_weight_unless_capped():
    uploads = Uploads.of(CROSS)
    close(inverse_distance(eps=0)(uploads), [0, 1, 0])
    # Mean distance 2/3: 1/(1 + 1/1500) against 1500.
    close(inverse_distance()(uploads)[1], 0.99867, atol=1e-5)
    close(inverse_distance(cap=1.5)(uploads), [0.25, 0.5, 0.25])
    close(inverse_distance(cap=1)(uploads), [1 / 3] * 3)


def test_a_cap_above_one_has_no_effect():
    close(inverse_distance(cap=3, eps=0)(Uploads.of(LINE[:2])), [0.5, 0.5])


@given(st.integers(0, 10_000), st.sampled_from([1, 2]), st.sampled_from(["mean", "median"]))
def test_two_clients_have_equal_weights(seed, norm, center):
    uploads = Uploads.of(random_rows(seed, 2))
    close(inverse_distance(norm=norm, center=center)(uploads), [0.5, 0.5])


@settings(max_examples=50)
@given(st.integers(0, 10_000), st.integers(1, 8), st.sampled_from([-100, -20, 0, 20, 100]))
def test_scaling_and_shifting_change_nothing(seed, clients, power):
    stack = random_rows(seed, clients)
    for norm in (1, 2):
        weighting = inverse_distance(norm=norm)
        weights = weighting(Uploads.of(stack))
        assert torch.equal(weighting(Uploads.of(stack * -(2.0**power))), weights)
        close(weighting(Uploads.of(stack + random_rows(seed + 1, 1))), weights, atol=1e-4)


@given(st.integers(0, 10_000), st.integers(3, 8))
def test_a_larger_distance_is_a_smaller_weight(seed, clients):
    explained = inverse_distance().explain(Uploads.of(random_rows(seed, clients)))
    by_distance = explained["weights"][explained["distances"].argsort()]
    assert bool((by_distance.diff() <= 0).all())


@given(st.integers(0, 10_000), st.integers(2, 8))
def test_ida_with_the_l2_norm_is_one_weiszfeld_step_from_the_mean(seed, clients):
    uploads = Uploads.of(random_rows(seed, clients))
    ida = weighted_mean(inverse_distance(norm=2, eps=1e-12))(uploads)
    step = geometric_median(iterations=1, nu=1e-12, client_weighting=uniform())(uploads)
    torch.testing.assert_close(ida, step)


def test_ida_times_samples_of_equal_clients_is_ida():
    uploads = Uploads.of(LINE, samples=[7, 7, 7])
    close(product(inverse_distance(), by_samples())(uploads), inverse_distance()(uploads))


def test_buffers_do_not_affect_distances():
    from torch import nn

    from unskew.models.layout import Layout

    layout = Layout.of(nn.BatchNorm1d(1))  # weight, bias, mean, variance, counter
    stack = torch.tensor([[0.0, 0, 5, 5, 1], [1, 0, 90, 5, 2], [5, 0, 5, 70, 9]])
    rule = weighted_mean(inverse_distance(eps=0))
    vector, diagnostics = rule.apply(Uploads.of(stack, layout=layout))
    close(diagnostics["distances"], [2, 1, 3])
    # The weights 3 : 6 : 2 also apply to statistics, and the counter takes the largest value.
    close(vector, [16 / 11, 0, (15 + 540 + 10) / 11, (15 + 30 + 140) / 11, 9], atol=1e-4)


def test_inverse_accuracies_by_hand():
    uploads = Uploads.of(LINE, train_accuracy=[0.5, 0.25, 1.0])
    explained = inverse_accuracy(chance_level=0.1).explain(uploads)
    close(explained["weights"], [2 / 7, 4 / 7, 1 / 7])
    close(explained["accuracies"], [0.5, 0.25, 1.0])


def test_accuracies_below_chance_are_raised_to_chance():
    uploads = Uploads.of(
        torch.zeros(4, 1), train_accuracy=[0, 0.1, 0.5, 1], label_counts=torch.ones(4, 2)
    )
    close(inverse_accuracy()(uploads), [2 / 7, 2 / 7, 2 / 7, 1 / 7])  # one in two classes
    close(inverse_accuracy(classes=5)(uploads), [5 / 13, 5 / 13, 2 / 13, 1 / 13])
    close(inverse_accuracy("paper")(uploads), [4 / 11, 4 / 11, 2 / 11, 1 / 11])  # four clients
    close(inverse_accuracy(1.0)(uploads), [0.25] * 4)


def test_chance_of_the_paper_uses_the_total_number_of_clients():
    uploads = Uploads.of(torch.zeros(3, 1), train_accuracy=[0.12, 0.2, 0.3])
    close(inverse_accuracy("paper")(uploads), [1 / 3] * 3)
    of_ten = replace(uploads, population=10)
    close(inverse_accuracy("paper")(of_ten), [0.5, 0.3, 0.2])  # 1/0.12 : 1/0.2 : 1/0.3


@given(st.floats(0, 1), st.integers(1, 9))
def test_equal_accuracies_are_uniform(accuracy, clients):
    uploads = Uploads.of(torch.zeros(clients, 1), train_accuracy=[accuracy] * clients)
    close(inverse_accuracy(classes=10)(uploads), [1 / clients] * clients)


def test_missing_numbers_are_named():
    with pytest.raises(UnskewError, match="train_accuracy is missing"):
        inverse_accuracy(0.1)(Uploads.of(LINE))
    with pytest.raises(UnskewError, match="classes is unknown"):
        inverse_accuracy()(Uploads.of(LINE, train_accuracy=[1, 1, 1]))


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: inverse_distance(norm=3), "norm"),
        (lambda: inverse_distance(center="origin"), "center"),
        (lambda: inverse_distance(eps=-1), "eps"),
        (lambda: inverse_distance(cap=0.5), "cap"),
        (lambda: inverse_accuracy(0), "chance_level"),
        (lambda: inverse_accuracy(1.5), "chance_level"),
        (lambda: inverse_accuracy("half"), "chance_level"),
        (lambda: inverse_accuracy(classes=0), "classes"),
    ],
)
def test_bad_options_are_named(make, field):
    with pytest.raises(UnskewError, match=f"^{field} must be"):
        make()


@pytest.mark.parametrize("center", ["mean", "median"])
@pytest.mark.parametrize("norm", [1, 2])
def test_two_very_close_clients_have_equal_weights(norm, center):
    """The rounded mean of adjacent float32 numbers may equal one of them; weights stay equal."""
    first = torch.full((50,), 1e4)
    stack = torch.stack([first, torch.nextafter(first, torch.tensor(torch.inf))])
    weights = inverse_distance(norm=norm, center=center)(Uploads.of(stack))
    assert weights.tolist() == [0.5, 0.5]


@given(st.integers(0, 1000))
def test_weights_decrease_with_distance(seed):
    stack = torch.randn(6, 8, generator=torch.Generator().manual_seed(seed))
    explained = inverse_distance().explain(Uploads.of(stack))
    order = explained["distances"].argsort()
    assert bool((explained["weights"][order].diff() < 0).all())


def test_distances_beyond_the_largest_float32_still_give_weights():
    stack = 3.4e38 * torch.tensor([[1.0], [-1.0], [0.5]]).expand(3, 1000)
    weights = inverse_distance()(Uploads.of(stack))
    assert bool(weights.isfinite().all())
    assert weights.argmax() == 2
