"""FedDisco's weights: values computed by hand, and properties that hold for all numbers."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import unskew as us
from unskew.aggregation import Uploads, by_samples, discrepancy, label_divergence
from unskew.errors import UnskewError


def clients(samples: list[float], counts: object = None, ids: list[int] | None = None) -> Uploads:
    labels = None if counts is None else torch.tensor(counts)
    stack = torch.zeros(len(samples), 1)
    return Uploads.of(stack, samples=samples, label_counts=labels, clients=ids)


def test_weights_by_hand():
    uploads = clients([2, 1, 1])
    explained = discrepancy(torch.tensor([3.0, 1.0, 0.0])).explain(uploads)
    # Rescaled to (0.75, 0.25, 0): 0.5 - 0.375 + 0.1, 0.25 - 0.125 + 0.1, 0.25 + 0.1.
    torch.testing.assert_close(explained["rescaled"], torch.tensor([0.75, 0.25, 0]).double())
    assert explained["discrepancies"].tolist() == [3, 1, 0]
    assert explained["weights"].tolist() == pytest.approx([0.225 / 0.8, 0.225 / 0.8, 0.35 / 0.8])


def test_a_large_discrepancy_gives_zero_weight():
    weights = discrepancy(torch.tensor([4.0, 0.0]), rescale=False)(clients([1, 1]))
    assert weights.tolist() == [0, 1]


def test_values_belong_to_client_ids():
    values = torch.tensor([9.0, 0.0, 9.0, 0.0])
    weighting = discrepancy(values, alpha=1, b=0, rescale=False)
    assert weighting(clients([1, 1], ids=[3, 2])).tolist() == [0, 1]  # clients 2 and 3
    with pytest.raises(UnskewError, match="up to client 4"):
        weighting(clients([1, 1], ids=[3, 4]))


@given(st.lists(st.integers(1, 100), min_size=1, max_size=6), st.data())
def test_without_alpha_and_b_it_equals_by_samples(samples, data):
    values = data.draw(st.lists(st.floats(0, 10), min_size=len(samples), max_size=len(samples)))
    uploads = clients(samples)
    weights = discrepancy(torch.tensor(values), alpha=0, b=0)(uploads)
    assert torch.equal(weights, by_samples()(uploads))


@given(st.lists(st.floats(0, 10), min_size=2, max_size=6), st.floats(0.01, 5))
def test_a_larger_discrepancy_never_raises_the_weight(values, more):
    uploads = clients([1] * len(values))
    for rescale in (True, False):
        # b keeps a weight positive whatever the values are.
        weighting = {"b": 10.0, "rescale": rescale}
        before = discrepancy(torch.tensor(values), **weighting)(uploads)
        raised = torch.tensor([values[0] + more, *values[1:]])
        after = discrepancy(raised, **weighting)(uploads)
        assert after[0] <= before[0] + 1e-9


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=6), st.floats(0, 0.99))
def test_rescaled_discrepancies_keep_a_positive_weight(values, alpha):
    uploads = clients([1] * len(values))
    weights = discrepancy(torch.tensor(values), alpha=alpha, b=0, on_degenerate="raise")(uploads)
    assert float(weights.sum()) == pytest.approx(1)


def test_a_large_b_and_equal_clients_give_uniform_weights():
    values = torch.tensor([5.0, 1.0, 0.0])
    uneven = discrepancy(values, b=1e9)(clients([1, 2, 9]))
    assert uneven.tolist() == pytest.approx([1 / 3] * 3, abs=1e-6)
    assert discrepancy(torch.ones(3))(clients([4, 4, 4])).tolist() == pytest.approx([1 / 3] * 3)


def test_when_all_weights_are_zero():
    hopeless = {"alpha": 0.9, "b": 0.0, "rescale": False}
    values, uploads = torch.tensor([2.0, 2.0]), clients([3, 1])
    with pytest.warns(UserWarning, match="all weights are zero"):
        assert discrepancy(values, **hopeless)(uploads).tolist() == [0.75, 0.25]
    with pytest.raises(UnskewError, match="all weights are zero; lower alpha"):
        discrepancy(values, on_degenerate="raise", **hopeless)(uploads)


def test_divergences_by_hand():
    uploads = clients([4, 4], [[2, 2], [4, 0]])
    expected = {
        "kl": [0, math.log(2)],
        "l1": [0, 1],
        "l2": [0, math.sqrt(0.5)],
        "cosine": [0, 1 - math.sqrt(0.5)],
    }
    for measure, values in expected.items():
        assert label_divergence(measure)(uploads).tolist() == pytest.approx(values, abs=1e-12)


def test_divergence_from_a_target():
    uploads = clients([4, 4], [[3, 1], [4, 0]])
    values = label_divergence("l1", target=torch.tensor([30, 10]))(uploads)
    assert values.tolist() == pytest.approx([0, 0.5])


def test_rounding_errors_are_not_amplified():
    # Clients exactly on a target that float32 cannot represent: no discrepancy, so p + b.
    target = torch.tensor([0.3, 0.3, 0.4])
    counts = (target.double() * 1e9).tolist()
    uploads = clients([1, 2, 7], [counts] * 3)
    weights = discrepancy(label_divergence(target=target))(uploads)
    assert weights.tolist() == pytest.approx([0.2 / 1.3, 0.3 / 1.3, 0.8 / 1.3])


def test_feddisco_by_hand():
    # One balanced client and one with a single class: d rescaled is (0, 1).
    weights = discrepancy(label_divergence())(clients([4, 4], [[2, 2], [4, 0]]))
    assert weights.tolist() == pytest.approx([0.6 / 0.7, 0.1 / 0.7])
    # All on target: p + b. Equally far off: d is 1/2 for both, which leaves (p - 1/4 + b).
    on_target = discrepancy(label_divergence())(clients([6, 2], [[3, 3], [1, 1]]))
    assert on_target.tolist() == pytest.approx([0.85 / 1.2, 0.35 / 1.2])
    equally_off = discrepancy(label_divergence()).explain(clients([6, 2], [[6, 0], [0, 2]]))
    assert equally_off["rescaled"].tolist() == [0.5, 0.5]
    assert equally_off["weights"].tolist() == pytest.approx([0.6 / 0.7, 0.1 / 0.7])


def test_bad_input_is_named():
    with pytest.raises(UnskewError, match="label_counts are missing"):
        discrepancy(label_divergence())(clients([1]))
    with pytest.raises(UnskewError, match="label_counts of client 1 must hold"):
        label_divergence()(clients([1, 1], [[1, 1], [0, 0]]))
    with pytest.raises(UnskewError, match="target must be 2 non-negative shares"):
        label_divergence(target=torch.ones(3))(clients([1], [[1, 1]]))
    with pytest.raises(UnskewError, match="values must be 2 finite non-negative discrepancies"):
        discrepancy(torch.tensor([1.0, math.inf]))(clients([1, 1]))
    with pytest.raises(UnskewError, match="values must be 2 finite non-negative discrepancies"):
        discrepancy(label_divergence(target=torch.tensor([1.0, 0.0])))(
            clients([1, 1], [[1, 0], [1, 1]])
        )
    for make, field in (
        (lambda: discrepancy(torch.ones(1), alpha=-1), "alpha"),
        (lambda: discrepancy(torch.ones(1), b=-1), "b"),
        (lambda: discrepancy(torch.ones(1), on_degenerate="skip"), "on_degenerate"),
        (lambda: label_divergence("l3"), "measure"),
    ):
        with pytest.raises(UnskewError, match=f"^{field} must be"):
            make()


MEASURED = ("kl", "l1", "l2", "cosine")


@pytest.mark.parametrize("measure", MEASURED)
@pytest.mark.filterwarnings("ignore::unskew.errors.UnskewWarning")
def test_balanced_clients_have_no_discrepancy_in_training(measure):
    """Clients of 10, 20 and 70 samples with even labels: 0.1 + 0.1, 0.2 + 0.1, 0.7 + 0.1."""
    sizes = [10, 20, 70]
    y = np.concatenate([np.arange(size) % 10 for size in sizes])
    x = np.random.default_rng(0).normal(size=(len(y), 3))
    federation = us.Federation.from_arrays(x, y, np.repeat([0, 1, 2], sizes))
    run = us.train(federation, f"feddisco:measure={measure}", model="logistic", rounds=1)
    assert run.weights[0].tolist() == pytest.approx([0.2 / 1.3, 0.3 / 1.3, 0.8 / 1.3])
