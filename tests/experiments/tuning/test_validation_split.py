"""The validation split: training samples only, per client, and never a test sample."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import unskew as us
from unskew.errors import UnskewError
from unskew.experiments.tuning.validation_split import validation_split


def numbered(sizes, tests, common) -> us.Federation:
    """A federation in which the feature of every sample is a unique number."""
    owner = np.repeat(np.arange(len(sizes)), sizes)
    number = np.arange(len(owner), dtype=np.float32)[:, None]
    common_number = 10_000 + np.arange(common, dtype=np.float32)[:, None]
    return us.Federation.from_arrays(
        number, np.zeros(len(owner), int), owner,
        common=(common_number, np.zeros(common, int)), holdout=tests, classes=1,
    )  # fmt: skip


def numbers(columns) -> list[float]:
    return columns.x[:, 0].tolist()


@given(
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=6),
    tests=st.sampled_from([0.0, 0.2, 0.5]),
    share=st.sampled_from([0.1, 0.2, 0.5]),
    seed=st.integers(0, 2**32),
)
def test_only_training_samples_and_no_test_sample(sizes, tests, share, seed):
    federation = numbered(sizes, tests, common=3)
    held_out = np.floor(np.round(federation.train.sizes * share, 9)).astype(int)
    if not held_out.any():
        with pytest.raises(UnskewError, match="no client has"):
            validation_split(federation, share, seed)
        return
    split = validation_split(federation, share, seed)
    assert split.test.sizes.tolist() == held_out.tolist()
    for k in range(len(sizes)):
        parts = [*split.train.client(k)[0][:, 0], *split.test.client(k)[0][:, 0]]
        assert sorted(parts) == sorted(federation.train.client(k)[0][:, 0])
    assert sorted(numbers(split.common)) == sorted(numbers(split.test))
    seen = {*numbers(split.train), *numbers(split.test), *numbers(split.common)}
    assert not seen & {*numbers(federation.test), *numbers(federation.common)}


def test_the_seed_decides_which_samples_are_held_out():
    federation = numbered([50, 50], 0.2, common=3)
    first, same, other = (numbers(validation_split(federation, 0.2, s).test) for s in (0, 0, 1))
    assert first == same != other


def test_labels_stay_with_their_samples():
    x = np.arange(40, dtype=np.float32)[:, None]
    federation = us.Federation.from_arrays(x, np.arange(40) % 7, np.arange(40) % 2)
    split = validation_split(federation, 0.2, 0)
    for part in (split.train, split.test, split.common):
        assert (part.x[:, 0] % 7).tolist() == part.y.tolist()
