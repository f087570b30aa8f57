"""The limit for one unusual client costs honest hospitals of unequal size nothing, or under 1 %."""

import math

import numpy as np
import pytest

import unskew as us
from hospitals import hospital_rows
from marks import long_after
from unskew.data.preprocessing.moments import Moments

SHARES = {"north": 1.0, "south": 0.5, "east": 0.2, "west": 0.08}
"""The share of the rows that each hospital keeps: the smallest has a twelfth of the largest."""


def unequal_hospitals(seed, prepare, older=0):
    """Return hospitals whose mean age differs; the patients of the smallest are ``older``."""
    random = np.random.default_rng(seed)
    rows = hospital_rows(900, seed=seed)
    rows = [row for row in rows if random.random() < SHARES[row["hospital"]]]
    for row in rows:
        if row["hospital"] == "west" and row["age"]:
            row["age"] = f"{float(row['age']) + older:.0f}"
    return us.Federation.from_table(
        rows, label="outcome", client="hospital", prepare=prepare, holdout=0.3, seed=3
    )


def without_limit(monkeypatch):
    monkeypatch.setattr(Moments, "bounded", staticmethod(list))
    monkeypatch.setattr(Moments, "range_of", staticmethod(lambda parts: (-math.inf, math.inf)))


def transform_of(federation):
    return federation.preprocessing.transform.to_json()


def accuracy_of(federation):
    run = us.train(federation, runner="loop", progress=False, rounds=8, lr=0.1, batch_size=16)
    return run.last("local")


@pytest.mark.parametrize("prepare", ["federated", "federated:scale=robust"])
@pytest.mark.parametrize("seed", range(6))
def test_honest_hospitals_keep_their_transformation_bit_for_bit(seed, prepare, monkeypatch):
    limited = transform_of(unequal_hospitals(seed, prepare))
    shifted = transform_of(unequal_hospitals(seed, "federated", older=1000))
    without_limit(monkeypatch)
    assert transform_of(unequal_hospitals(seed, prepare)) == limited
    assert transform_of(unequal_hospitals(seed, "federated", older=1000)) != shifted


@pytest.mark.parametrize("seeds", long_after(1, [range(4), range(4, 12)]))
def test_where_the_limit_moves_an_honest_site_the_accuracy_stays_within_a_percent(
    seeds, monkeypatch
):
    federations = [unequal_hospitals(seed, "federated", older=20) for seed in seeds]
    limited = [accuracy_of(each) for each in federations]
    without_limit(monkeypatch)
    others = [unequal_hospitals(seed, "federated", older=20) for seed in seeds]
    assert any(transform_of(a) != transform_of(b) for a, b in zip(federations, others, strict=True))
    assert np.mean(limited) > np.mean([accuracy_of(each) for each in others]) - 0.01
