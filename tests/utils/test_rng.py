import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from unskew.utils import rng

sizes_of_clients = st.lists(st.integers(0, 40), min_size=1, max_size=8)


def shuffled(sizes, *, clients=None, seed=0, epoch=0):
    ids = np.arange(len(sizes)) if clients is None else np.array(clients, np.int64)
    return rng.permutations(rng.stream(seed, "test"), ids, np.array(sizes, np.int64), epoch)


def test_same_purpose_same_numbers():
    first, again = (rng.generator(7, "skew", 3).random(4) for _ in range(2))
    assert np.array_equal(first, again)
    for other in (
        rng.generator(8, "skew", 3),
        rng.generator(7, "holdout", 3),
        rng.generator(7, "skew", 4),
        rng.generator(7, "skew", 3, 0),
    ):
        assert not np.array_equal(first, other.random(4))


def test_torch_generators_repeat_too():
    import torch

    draws = [
        torch.rand(3, generator=rng.torch_generator(seed, "init", 1)).tolist() for seed in (1, 1, 2)
    ]
    assert draws[0] == draws[1] != draws[2]


def test_streams_are_what_they_were():
    # Changing these would change every run that was ever recorded.
    assert int(rng.stream(0, "shuffle")) == 13959429451602345460
    assert int(rng.stream(1, "shuffle", 2, 3)) == 4726276197388127150


def test_mixing_is_that_of_splitmix64():
    # The first numbers that generator gives for the seeds 0 and 1234567, as published.
    assert rng._mix(0) == 0xE220A8397B1DCDAF
    assert rng._mix(1234567) == 6457827717110365317


def test_streams_tell_their_parts_apart():
    streams = {
        int(rng.stream(seed, purpose, a, b))
        for seed in range(4)
        for purpose in ("x", "y")
        for a in range(8)
        for b in range(8)
    }
    assert len(streams) == 4 * 2 * 8 * 8


@given(st.integers(0, 2**64 - 1))
def test_one_and_many_are_mixed_alike(value):
    assert int(rng._mix_array(np.array([value], np.uint64))[0]) == rng._mix(value)


@given(sizes_of_clients, st.integers(0, 2**63), st.integers(0, 1000))
def test_each_row_shuffles_its_own_samples_and_pads_after_them(sizes, seed, epoch):
    rows = shuffled(sizes, seed=seed, epoch=epoch)
    assert rows.shape == (len(sizes), max(sizes))
    for row, size in zip(rows, sizes, strict=True):
        assert sorted(row[:size]) == list(range(size))
        assert row[size:].tolist() == list(range(size, max(sizes)))


@given(sizes_of_clients, st.data())
def test_a_client_is_shuffled_alike_in_any_company(sizes, data):
    k = data.draw(st.integers(0, len(sizes) - 1))
    alone = shuffled(sizes[k : k + 1], clients=[k])
    assert np.array_equal(shuffled(sizes)[k, : sizes[k]], alone[0])


def test_clients_epochs_and_seeds_differ():
    rows = [
        *shuffled([30, 30]),
        shuffled([30], epoch=1)[0],
        shuffled([30], seed=1)[0],
        shuffled([30], clients=[99])[0],
    ]
    assert len({tuple(row) for row in rows}) == 5


def test_every_order_is_as_likely_as_any_other():
    rows = shuffled([3] * 6000)
    _, often = np.unique(rows, axis=0, return_counts=True)
    assert len(often) == 6
    # A binomial of 6000 and 1/6 has standard deviation 29; five of them are 145.
    assert np.all(np.abs(often - 1000) < 145)


@given(st.integers(1, 5), st.integers(1, 6), st.integers(1, 3), st.integers(0, 100))
def test_a_sample_s_numbers_do_not_depend_on_the_others(clients, width, draws, step):
    start = rng.stream(3, "chance")
    ids = np.arange(10, 10 + clients)
    together = rng.uniforms(start, ids, step, width, draws)
    assert together.shape == (clients, width, draws)
    assert together.dtype == np.float32
    assert (together > 0).all()
    assert (together < 1).all()
    alone = rng.uniforms(start, ids[-1:], step, width + 2, draws)
    assert np.array_equal(together[-1], alone[0, :width])


def test_uniform_numbers_fill_the_interval_evenly():
    numbers = rng.uniforms(rng.stream(0, "chance"), np.arange(100), 0, 100, 2).ravel()
    counts = np.histogram(numbers, bins=20, range=(0, 1))[0]
    assert abs(counts - 1000).max() < 150  # five deviations
    assert abs(np.corrcoef(numbers[::2], numbers[1::2])[0, 1]) < 0.05
