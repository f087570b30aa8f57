"""FedSA on an example computed by hand, and properties that hold for any clients."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from unskew.aggregation import Uploads, by_samples, fedsa, uniform, weighted_mean
from unskew.errors import UnskewError
from unskew.models.layout import Entry, Layout, TensorKind

# Clients 0-3 are alike, 4 and 5 differ from them. Columns: all agree; two against four; two
# against four; client 5 alone against the others. Means 10, 2, 4, 1; squared deviations relative
# to the largest of the column: -; 1/4 and 1; 1/4 and 1; 1/25 and 1. So the micro-classes are
# 1 and 4, and coefficients of variation 0, 1.41, 0.71, 2.24 scale to 0, 0.63, 0.32, 1.
TOY = torch.tensor(
    [
        [10.0, 0.0, 6.0, 0.0],
        [10.0, 0.0, 6.0, 0.0],
        [10.0, 0.0, 6.0, 0.0],
        [10.0, 0.0, 6.0, 0.0],
        [10.0, 6.0, 0.0, 0.0],
        [10.0, 6.0, 0.0, 6.0],
    ]
)
MEAN = [10.0, 2.0, 4.0, 1.0]


def two_tensors() -> Uploads:
    """The toy example split into two tensors that share its first column: c0 c1 and c0 c2 c3."""
    entries = (
        Entry("a", 0, 2, (2,), TensorKind.WEIGHT),
        Entry("nothing", 2, 2, (0,), TensorKind.WEIGHT),
        Entry("b", 2, 5, (3,), TensorKind.WEIGHT),
    )
    return Uploads.of(TOY[:, [0, 1, 0, 2, 3]], layout=Layout(entries))


def test_toy_by_hand():
    vector, diagnostics = fedsa().apply(Uploads.of(TOY))
    # Client 4 agrees with 0-3 on one of three columns, with 5 on two: it forms a cluster with 5.
    assert diagnostics["clusters"].tolist() == [[0, 0, 0, 0, 1, 1]]
    assert diagnostics["high_share"].tolist() == [0.75]
    # Macro-classes are (1, 1, 1) and (4, 4, 1): in the last column 4 and 5 tie, the lower wins.
    # Weights 3:2, 3:2, 3:1 of the clusters' means (0, 6, 0) and (6, 0, 3).
    torch.testing.assert_close(vector, torch.tensor([10.0, 2.4, 3.6, 0.75]))
    torch.testing.assert_close(diagnostics["weight_sums"], torch.ones(1, 2, dtype=torch.float64))


def test_the_literal_weights_do_not_sum_to_one():
    vector, diagnostics = fedsa(weighting="literal").apply(Uploads.of(TOY))
    # N / (S C) with S C = 16: (3, 3, 3)/16 and (2, 2, 1)/16.
    torch.testing.assert_close(vector, torch.tensor([10.0, 12 / 16, 18 / 16, 3 / 16]))
    assert diagnostics["weight_sums"].tolist() == [[4 / 16, 5 / 16]]


def test_a_client_unlike_the_only_cluster_is_excluded():
    # Client 4 joins with 1/3; client 5 agrees with 4 alone: 2/3 over five members is 0.13.
    vector, diagnostics = fedsa(macro=1).apply(Uploads.of(TOY))
    assert diagnostics["clusters"].tolist() == [[0, 0, 0, 0, 0, -1]]
    torch.testing.assert_close(vector, torch.tensor([10.0, 1.2, 4.8, 0.0]))


def test_one_cluster_of_all_clients_is_the_mean():
    vector, diagnostics = fedsa(macro=1, similarity=0.1).apply(Uploads.of(TOY))
    assert diagnostics["clusters"].tolist() == [[0] * 6]
    torch.testing.assert_close(vector, torch.tensor(MEAN))


def test_clusters_of_each_tensor():
    vector, diagnostics = fedsa().apply(two_tensors())
    # The first tensor has one high column and two equal clusters: (0 + 6) / 2. In the last one,
    # client 4 agrees with 0-3 as often as with 5, and joining comes before forming a new one.
    assert diagnostics["clusters"].tolist() == [[0, 0, 0, 0, 1, 1], [-1] * 6, [0] * 6]
    assert diagnostics["high_share"].tolist() == [0.5, 0, 2 / 3]
    torch.testing.assert_close(vector, torch.tensor([10.0, 3.0, 10.0, 4.0, 1.0]))


def test_one_clustering_for_the_model():
    vector, diagnostics = fedsa(scope="model").apply(two_tensors())
    assert diagnostics["clusters"].tolist() == [[0, 0, 0, 0, 1, 1]]
    assert diagnostics["cluster"].tolist() == [0, 0, 0, 0, 1, 1]
    torch.testing.assert_close(vector, torch.tensor([10.0, 2.4, 10.0, 3.6, 0.75]))


def test_raw_bins_put_small_deviations_into_one_class():
    # All squares are far below 1/4, so all clients are in class 1 and there is one cluster.
    vector, diagnostics = fedsa(bins="raw").apply(Uploads.of(TOY / 100))
    assert diagnostics["clusters"].tolist() == [[0] * 6]
    torch.testing.assert_close(vector, torch.tensor(MEAN) / 100)


def test_layer_bins_compare_columns():
    # The largest deviation of the tensor is 5: squares 4, 16, 1 and 25 of 25 are classes
    # 1, 3, 1 and 4, so client 5 is in classes (3, 3, 4) and client 4 in (3, 3, 1).
    vector, _ = fedsa(bins="layer").apply(Uploads.of(TOY))
    torch.testing.assert_close(vector, torch.tensor([10.0, 2.4, 3.6, 0.75]))


def test_means_by_samples():
    uploads = Uploads.of(TOY, samples=[1, 1, 1, 1, 1, 3])
    vector = fedsa(client_weighting=by_samples())(uploads)
    # Means are now 10, 3, 3, 2.25. In the first two high columns all are equally far off (class
    # 4), so clients 0-4 agree everywhere and 5 on two of three columns: one cluster, one mean.
    torch.testing.assert_close(vector, torch.tensor([10.0, 3.0, 3.0, 2.25]))
    averaged = fedsa(cv_threshold=1, client_weighting=by_samples())(uploads)
    torch.testing.assert_close(averaged, weighted_mean(by_samples())(uploads))


@pytest.mark.parametrize("cv_scale", ["minmax", "rank", "clip99"])
@pytest.mark.parametrize("bins", ["column", "layer", "raw"])
@pytest.mark.parametrize("scope", ["tensor", "model"])
def test_identical_clients_stay_as_they_are(cv_scale, bins, scope):
    model = torch.randn(50, generator=torch.Generator().manual_seed(1))
    rule = fedsa(cv_scale=cv_scale, bins=bins, scope=scope, weighting="literal")
    vector, diagnostics = rule.apply(Uploads.of(model.repeat(7, 1)))
    torch.testing.assert_close(vector, model)
    assert diagnostics["high_share"].tolist() == [0]


@settings(max_examples=40)
@given(st.integers(0, 10_000), st.integers(1, 9), st.sampled_from(["minmax", "rank", "clip99"]))
def test_weights_sum_to_one_and_results_are_in_the_hull(seed, clients, cv_scale):
    stack = torch.randn(clients, 40, generator=torch.Generator().manual_seed(seed))
    vector, diagnostics = fedsa(cv_scale=cv_scale).apply(Uploads.of(stack))
    torch.testing.assert_close(
        diagnostics["weight_sums"], torch.ones(1, 2, dtype=torch.float64), atol=1e-6, rtol=0
    )
    slack = 1e-6 * stack.abs().max()
    assert bool((vector >= stack.amin(0) - slack).all() & (vector <= stack.amax(0) + slack).all())


@settings(max_examples=40)
@given(st.integers(0, 10_000), st.sampled_from([1, 2, 3]))
def test_up_to_three_clients_are_one_cluster(seed, clients):
    # Two clients are equally far from their mean; a third has no client left to pair with.
    stack = torch.randn(clients, 30, generator=torch.Generator().manual_seed(seed))
    torch.testing.assert_close(fedsa(cv_scale="rank")(Uploads.of(stack)), stack.mean(0))


@settings(max_examples=40)
@given(st.integers(0, 10_000), st.sampled_from([-1, 1]), st.sampled_from([-100, -3, 5, 100]))
def test_scaling_the_models_scales_the_result(seed, sign, power):
    stack = torch.randn(8, 30, generator=torch.Generator().manual_seed(seed))
    factor = sign * 2.0**power
    for rule in (fedsa(), fedsa(cv_scale="rank", bins="layer")):
        assert torch.equal(rule(Uploads.of(stack * factor)), rule(Uploads.of(stack)) * factor)


def test_a_threshold_of_one_is_the_mean():
    stack = torch.randn(6, 30, generator=torch.Generator().manual_seed(3))
    for cv_scale in ("minmax", "rank", "clip99"):
        result = fedsa(cv_threshold=1, cv_scale=cv_scale)(Uploads.of(stack))
        assert torch.equal(result, weighted_mean(uniform())(Uploads.of(stack)))


def test_ids_only_resolve_ties():
    stack = torch.randn(9, 20_000, generator=torch.Generator().manual_seed(5))
    order = [4, 2, 8, 0, 1, 7, 6, 3, 5]
    rule = fedsa(cv_scale="rank")
    torch.testing.assert_close(rule(Uploads.of(stack[order])), rule(Uploads.of(stack)))


def test_a_tensor_wider_than_a_block(monkeypatch):
    stack = torch.randn(9, 60, generator=torch.Generator().manual_seed(6))
    rule = fedsa(cv_scale="rank")
    whole = rule(Uploads.of(stack))
    monkeypatch.setattr("unskew.aggregation.blocks.BLOCK", 9 * 7)
    torch.testing.assert_close(rule(Uploads.of(stack)), whole)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"cv_threshold": -1}, "cv_threshold"),
        ({"similarity": 2}, "similarity"),
        ({"micro": 0}, "micro"),
        ({"micro": 300}, "micro"),
        ({"macro": 0}, "macro"),
        ({"cv_scale": "max"}, "cv_scale"),
        ({"bins": "row"}, "bins"),
        ({"scope": "layer"}, "scope"),
        ({"weighting": "none"}, "weighting"),
    ],
)
def test_bad_options_are_named(options, field):
    with pytest.raises(UnskewError, match=f"^{field} must be"):
        fedsa(**options)
