"""Partitioners for label skew on data small enough to check by hand."""

import time

import numpy as np
import pytest

from unskew.errors import UnskewError
from unskew.partition.base import Partition, SamplePool
from unskew.partition.registry import parse_partitioner
from unskew.utils.rng import generator


def balanced(classes: int = 10, each: int = 60) -> SamplePool:
    return SamplePool(np.tile(np.arange(classes), each), classes)


def partition_by(
    spec: str, pool: SamplePool, clients: int | None = None, seed: int = 0
) -> Partition:
    partitioner = parse_partitioner(spec)
    return partitioner.partition(
        pool, partitioner.num_clients(pool, clients), generator(seed, "skew")
    )


def classes_of(partition: Partition, pool: SamplePool) -> list[list[int]]:
    return [np.unique(pool.labels[part]).tolist() for part in partition.parts]


def counts_of(partition: Partition, pool: SamplePool) -> np.ndarray:
    return np.array([np.bincount(pool.labels[p], minlength=pool.classes) for p in partition.parts])


@pytest.mark.parametrize("balance", ["true", "false"])
def test_pathological_groups_share_classes(balance: str) -> None:
    pool = balanced()
    partition = partition_by(f"pathological:classes_per_client=2,balance={balance}", pool, 20)
    expected = [[2 * (k // 4), 2 * (k // 4) + 1] for k in range(20)]
    assert classes_of(partition, pool) == expected
    assert partition.dropped == 0


def test_pathological_sizes() -> None:
    pool = balanced(each=400)
    even = partition_by("pathological:balance=true", pool, 20)
    assert set(even.sizes) == {200}
    parts = counts_of(partition_by("pathological:least=0", pool, 20), pool)
    for label in range(10):
        *drawn, rest = parts[parts[:, label] > 0, label]
        assert len(drawn) == 3
        assert all(10 <= n < 100 for n in drawn)
        assert rest == 400 - sum(drawn)


def test_pathological_with_too_few_places_adds_a_note() -> None:
    pool = balanced()
    partition = partition_by("pathological:classes_per_client=2", pool, 3)
    assert partition.dropped == 4 * 60
    assert "no client holds 4 of the classes" in partition.notes[0]


@pytest.mark.parametrize(
    ("spec", "option"),
    [("pathological:classes_per_client=11", "classes_per_client"), ("n-classes:n=11", "n must")],
)
def test_more_classes_than_the_data_has_are_rejected(spec: str, option: str) -> None:
    with pytest.raises(UnskewError, match=option):
        partition_by(spec, balanced(), 5)


def test_n_classes_balanced_has_one_size() -> None:
    pool = balanced()
    partition = partition_by("n-classes:n=3", pool, 12)
    assert len(set(partition.sizes)) == 1
    assert all(len(held) == 3 for held in classes_of(partition, pool))
    assert partition.dropped == 600 - partition.sizes.sum()


def test_one_class_per_client_gives_each_class_to_a_client() -> None:
    held = classes_of(partition_by("n-classes:n=1", balanced(), 10), balanced())
    assert sorted(held) == [[c] for c in range(10)]


def test_n_classes_unbalanced_keeps_to_its_caps() -> None:
    pool = balanced(each=600)
    counts = counts_of(partition_by("n-classes:n=2,balanced=false,cap=50", pool, 30), pool)
    assert set((counts > 0).sum(axis=1)) == {2}
    assert counts.max() <= 50
    assert counts.max() > 40  # 60 draws from 1 to 50
    capped = partition_by("n-classes:n=2,balanced=false,cap=50,client_cap=20", pool, 30)
    assert capped.sizes.max() == 20


def test_n_classes_reduces_all_clients_of_a_class_with_too_few_samples() -> None:
    pool = balanced(classes=2, each=30)
    partition = partition_by("n-classes:n=2,balanced=false,cap=1000", pool, 10)
    assert partition.dropped == 0
    assert counts_of(partition, pool).min() >= 1
    assert "2 classes had fewer samples" in partition.notes[0]


def test_n_classes_doubles_the_chosen_clients() -> None:
    pool = balanced(each=600)
    plain = counts_of(partition_by("n-classes:n=2,balanced=false,cap=20", pool, 10), pool)
    doubled = counts_of(
        partition_by("n-classes:n=2,balanced=false,cap=20,double=1/7", pool, 10), pool
    )
    times = np.ones(10, int)
    times[[1, 7]] = 2
    assert np.array_equal(doubled, plain * times[:, None])


def test_n_classes_doubles_existing_clients_only() -> None:
    with pytest.raises(UnskewError, match="double must list clients from 0 to 4"):
        partition_by("n-classes:double=5", balanced(), 5)


def test_eta_one_is_a_single_class() -> None:
    pool = balanced()
    partition = partition_by("eta-shards:eta=1.0", pool, 10)
    assert classes_of(partition, pool) == [[k] for k in range(10)]
    assert set(partition.sizes) == {48}  # floor(0.8 * 600 / 10)


def test_eta_one_with_a_class_for_two_clients_stays_small() -> None:
    pool = balanced(classes=2, each=60)
    partition = partition_by("eta-shards:eta=1.0,share=1.0", pool, 3)
    # Clients 0 and 2 share the 60 samples of class 0, client 1 takes 40 of class 1.
    assert partition.sizes.tolist() == [30, 40, 30]
    assert "20 samples are missing" in partition.notes[0]


def test_eta_is_the_share_of_the_dominant_class() -> None:
    pool = balanced(each=100)
    counts = counts_of(partition_by("eta-shards:eta=0.6", pool, 10), pool)
    assert np.diag(counts).tolist() == [48] * 10  # 0.6 of 80
    assert set(counts.sum(axis=1)) == {80}


def test_eta_shards_stay_in_the_order_of_the_data() -> None:
    pool = balanced(classes=2, each=100)
    part = partition_by("eta-shards:eta=1.0,share=1.0,shards=10", pool, 2).parts[0]
    assert np.array_equal(part, np.flatnonzero(pool.labels == 0))
    shard = partition_by("eta-shards:eta=1.0,share=0.1,shards=10", pool, 2).parts[0]
    # 10 of the class' 100 samples: exactly one shard, ten neighbours.
    assert np.array_equal(shard, shard[0] + 2 * np.arange(10))
    assert shard[0] % 20 == 0


def test_shards_are_contiguous_in_the_sorted_data() -> None:
    pool = balanced(each=20)
    partition = partition_by("shards:shards=10,per_client=1", pool, 10)
    assert sorted(classes_of(partition, pool)) == [[c] for c in range(10)]
    assert partition_by("shards:shards=10,per_client=none", pool, 3).dropped == 20  # 3 each, 1 left


@pytest.mark.parametrize("spec", ["shards:shards=9", "shards:shards=3,per_client=none"])
def test_too_few_shards_are_rejected(spec: str) -> None:
    with pytest.raises(UnskewError, match="shards must be at least"):
        partition_by(spec, balanced(), 5)


def test_niid_2_thesis() -> None:
    pool = balanced()
    partition = partition_by("niid-2", pool)
    assert partition.clients == 6
    assert partition.sizes[0] == 100
    groups = classes_of(partition, pool)
    assert len(groups[0]) == 10
    assert sorted(label for group in groups[1:] for label in group) == list(range(10))
    assert {len(group) for group in groups[1:]} == {2}


def test_niid_2_feddisco_sizes_are_equal() -> None:
    pool = balanced(each=5000)  # CIFAR-10's training set
    partition = partition_by("niid-2:variant=feddisco", pool)
    assert partition.sizes.tolist() == [8330] * 6
    counts = counts_of(partition, pool)
    assert set(counts[0]) == {833}
    assert classes_of(partition, pool)[1:] == [[2 * i, 2 * i + 1] for i in range(5)]


def test_niid_2_needs_one_class_per_client() -> None:
    with pytest.raises(UnskewError, match="clients must be from 2 to 3"):
        partition_by("niid-2", balanced(classes=2))


def test_niid_1_defaults() -> None:
    partition = partition_by("niid-1", balanced(each=300))
    assert partition.clients == 10
    assert partition.sizes.min() >= 40


def test_dirichlet_with_a_large_alpha_is_even() -> None:
    pool = balanced(each=1000)
    counts = counts_of(partition_by("dirichlet:alpha=1000000", pool, 10), pool)
    assert np.abs(counts - 100).max() <= 2


def test_dirichlet_with_a_small_alpha_gives_classes_to_single_clients() -> None:
    pool = balanced(each=100)
    counts = counts_of(partition_by("dirichlet:alpha=0.0001,min_size=0", pool, 5), pool)
    assert np.all(counts.max(axis=0) == 100)


def test_dirichlet_balance_limits_the_largest_client() -> None:
    pool = balanced(each=100)
    sizes = partition_by("dirichlet:alpha=0.05,min_size=0,balance=true", pool, 10).sizes
    # A client takes its last class while it is below 100, so it gets at most 99 + 100.
    assert sizes.max() < 200
    free = [
        partition_by("dirichlet:alpha=0.05,min_size=0", pool, 10, seed).sizes.max()
        for seed in (0, 1)
    ]
    assert max(free) > 200


def test_dirichlet_with_an_impossible_minimum_fails_quickly() -> None:
    pool = balanced(each=6000)
    started = time.process_time()
    with pytest.raises(UnskewError, match="lower min_size, raise alpha or retries"):
        partition_by("dirichlet:alpha=0.1,min_size=59", pool, 1000)
    with pytest.raises(UnskewError, match="lower min_size"):
        partition_by("dirichlet:alpha=0.01,min_size=5000", pool, 10)
    with pytest.raises(UnskewError, match="min_size must be at most 60"):
        partition_by("dirichlet:min_size=61", pool, 1000)
    assert time.process_time() - started < 5


def test_dirichlet_top_up_keeps_the_labels_skewed() -> None:
    pool = balanced(each=600)
    partition = partition_by("dirichlet:alpha=0.01", pool, 300)
    assert "topped up to 10 samples" in partition.notes[0]
    assert partition.sizes.min() == 10
    assert np.mean([len(held) for held in classes_of(partition, pool)]) < 2


@pytest.mark.parametrize(
    "spec",
    ["iid", "dirichlet", "pathological", "n-classes", "eta-shards", "quantity", "natural"],
)
def test_a_thousand_clients_take_less_than_a_second(spec: str) -> None:
    rng = np.random.default_rng(0)
    pool = SamplePool(rng.integers(0, 10, 60_000), 10, rng.integers(0, 500, 60_000))
    started = time.process_time()
    assert partition_by(spec, pool, 1000).clients == 1000
    assert time.process_time() - started < 1
