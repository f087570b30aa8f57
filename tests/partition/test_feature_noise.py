import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unskew.errors import UnskewError
from unskew.partition.base import NO_CLIENT, Partition, SamplePool
from unskew.partition.feature_noise import Noise
from unskew.partition.natural import Natural, assign_by_group
from unskew.partition.quantity import Quantity
from unskew.utils.rng import generator


def noise_variances(noise: Noise, clients: int) -> np.ndarray:
    """The variance of each client's noise on mid-grey images, where hardly any is clipped."""
    x = np.full((clients * 4, 1, 60, 60), 0.5, np.float32)
    owner = np.repeat(np.arange(clients), 4)
    noisy = noise.distort(x, owner, clients, generator(0, "distort"))
    return (noisy - x).reshape(clients, -1).var(axis=1)


@pytest.mark.parametrize(
    ("noise", "last"),
    [
        (Noise(level=0.01), 0.01 * 4 / 5),
        (Noise(level=0.01, denominator="K-1"), 0.01),
        (Noise(level=0.1, kind="std"), (0.1 * 4 / 5) ** 2),
        (Noise(level=0.1, kind="std", denominator="K-1"), 0.1**2),
    ],
)
def test_noise_variance_of_each_client(noise: Noise, last: float) -> None:
    variances = noise_variances(noise, 5)
    steps = np.arange(5) / 4
    expected = last * (steps if noise.kind == "variance" else steps**2)
    assert variances[0] == 0
    assert np.allclose(variances[1:], expected[1:], rtol=0.06)


def test_noise_scales_bytes_to_fractions_and_clips() -> None:
    x = np.array([[0, 255], [0, 255], [51, 255]], np.uint8)
    owner = np.array([0, 1, 0])
    noisy = Noise(level=1).distort(x, owner, 2, generator(0, "distort"))
    assert noisy.dtype == np.float32
    assert noisy[0].tolist() == [0, 1]
    assert noisy[2, 0] == pytest.approx(0.2)
    assert np.all((noisy >= 0) & (noisy <= 1))


def test_noise_of_one_client() -> None:
    assert Noise(denominator="K-1").deviations(1).tolist() == [0]


@pytest.mark.parametrize("x", [np.array([[3]], np.int32), np.array([[1.5]]), np.array([[-0.1]])])
def test_noise_rejects_features_that_are_not_images(x: np.ndarray) -> None:
    with pytest.raises(UnskewError, match="x must be images or features from 0 to 1"):
        Noise().distort(x, np.array([0]), 1, generator(0, "distort"))


def natural(pool: SamplePool, clients: int | None, **options: int) -> Partition:
    partitioner = Natural(**options)
    return partitioner.partition(pool, partitioner.num_clients(pool, clients), generator(0, "skew"))


def test_natural_groups_are_the_clients() -> None:
    pool = SamplePool(np.zeros(6, int), 1, np.array([7, 3, 7, 3, 9, 7]))
    partition = natural(pool, None)
    assert partition.origin is not None
    assert partition.origin.tolist() == [3, 7, 9]
    assert [part.tolist() for part in partition.parts] == [[1, 3], [0, 2, 5], [4]]
    large = natural(pool, None, min_size=2)
    assert large.origin is not None
    assert large.origin.tolist() == [3, 7]
    assert large.dropped == 1


def test_natural_chooses_groups_if_fewer_clients_are_requested() -> None:
    pool = SamplePool(np.zeros(50, int), 1, np.arange(50) % 10)
    partition = natural(pool, 4)
    assert partition.sizes.tolist() == [5] * 4
    assert partition.dropped == 30


def test_natural_splits_groups_in_proportion_if_more_clients_are_requested() -> None:
    groups = np.repeat([0, 1, 2], [100, 600, 1300])
    partition = natural(SamplePool(np.zeros(2000, int), 1, groups), 40)
    assert partition.origin is not None
    assert np.bincount(partition.origin).tolist() == [2, 12, 26]
    assert set(partition.sizes) == {50}
    for k, part in enumerate(partition.parts):
        assert set(groups[part]) == {partition.origin[k]}


def test_natural_gives_even_a_tiny_group_a_client() -> None:
    groups = np.repeat([0, 1, 2], [1, 50, 49])
    partition = natural(SamplePool(np.zeros(100, int), 1, groups), 5)
    assert partition.origin is not None
    assert np.bincount(partition.origin).tolist() == [1, 2, 2]


def test_natural_rejects_missing_and_small_groups() -> None:
    with pytest.raises(UnskewError, match="has no groups"):
        natural(SamplePool(np.zeros(5, int), 1), None)
    with pytest.raises(UnskewError, match="min_size must be at most 3"):
        natural(SamplePool(np.zeros(5, int), 1, np.array([0, 0, 1, 1, 1])), None, min_size=4)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=60), st.integers(0, 99))
def test_assign_by_group_splits_each_group_evenly(groups: list[int], seed: int) -> None:
    origin = np.array([1, 1, 1, 4, 6, 6])
    owner = assign_by_group(origin, np.array(groups), generator(seed, "skew"))
    for group, k in zip(groups, owner, strict=True):
        assert k == NO_CLIENT if group not in origin else origin[k] == group
    for group in (1, 6):
        sizes = [np.count_nonzero(owner == k) for k in np.flatnonzero(origin == group)]
        assert max(sizes) - min(sizes) <= 1


def test_zipf_sizes_by_hand() -> None:
    pool = SamplePool(np.zeros(110, int), 1)
    zipf = Quantity(law="zipf", exponent=1, min_size=0)
    sizes = zipf.partition(pool, 3, generator(0, "skew")).sizes
    assert sizes.tolist() == [60, 30, 20]  # 110 in the proportions 1 : 1/2 : 1/3


def test_sigma_widens_the_sizes() -> None:
    pool = SamplePool(np.zeros(10_000, int), 1)
    logs = [
        np.log(Quantity(sigma=sigma).partition(pool, 50, generator(0, "skew")).sizes).std()
        for sigma in (0.0, 0.5, 1.5)
    ]
    assert logs[0] == 0
    assert logs[1] == pytest.approx(0.5, rel=0.3)
    assert logs[2] == pytest.approx(1.5, rel=0.3)


def test_quantity_rejects_an_impossible_minimum() -> None:
    with pytest.raises(UnskewError, match="min_size must be at most 2"):
        Quantity(min_size=3).partition(SamplePool(np.zeros(10, int), 1), 4, generator(0, "skew"))
