from collections.abc import Iterator
from itertools import chain, islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unskew.engine.batches import BatchSchedule, batches_per_epoch, local_steps
from unskew.engine.settings import Settings


def make_schedule(sizes, *, clients=None, round_=0, couples=False, **options) -> BatchSchedule:
    ids = range(len(sizes)) if clients is None else clients
    settings = Settings(**options)
    return BatchSchedule(
        np.array(ids, np.int64),
        np.array(sizes, np.int64),
        settings,
        round_,
        couples=couples,
        seed=settings.seed,
    )


def batches(schedule: BatchSchedule, row: int = 0) -> list[list[int]]:
    """The samples of one client, step by step."""
    client_steps = islice(steps(schedule), int(schedule.steps[row]))
    return [positions[row, : counts[row]].tolist() for positions, counts in client_steps]


def steps(
    schedule: BatchSchedule, max_samples: int = 10**6
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The positions and counts, step by step."""
    for block in schedule.in_blocks(max_samples):
        assert block.clients == block.positions.shape[1]
        yield from zip(block.positions, block.counts, strict=True)


def active(schedule: BatchSchedule) -> list[int]:
    """How many clients take each step."""
    return [len(counts) for _, counts in steps(schedule)]


@given(st.integers(1, 40), st.integers(1, 12), st.integers(1, 3), st.integers(0, 5))
def test_every_epoch_sees_every_sample_once(size, batch, epochs, round_):
    seen = batches(make_schedule([size], batch_size=batch, epochs=epochs, round_=round_))
    per_epoch = -(-size // batch)
    assert len(seen) == epochs * per_epoch
    for epoch in range(epochs):
        samples = chain(*seen[epoch * per_epoch : (epoch + 1) * per_epoch])
        assert sorted(samples) == list(range(size))


def test_the_last_batch_may_be_short():
    assert [len(batch) for batch in batches(make_schedule([10], batch_size=4, epochs=2))] == [
        4,
        4,
        2,
    ] * 2


def test_batch_larger_than_the_client_is_one_full_step():
    assert [sorted(batch) for batch in batches(make_schedule([3], batch_size=100))] == [[0, 1, 2]]


def test_steps_cross_epochs():
    seen = batches(make_schedule([5], batch_size=2, steps=7))
    assert [len(batch) for batch in seen] == [2, 2, 1, 2, 2, 1, 2]
    assert sorted(chain(*seen[:3])) == sorted(chain(*seen[3:6])) == list(range(5))


def test_steps_are_the_same_number_for_clients_of_any_size():
    schedule = make_schedule([50, 3, 9], batch_size=4, steps=6)
    assert schedule.steps.tolist() == [6, 6, 6]
    assert active(schedule) == [3] * 6
    assert [sorted(batch) for batch in batches(schedule, 1)] == [[0, 1, 2]] * 6


def test_every_epoch_and_round_has_its_own_shuffle_of_the_seed():
    first = batches(make_schedule([30], batch_size=30, epochs=2))
    assert first[0] != first[1]
    assert batches(make_schedule([30], batch_size=30, epochs=2)) == first
    assert batches(make_schedule([30], batch_size=30, epochs=2, round_=1)) != first
    assert batches(make_schedule([30], batch_size=30, epochs=2, seed=1)) != first
    assert batches(make_schedule([30], batch_size=30, epochs=2, clients=[1])) != first


def test_batchnorm_leaves_a_last_batch_of_one_out():
    assert [len(b) for b in batches(make_schedule([9], batch_size=4, couples=True))] == [4, 4]
    assert [len(b) for b in batches(make_schedule([9], batch_size=4, couples=False))] == [4, 4, 1]
    assert [len(b) for b in batches(make_schedule([10], batch_size=4, couples=True))] == [4, 4, 2]


def test_batchnorm_leaves_out_another_sample_each_epoch():
    seen = batches(make_schedule([9], batch_size=4, epochs=20, couples=True))
    left_out = {
        (set(range(9)) - set(seen[2 * epoch]) - set(seen[2 * epoch + 1])).pop()
        for epoch in range(20)
    }
    assert len(left_out) > 3


@pytest.mark.parametrize(
    ("sizes", "batch", "couples", "expected"),
    [
        ([0, 1, 4, 5, 8, 9], 4, False, [0, 1, 1, 2, 2, 3]),
        ([0, 1, 4, 5, 8, 9], 4, True, [0, 0, 1, 1, 2, 2]),
        ([0, 1, 3], 1, True, [0, 1, 3]),
    ],
)
def test_batches_per_epoch_by_hand(sizes, batch, couples, expected):
    assert batches_per_epoch(np.array(sizes), batch, couples=couples).tolist() == expected


@given(st.lists(st.integers(0, 30), min_size=1, max_size=6), st.integers(1, 8), st.booleans())
def test_a_client_does_not_depend_on_its_cohort(sizes, batch, by_steps):
    options = {"batch_size": batch} | ({"steps": 5} if by_steps else {"epochs": 2})
    steps = local_steps(np.array(sizes), Settings(**options), couples=False)
    order = np.argsort(-steps, kind="stable")
    together = make_schedule([sizes[k] for k in order], clients=order, **options)
    for row, k in enumerate(order):
        alone = make_schedule([sizes[k]], clients=[k], **options)
        assert batches(together, row) == batches(alone)


def test_padding_repeats_samples_of_the_same_client():
    ((positions, counts),) = steps(make_schedule([8, 3], batch_size=8))
    assert counts.tolist() == [8, 3]
    assert positions.shape == (2, 8)
    assert set(positions[1].tolist()) == {0, 1, 2}


def test_clients_stop_when_they_have_taken_their_steps():
    schedule = make_schedule([9, 4, 2], batch_size=2)
    assert schedule.steps.tolist() == [5, 2, 1]
    assert active(schedule) == [3, 2, 1, 1, 1]


def test_a_block_has_steps_of_one_shape_and_at_most_the_requested_samples():
    schedule = make_schedule([10, 10], batch_size=4, epochs=2)
    shapes = [block.positions.shape for block in schedule.in_blocks(1000)]
    assert shapes == [(2, 2, 4), (1, 2, 2), (2, 2, 4), (1, 2, 2)]
    assert [block.first for block in schedule.in_blocks(1000)] == [0, 2, 3, 5]
    assert all(len(block.counts) == 1 for block in schedule.in_blocks(15))
    assert all(len(block.counts) == 1 for block in schedule.in_blocks(1))


@given(
    st.lists(st.integers(1, 20), min_size=1, max_size=5).map(lambda s: sorted(s, reverse=True)),
    st.integers(1, 7),
    st.integers(0, 200),
    st.booleans(),
)
def test_the_length_of_blocks_changes_nothing(sizes, batch, max_samples, by_steps):
    schedule = make_schedule(
        sizes, batch_size=batch, **({"steps": 9} if by_steps else {"epochs": 3})
    )
    one_by_one = list(steps(schedule, 0))
    assert len(one_by_one) == len(schedule)
    in_blocks = steps(schedule, max_samples)
    for (positions, counts), (others, other_counts) in zip(one_by_one, in_blocks, strict=True):
        assert positions.tolist() == others.tolist()
        assert counts.tolist() == other_counts.tolist()


def test_random_numbers_are_the_same_in_blocks_and_step_by_step():
    schedule = make_schedule([9, 4], batch_size=2)
    for block in schedule.in_blocks(1000):
        for i, in_block in enumerate(schedule.block_noise(block, 3)):
            alone = schedule.noise(block.first + i, block.positions.shape[2], 3)
            assert np.array_equal(alone, in_block)


@pytest.mark.parametrize("options", [{"epochs": 3}, {"steps": 3}, {}])
def test_a_client_without_samples_takes_no_step(options):
    schedule = make_schedule([4, 0], batch_size=2, **options)
    assert schedule.steps[1] == 0
    assert set(active(schedule)) == {1}
    assert len(make_schedule([0], **options)) == 0
    assert len(make_schedule([], **options)) == 0


def test_clients_must_be_in_descending_order_of_steps():
    with pytest.raises(ValueError, match="descending order of steps"):
        make_schedule([2, 9], batch_size=2)
