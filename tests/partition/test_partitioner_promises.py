"""Properties of every partitioner on any data: valid owners, reproducibility, coverage."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unskew.errors import UnskewError
from unskew.partition.base import NO_CLIENT, Partition, SamplePool
from unskew.partition.dirichlet import Dirichlet
from unskew.partition.registry import PARTITIONERS, parse_partitioner
from unskew.utils.rng import generator

COVERING = [
    "iid",
    "noise",
    "dirichlet:alpha=0.1",
    "dirichlet:alpha=0.01,balance=true",
    "dirichlet:alpha=100,min_size=0",
    "pathological",
    "pathological:balance=true,least=5",
    "niid-1:min_size=0",
    "niid-2",
    "quantity:sigma=2",
    "quantity:law=zipf,exponent=1.5,min_size=0",
    "natural",
]
DROPPING = [
    "n-classes",
    "n-classes:balanced=false,cap=7",
    "n-classes:n=1,balanced=false,cap=50,client_cap=9,double=0/1",
    "eta-shards:eta=0.7",
    "eta-shards:eta=0.0,share=1.0,shards=3",
    "shards:shards=40",
    "shards:shards=40,per_client=none",
    "niid-2:variant=feddisco",
    "natural:min_size=5",  # of 60 samples or more in 12 groups, one has five
]

specs = st.sampled_from(COVERING + DROPPING)


@st.composite
def pools(draw: st.DrawFn) -> SamplePool:
    classes = draw(st.integers(2, 8))
    samples = draw(st.integers(60, 300))
    rng = np.random.default_rng(draw(st.integers(0, 2**20)))
    shares = rng.dirichlet(np.full(classes, 2.0))
    labels = rng.choice(classes, samples, p=shares)
    return SamplePool(labels, classes, rng.integers(0, 12, samples))


def partition_by(spec: str, pool: SamplePool, clients: int, seed: int) -> Partition:
    partitioner = parse_partitioner(spec)
    requested = min(clients, pool.classes + 1) if "niid-2" in spec else clients
    return partitioner.partition(
        pool, partitioner.num_clients(pool, requested), generator(seed, "skew")
    )


def test_every_partitioner_is_tested() -> None:
    named = {spec.partition(":")[0] for spec in COVERING + DROPPING}
    assert named == set(PARTITIONERS)


@given(specs, pools(), st.integers(2, 20), st.integers(0, 99))
def test_parts_are_disjoint_and_within_the_pool(
    spec: str, pool: SamplePool, clients: int, seed: int
) -> None:
    partition = partition_by(spec, pool, clients, seed)
    assert len(partition.owner) == len(pool)
    assert partition.owner.min() >= NO_CLIENT
    assert partition.owner.max() < partition.clients
    rows = np.concatenate(partition.parts)
    assert len(np.unique(rows)) == len(rows) == len(pool) - partition.dropped
    assert [len(part) for part in partition.parts] == partition.sizes.tolist()
    for k, part in enumerate(partition.parts):
        assert np.all(partition.owner[part] == k)


@given(st.sampled_from(COVERING), pools(), st.integers(2, 20), st.integers(0, 99))
def test_covering_partitioners_drop_nothing(
    spec: str, pool: SamplePool, clients: int, seed: int
) -> None:
    if "pathological" in spec:
        clients = max(clients, pool.classes // 2 + 1)  # fewer cannot hold all the classes
    if spec == "natural":
        clients = max(clients, 12)  # fewer leave groups out
    assert partition_by(spec, pool, clients, seed).dropped == 0


@pytest.mark.parametrize("spec", COVERING + DROPPING)
def test_the_seed_decides(spec: str) -> None:
    rng = np.random.default_rng(3)
    pool = SamplePool(rng.integers(0, 10, 900), 10, rng.integers(0, 40, 900))
    first, again, other = (partition_by(spec, pool, 10, seed).owner for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@given(pools(), st.integers(2, 60), st.sampled_from(["iid", "noise"]))
def test_iid_sizes_differ_by_at_most_one(pool: SamplePool, clients: int, spec: str) -> None:
    assert np.ptp(partition_by(spec, pool, clients, 0).sizes) <= 1


@given(pools(), st.integers(2, 30), st.sampled_from([0.01, 0.1, 1.0]), st.booleans())
@settings(max_examples=50)
def test_dirichlet_gives_every_client_samples_by_default(
    pool: SamplePool, clients: int, alpha: float, balance: bool
) -> None:
    spec = f"dirichlet:alpha={alpha},balance={balance},retries=3"
    assert partition_by(spec, pool, clients, 0).sizes.min() >= min(10, len(pool) // (2 * clients))


@given(pools(), st.integers(2, 12), st.integers(0, 5), st.sampled_from(["lognormal", "zipf"]))
def test_quantity_keeps_its_minimum(pool: SamplePool, clients: int, least: int, law: str) -> None:
    sizes = partition_by(
        f"quantity:law={law},sigma=3,exponent=3,min_size={least}", pool, clients, 0
    ).sizes
    assert sizes.min() >= least
    assert sizes.sum() == len(pool)


@given(pools(), st.integers(2, 20), st.floats(0, 1))
def test_eta_shards_have_one_size_unless_a_note_is_added(
    pool: SamplePool, clients: int, eta: float
) -> None:
    partition = partition_by(f"eta-shards:eta={eta}", pool, clients, 0)
    size = int(0.8 * len(pool) / clients + 1e-9)
    assert partition.sizes.max() <= size
    assert bool(partition.notes) == (partition.sizes.min() < size)


@given(pools(), st.integers(2, 20), st.data())
def test_n_classes_holds_at_most_n_classes_and_every_class_if_possible(
    pool: SamplePool, clients: int, data: st.DataObject
) -> None:
    n = data.draw(st.integers(1, pool.classes))
    partition = partition_by(f"n-classes:n={n},balanced=false,cap=3", pool, clients, 0)
    held = np.zeros((clients, pool.classes), bool)
    owned = partition.owner != NO_CLIENT
    held[partition.owner[owned], pool.labels[owned]] = True
    assert held.sum(axis=1).max() <= n
    if clients * n >= pool.classes:
        assert np.array_equal(held.any(axis=0), pool.class_counts > 0)


@given(pools(), st.integers(2, 20), st.integers(1, 8), st.booleans())
def test_pathological_holds_at_most_its_classes(
    pool: SamplePool, clients: int, per_client: int, balance: bool
) -> None:
    per_client = min(per_client, pool.classes)
    spec = f"pathological:classes_per_client={per_client},balance={balance}"
    partition = partition_by(spec, pool, clients, 0)
    held = [len(np.unique(pool.labels[part])) for part in partition.parts]
    assert max(held) <= per_client
    if clients * per_client >= pool.classes:
        assert partition.dropped == 0


@pytest.mark.parametrize("spec", ["iid", "dirichlet", "natural", "quantity"])
@pytest.mark.parametrize("clients", [0, -1, 101])
def test_impossible_numbers_of_clients_are_rejected(spec: str, clients: int) -> None:
    pool = SamplePool(np.arange(100) % 4, 4, np.arange(100) % 7)
    with pytest.raises(UnskewError, match="clients must be from 1 to 100"):
        parse_partitioner(spec).num_clients(pool, clients)


def test_balanced_dirichlet_accepts_a_class_without_samples():
    # Both clients have their even share before the last class, which has no samples.
    counts = Dirichlet(alpha=0.01, balance=True)._draw(
        np.array([2, 2, 0]), 2, np.random.default_rng(0)
    )
    assert counts.sum() == 4
    assert counts[:, 2].sum() == 0
