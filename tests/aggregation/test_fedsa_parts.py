"""The parts of FedSA: dispersion, micro-classes, agreement, clusters."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from unskew.aggregation.clustering import greedy_clusters
from unskew.aggregation.dispersion import high_columns, micro_classes, spreads, variations
from unskew.aggregation.macro import Clusters, agreements, macro_class_counts


def variations_of(rows: torch.Tensor) -> torch.Tensor:
    mean = rows.mean(0)
    return variations(rows, mean, spreads(rows, mean))


def test_coefficients_of_variation_by_hand():
    rows = torch.tensor([[1.0, 3.0, 0.0, 5.0], [3.0, 3.0, 0.0, -7.0]])
    found = variations_of(rows)
    torch.testing.assert_close(found, torch.tensor([0.5, 0.0, 0.0, 6.0]))


def test_a_mean_of_zero_has_a_large_but_finite_variation():
    rows = torch.tensor([[1.0, 4.0], [-1.0, 4.0]])
    found = variations_of(rows)
    # The root mean square of (1, -1, 4, 4) is 2.915; 1 / (1e-8 x 2.915).
    torch.testing.assert_close(found, torch.tensor([1e8 / 8.5**0.5, 0.0]))


@pytest.mark.parametrize("power", [-100, -40, 0, 40, 100])
def test_variations_do_not_depend_on_the_scale(power):
    # Means 0 and 2^-20, deviations 1 and 2^-20; the root mean square is the root of 1/2.
    rows = torch.tensor([[1.0, 2.0**-19], [-1.0, 0.0]]) * 2.0**power
    found = variations_of(rows)
    expected = torch.tensor([1e8 * 2**0.5, 1 / (1 + 1e-8 * 2**20 / 2**0.5)])
    torch.testing.assert_close(found, expected)


def test_scales_of_variation():
    variation = torch.cat([torch.arange(99.0), torch.tensor([1e6])])
    assert high_columns(variation, "minmax", 0.2).tolist() == [99]
    # The 99th percentile is 98: more than 19.6 is high.
    assert high_columns(variation, "clip99", 0.2).tolist() == list(range(20, 100))
    # The value at place 0.2 x 99 = 19 is 19.
    assert high_columns(variation, "rank", 0.2).tolist() == list(range(20, 100))
    for scale in ("minmax", "clip99", "rank"):
        assert high_columns(torch.full((5,), 2.0), scale, 0.2).tolist() == []
        assert high_columns(torch.empty(0), scale, 0.2).tolist() == []


def test_micro_classes_by_hand():
    rows = torch.tensor([[0.0], [1.0], [2.0], [3.0], [4.0]])
    every = torch.tensor([0])
    # Squared deviations from 0 relative to 16: 0, 1/16, 1/4, 9/16, 1.
    classes = micro_classes(rows, torch.zeros(1), every, 4, "column")
    assert classes.flatten().tolist() == [1, 1, 1, 3, 4]
    raw = micro_classes(rows / 4, torch.zeros(1), every, 4, "raw")
    assert raw.flatten().tolist() == [1, 1, 1, 3, 4]
    assert micro_classes(rows, torch.zeros(1), every, 4, "raw").max() == 4


@settings(max_examples=40)
@given(st.integers(0, 1000), st.integers(1, 6), st.integers(1, 5), st.integers(0, 20))
def test_agreements_count_equal_classes(seed, clients, classes, columns):
    random_rows = torch.Generator().manual_seed(seed)
    micro = torch.randint(1, classes + 1, (clients, columns), generator=random_rows).to(torch.uint8)
    expected = (micro[:, None, :] == micro[None, :, :]).sum(2).double()
    assert torch.equal(agreements(micro, classes), expected)


def test_macro_classes_are_modes_and_the_lower_class_wins_a_tie():
    micro = torch.tensor([[3, 1, 2], [2, 1, 2], [2, 2, 3], [1, 2, 3], [4, 4, 4]]).to(torch.uint8)
    clusters = Clusters.of(torch.tensor([0, 0, 0, 1, -1]), torch.ones(5))
    macro = clusters.macro_classes(micro, 4)
    assert macro.tolist() == [[2, 1, 2], [1, 2, 3]]
    assert macro_class_counts(macro, 4).tolist() == [[1, 2, 0, 0], [1, 1, 1, 0]]
    tied = Clusters.of(torch.tensor([0, 0, -1, -1, -1]), torch.ones(5))
    assert tied.macro_classes(micro, 4).tolist() == [[2, 1, 2]]


def test_a_cluster_of_clients_without_weight_takes_the_unweighted_mean():
    clusters = Clusters.of(torch.tensor([0, 0, 1, 1]), torch.tensor([3.0, 1.0, 0.0, 0.0]))
    assert clusters.means.tolist() == [[0.75, 0.25, 0, 0], [0, 0, 0.5, 0.5]]


def similar(pairs: dict[tuple[int, int], int], clients: int, coordinates: int) -> np.ndarray:
    matches = np.zeros((clients, clients))
    for (a, b), count in pairs.items():
        matches[a, b] = matches[b, a] = count
    np.fill_diagonal(matches, coordinates)
    return matches


def test_joins_come_before_pairs_of_equal_score():
    matches = similar({(0, 1): 9, (0, 2): 5, (1, 2): 5, (2, 3): 5, (0, 3): 1, (1, 3): 1}, 4, 10)
    # After (0, 1): 2 joins with 5 although (2, 3) scores 5 too; 3 can then only join them.
    assert greedy_clusters(matches, 10, limit=4, threshold=0.2).tolist() == [0, 0, 0, 0]


def test_tied_pairs_go_to_the_smallest_ids():
    matches = similar({(0, 3): 8, (1, 2): 8, (0, 1): 8}, 4, 10)
    # (0, 1) comes before (0, 3) and (1, 2); then 2 and 3 join with 4 each, 2 first.
    assert greedy_clusters(matches, 10, limit=1, threshold=0.2).tolist() == [0, 0, 0, 0]
    assert greedy_clusters(matches, 10, limit=1, threshold=0.3).tolist() == [0, 0, 0, -1]


def test_the_threshold_applies_only_once_all_clusters_exist():
    matches = similar({(0, 1): 10, (2, 3): 1}, 4, 10)
    assert greedy_clusters(matches, 10, limit=2, threshold=0.5).tolist() == [0, 0, 1, 1]
    assert greedy_clusters(matches, 10, limit=1, threshold=0.5).tolist() == [0, 0, -1, -1]


def test_a_score_equal_to_the_threshold_is_not_enough():
    matches = similar({(0, 1): 10, (0, 2): 2, (1, 2): 2}, 3, 10)
    assert greedy_clusters(matches, 10, limit=1, threshold=0.2).tolist() == [0, 0, -1]
    assert greedy_clusters(matches, 10, limit=1, threshold=0.19).tolist() == [0, 0, 0]


def test_one_client_forms_no_cluster_and_many_are_fast():
    assert greedy_clusters(np.full((1, 1), 5.0), 5, 4, 0.2).tolist() == [-1]
    matches = np.random.default_rng(0).integers(0, 100, (1000, 1000)).astype(float)
    labels = greedy_clusters(np.maximum(matches, matches.T), 100, 4, 0.2)
    assert sorted(set(labels.tolist())) == [0, 1, 2, 3]


def every_move(matches: np.ndarray, labels: list[int], limit: int) -> list[tuple]:
    """All possible moves, the best first: by score, joins before pairs, ids, cluster."""
    free = [k for k, label in enumerate(labels) if label < 0]
    clusters = range(max(labels) + 1)
    joins = [
        (-np.mean([matches[k, j] for j, label in enumerate(labels) if label == c]), 0, (k,), c)
        for k in free
        for c in clusters
    ]
    pairs = [(-matches[a, b], 1, (a, b), len(clusters)) for a in free for b in free if a < b]
    return sorted(joins + (pairs if len(clusters) < limit else []))


@settings(max_examples=60)
@given(st.integers(0, 10_000), st.integers(1, 12), st.integers(1, 5), st.sampled_from([3, 40]))
def test_clusters_equal_those_of_an_exhaustive_search(seed, clients, limit, coordinates):
    random_rows = np.random.default_rng(seed).integers(0, coordinates + 1, (clients, clients))
    matches = np.maximum(random_rows, random_rows.T).astype(float)
    labels = [-1] * clients
    while moves := every_move(matches, labels, limit):
        score, _, members, cluster = moves[0]
        if max(labels) + 1 == limit and -score / coordinates <= 0.5:
            break
        for member in members:
            labels[member] = cluster
    assert greedy_clusters(matches, coordinates, limit, 0.5).tolist() == labels
