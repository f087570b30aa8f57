"""Column blocks cover all columns in order, independently of the number of threads."""

import threading

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from unskew.aggregation import Uploads, coordinate_median, fedsa, inverse_distance, weighted_mean
from unskew.aggregation.blocks import (
    MIN_PARALLEL_SIZE,
    column_blocks,
    in_threads,
    on_blocks,
    single_threaded,
    take_columns,
)
from unskew.aggregation.combine import sum_of_rows


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr("unskew.aggregation.blocks.BLOCK", 24)
    monkeypatch.setattr("unskew.aggregation.blocks.MIN_PARALLEL_SIZE", 0)


@pytest.fixture
def three_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def random_rows(rows: int, columns: int) -> torch.Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(1))


@given(st.integers(1, 2**20), st.integers(0, 2**21))
def test_blocks_cover_the_columns_once(rows, columns):
    ends = [0]
    for block in column_blocks(rows, columns):
        assert block.start == ends[-1] < block.stop
        ends.append(block.stop)
        if len(ends) > 50:
            return
    assert ends[-1] == columns


@pytest.mark.usefixtures("small_blocks", "three_threads")
def test_results_come_in_the_order_of_the_columns():
    rows = torch.arange(40.0).repeat(4, 1)  # blocks of six columns

    def work(block, scratch, columns):
        assert scratch.shape == block.shape
        return block[0].tolist(), columns

    found = on_blocks(rows, work)
    assert [value for values, _ in found for value in values] == list(range(40))
    assert [columns.start for _, columns in found] == [0, 6, 12, 18, 24, 30, 36]
    assert on_blocks(torch.empty(3, 0), work) == []


@pytest.mark.usefixtures("small_blocks", "three_threads")
def test_workers_are_single_threaded_and_restore_the_thread_count():
    assert set(on_blocks(random_rows(4, 60), lambda *_: torch.get_num_threads())) == {1}
    assert torch.get_num_threads() == 3


@pytest.mark.usefixtures("small_blocks", "three_threads")
def test_in_threads_uses_all_threads_inside_single_threaded():
    barrier = threading.Barrier(3, timeout=10)  # breaks unless three threads meet
    with single_threaded():
        assert torch.get_num_threads() == 1
        in_threads(lambda _: barrier.wait(), range(3), random_rows(4, 60))
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 3


@pytest.mark.usefixtures("small_blocks", "three_threads")
def test_an_error_in_a_thread_is_raised():
    def work(block, scratch, columns):
        raise ZeroDivisionError(columns.start)

    with pytest.raises(ZeroDivisionError):
        on_blocks(random_rows(4, 60), work)
    assert torch.get_num_threads() == 3


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize(
    "rule", [weighted_mean(inverse_distance()), coordinate_median(), fedsa(cv_scale="rank")]
)
def test_results_do_not_depend_on_the_number_of_threads(rule, three_threads):
    uploads = Uploads.of(random_rows(5, 200))
    shared = rule(uploads)
    torch.set_num_threads(1)
    assert torch.equal(rule(uploads), shared)


@pytest.mark.usefixtures("small_blocks", "three_threads")
def test_rules_work_in_inference_mode():
    with torch.inference_mode():
        uploads = Uploads.of(random_rows(5, 100))
        assert coordinate_median()(uploads).tolist() == uploads.stack.median(0).values.tolist()


def test_parts_by_hand():
    rows = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    assert take_columns(rows[:, 1:], torch.tensor([1, 0])).tolist() == [[3, 2], [6, 5]]


@pytest.mark.usefixtures("three_threads")
@pytest.mark.parametrize(("narrow", "wide"), [(40, 1000), (2, 1000), (2, 9)])
def test_a_sum_in_parts_equals_a_single_product(narrow, wide, monkeypatch):
    """103 columns are two parts of 51, eight of 12, or eleven of 9, and a remainder."""
    rows, weights = random_rows(5, 110)[:, :103], random_rows(1, 5)[0]
    whole = sum_of_rows(rows, weights)
    monkeypatch.setattr("unskew.aggregation.combine._MIN_WIDTH", narrow)
    monkeypatch.setattr("unskew.aggregation.combine._MAX_WIDTH", wide)
    monkeypatch.setattr("unskew.aggregation.blocks.MIN_PARALLEL_SIZE", 0)
    parts = sum_of_rows(rows, weights)
    torch.testing.assert_close(parts, whole, rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("three_threads")
def test_a_large_sum_does_not_depend_on_the_number_of_threads():
    rows, weights = random_rows(300, 9001), random_rows(1, 300)[0]
    assert rows.numel() > MIN_PARALLEL_SIZE
    shared = sum_of_rows(rows, weights)
    torch.set_num_threads(1)
    assert torch.equal(sum_of_rows(rows, weights), shared)
