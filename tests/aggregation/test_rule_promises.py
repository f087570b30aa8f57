"""Properties of every aggregation rule, on small, huge, tiny, empty and many models."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from torch import nn

from unskew.aggregation import (
    Uploads,
    bulyan,
    by_samples,
    clipped,
    coordinate_median,
    discrepancy,
    fedsa,
    geometric_median,
    inverse_accuracy,
    inverse_distance,
    krum,
    label_divergence,
    multi_krum,
    product,
    trimmed_mean,
    uniform,
    weighted_mean,
)
from unskew.models.layout import Entry, Layout, TensorKind

WEIGHTINGS = {
    "uniform": uniform(),
    "by samples": by_samples(),
    "ida": inverse_distance(),
    "ida l2": inverse_distance(norm=2, center="fedavg"),
    "ida median": inverse_distance(center="median", cap=2),
    "intrac": inverse_accuracy(),
    "disco": discrepancy(label_divergence()),
    "product": product(by_samples(), inverse_distance(), inverse_accuracy()),
    "clipped": clipped(by_samples(), high=1.0),
}
RULES = {
    **{name: weighted_mean(weighting) for name, weighting in WEIGHTINGS.items()},
    "median": coordinate_median(),
    "trimmed": trimmed_mean(0.3),
    "geometric": geometric_median(nu=1e-200),
    "krum": krum(0),
    "multi-krum": multi_krum(0),
    "bulyan": bulyan(0),
    "fedsa": fedsa(),
    "fedsa rank": fedsa(cv_scale="rank", scope="model", bins="layer"),
}
every_rule = pytest.mark.parametrize("name", RULES)
every_weighting = pytest.mark.parametrize("name", WEIGHTINGS)


def of(stack: torch.Tensor, layout: Layout | None = None, clients: object = None) -> Uploads:
    """Uploads with every field that a rule may use."""
    indices = torch.arange(len(stack), dtype=torch.float64)
    return Uploads.of(
        stack,
        samples=indices + 1,
        train_accuracy=1 / (indices + 1),
        label_counts=torch.stack([indices + 1, 2 * indices + 1], dim=1),
        layout=layout,
        clients=clients,
    )


def random_rows(seed: int, clients: int, size: int) -> torch.Tensor:
    return torch.randn(clients, size, generator=torch.Generator().manual_seed(seed))


whole_numbers = arrays.arrays(
    "float32",
    st.tuples(st.integers(1, 6), st.integers(1, 5)),
    elements=st.integers(-50, 50).map(float),
).map(torch.from_numpy)


@every_weighting
@settings(max_examples=25)
@given(stack=whole_numbers)
def test_weights_are_on_the_simplex(name, stack):
    explained = WEIGHTINGS[name].explain(of(stack))
    weights = explained["weights"]
    assert weights.dtype == torch.float64
    assert weights.shape == (len(stack),)
    assert bool((weights >= 0).all())
    assert float(weights.sum()) == pytest.approx(1)
    assert torch.equal(weights, WEIGHTINGS[name](of(stack)))


@every_rule
@settings(max_examples=25)
@given(stack=whole_numbers, power=st.sampled_from([-100, -30, 0, 30, 100]))
def test_hull_and_scale(name, stack, power):
    """Powers of two scale float32 exactly, so a rule must give the scaled result."""
    rule, uploads = RULES[name], of(stack)
    vector = rule(uploads)
    assert bool((vector >= stack.amin(0) - 1e-4).all() & (vector <= stack.amax(0) + 1e-4).all())
    scaled = rule(of(stack * 2.0**power))
    torch.testing.assert_close(scaled / 2.0**power, vector, atol=1e-4, rtol=1e-5)


@every_rule
@settings(max_examples=20)
@given(clients=st.integers(1, 9), seed=st.integers(0, 1000))
def test_identical_clients_stay_as_they_are(name, clients, seed):
    model = random_rows(seed, 1, 6)
    torch.testing.assert_close(RULES[name](of(model.repeat(clients, 1))), model[0])


@every_rule
def test_one_client_is_its_model(name):
    model = random_rows(1, 1, 9) * torch.logspace(-30, 30, 9)
    torch.testing.assert_close(RULES[name](of(model)), model[0])


@every_rule
def test_the_order_of_arrival_does_not_matter(name):
    stack = random_rows(2, 8, 20)
    order = [3, 1, 7, 5, 0, 6, 2, 4]
    first = of(stack)
    again = Uploads.of(
        stack[order],
        samples=first.samples[order],
        train_accuracy=first.train_accuracy[order],
        label_counts=first.label_counts[order],
        clients=order,
    )
    assert torch.equal(RULES[name](again), RULES[name](first))


def renamed(uploads: Uploads, order: list[int]) -> Uploads:
    """The same clients with permuted ids."""
    return Uploads.of(
        uploads.stack[order],
        samples=uploads.samples[order],
        train_accuracy=uploads.train_accuracy[order],
        label_counts=uploads.label_counts[order],
    )


@every_weighting
@settings(max_examples=20)
@given(order=st.permutations(range(7)), seed=st.integers(0, 1000))
def test_weights_follow_the_clients(name, order, seed):
    uploads = of(random_rows(seed, 7, 20))
    weights, moved = WEIGHTINGS[name](uploads), WEIGHTINGS[name](renamed(uploads, order))
    torch.testing.assert_close(moved, weights[order], atol=1e-6, rtol=1e-5)


# FedSA breaks ties by client ids; test_fedsa.py permutes ids without ties.
@pytest.mark.parametrize("name", [name for name in RULES if not name.startswith("fedsa")])
@settings(max_examples=20)
@given(order=st.permutations(range(7)), seed=st.integers(0, 1000))
def test_results_do_not_depend_on_client_ids(name, order, seed):
    uploads = of(random_rows(seed, 7, 20))
    vector, again = RULES[name](uploads), RULES[name](renamed(uploads, order))
    torch.testing.assert_close(again, vector, atol=1e-5, rtol=1e-5)


@every_rule
@pytest.mark.parametrize("scale", [1e-30, 1e30, 5e37])
@pytest.mark.parametrize("clients", [1, 2, 3, pytest.param(1000, marks=pytest.mark.long)])
def test_scales_and_numbers_of_clients(name, scale, clients):
    stack = random_rows(4, clients, 8)
    vector = RULES[name](of(stack * scale))
    assert bool(vector.isfinite().all())
    slack = 1e-5 * scale
    lowest, highest = stack.amin(0) * scale, stack.amax(0) * scale
    assert bool((vector >= lowest - slack).all() & (vector <= highest + slack).all())
    assert float(vector.abs().max()) > 0


@every_rule
def test_half_of_the_clients_identical(name):
    stack = torch.cat([random_rows(5, 1, 6).repeat(4, 1), random_rows(6, 4, 6)])
    vector = RULES[name](of(stack))
    assert bool((vector >= stack.amin(0) - 1e-5).all() & (vector <= stack.amax(0) + 1e-5).all())


@every_rule
def test_tensors_of_no_size(name):
    entries = (
        Entry("none", 0, 0, (0, 3), TensorKind.WEIGHT),
        Entry("some", 0, 4, (4,), TensorKind.WEIGHT),
        Entry("neither", 4, 4, (0,), TensorKind.BUFFER),
    )
    stack = random_rows(7, 5, 4)
    result = RULES[name](of(stack, Layout(entries)))
    torch.testing.assert_close(result, RULES[name](of(stack)))
    assert RULES[name](of(torch.empty(3, 0))).shape == (0,)
    assert RULES[name](of(torch.empty(3, 0), Layout(()))).shape == (0,)


def with_norm() -> Layout:
    return Layout.of(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 2)))


@every_rule
def test_statistics_are_averaged_but_do_not_affect_weights(name):
    layout = with_norm()
    stack = random_rows(8, 6, layout.size)
    stack[:, layout.counters] = torch.tensor([[3.0], [1.0], [9.0], [2.0], [9.0], [0.0]])
    vector, diagnostics = RULES[name].apply(of(stack, layout))
    assert vector[layout.counters].tolist() == [9.0]
    other = stack.clone()
    statistics = slice(layout.trainable, layout.counters.start)
    other[:, statistics] = 1000 * random_rows(9, 6, statistics.stop - statistics.start)
    changed, again = RULES[name].apply(of(other, layout))
    assert torch.equal(changed[: layout.trainable], vector[: layout.trainable])
    if "weights" in diagnostics:
        assert torch.equal(again["weights"], diagnostics["weights"])
        mean = diagnostics["weights"].float() @ other[:, statistics]
        torch.testing.assert_close(changed[statistics], mean)


def test_coordinate_rules_on_statistics():
    layout = with_norm()
    statistics = slice(layout.trainable, layout.counters.start)
    uploads = of(random_rows(10, 5, layout.size), layout)
    seen = uploads.stack[:, statistics]
    torch.testing.assert_close(coordinate_median()(uploads)[statistics], seen.median(0).values)
    torch.testing.assert_close(fedsa()(uploads)[statistics], seen.mean(0))


def test_a_network_without_parameters():
    layout = Layout((Entry("mean", 0, 2, (2,), TensorKind.NORM_STATISTIC),))
    stack = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    for rule in (fedsa(), fedsa(scope="model"), weighted_mean(inverse_distance())):
        assert rule(Uploads.of(stack, layout=layout)).tolist() == [2, 3]
