import threading

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from unskew.utils import rng

sizes_of_clients = st.lists(st.integers(0, 40), min_size=1, max_size=8)


def shuffled(sizes, *, clients=None, seed=0, epoch=0):
    ids = np.arange(len(sizes)) if clients is None else np.array(clients, np.int64)
    return rng.permutations(rng.stream(seed, "test"), ids, np.array(sizes, np.int64), epoch)


def test_the_same_purpose_gives_the_same_numbers():
    first, again = (rng.generator(7, "skew", 3).random(4) for _ in range(2))
    assert np.array_equal(first, again)
    for other in (
        rng.generator(8, "skew", 3),
        rng.generator(7, "holdout", 3),
        rng.generator(7, "skew", 4),
        rng.generator(7, "skew", 3, 0),
    ):
        assert not np.array_equal(first, other.random(4))


def test_torch_generators_are_reproducible():
    import torch

    numbers = [
        torch.rand(3, generator=rng.torch_generator(seed, "init", 1)).tolist() for seed in (1, 1, 2)
    ]
    assert numbers[0] == numbers[1] != numbers[2]


def test_streams_have_fixed_values():
    # Changing these would change the results of every run.
    assert int(rng.stream(0, "shuffle")) == 13959429451602345460
    assert int(rng.stream(1, "shuffle", 2, 3)) == 4726276197388127150


def test_mixing_equals_splitmix64():
    # The first outputs of that generator for the seeds 0 and 1234567, as published.
    assert rng._mix(0) == 0xE220A8397B1DCDAF
    assert rng._mix(1234567) == 6457827717110365317


def test_streams_of_different_ids_differ():
    streams = {
        int(rng.stream(seed, purpose, a, b))
        for seed in range(4)
        for purpose in ("x", "y")
        for a in range(8)
        for b in range(8)
    }
    assert len(streams) == 4 * 2 * 8 * 8


@given(st.integers(0, 2**64 - 1))
def test_numbers_and_arrays_are_mixed_the_same_way(value):
    assert int(rng._mix_array(np.array([value], np.uint64))[0]) == rng._mix(value)


@given(sizes_of_clients, st.integers(0, 2**63), st.integers(0, 1000))
def test_each_row_is_a_permutation_followed_by_padding(sizes, seed, epoch):
    rows = shuffled(sizes, seed=seed, epoch=epoch)
    assert rows.shape == (len(sizes), max(sizes))
    for row, size in zip(rows, sizes, strict=True):
        assert sorted(row[:size]) == list(range(size))
        assert row[size:].tolist() == list(range(size, max(sizes)))


@given(sizes_of_clients, st.data())
def test_a_client_s_shuffle_does_not_depend_on_the_other_clients(sizes, data):
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


def test_all_permutations_are_equally_likely():
    rows = shuffled([3] * 6000)
    _, counts = np.unique(rows, axis=0, return_counts=True)
    assert len(counts) == 6
    # A binomial of 6000 and 1/6 has standard deviation 29; five of them are 145.
    assert np.all(np.abs(counts - 1000) < 145)


@given(st.integers(1, 5), st.integers(1, 6), st.integers(1, 3), st.integers(0, 100))
def test_a_sample_s_numbers_do_not_depend_on_other_samples(clients, width, per_sample, step):
    start = rng.stream(3, "chance")
    ids = np.arange(10, 10 + clients)
    numbers = rng.uniforms(start, ids, step, width, per_sample)
    assert numbers.shape == (clients, width, per_sample)
    assert numbers.dtype == np.float32
    assert (numbers > 0).all()
    assert (numbers < 1).all()
    alone = rng.uniforms(start, ids[-1:], step, width + 2, per_sample)
    assert np.array_equal(numbers[-1], alone[0, :width])


def test_uniform_numbers_are_uniformly_distributed():
    numbers = rng.uniforms(rng.stream(0, "chance"), np.arange(100), 0, 100, 2).ravel()
    counts = np.histogram(numbers, bins=20, range=(0, 1))[0]
    assert abs(counts - 1000).max() < 150  # five deviations
    assert abs(np.corrcoef(numbers[::2], numbers[1::2])[0, 1]) < 0.05


def test_threads_take_turns_with_the_generator_of_torch():
    with rng.torch_seeded(0, "one"):
        expected = torch.rand(3)
    is_inside, other_is_inside, has_drawn = (threading.Event() for _ in range(3))

    def disturb():
        is_inside.wait()
        with rng.torch_seeded(1, "other"):
            other_is_inside.set()
            has_drawn.wait()

    other = threading.Thread(target=disturb)
    other.start()
    with rng.torch_seeded(0, "one"):
        is_inside.set()
        other_is_inside.wait(0.2)
        drawn = torch.rand(3)
        has_drawn.set()
    other.join()
    assert torch.equal(drawn, expected)
