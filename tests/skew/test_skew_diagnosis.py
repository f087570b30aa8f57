import json
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from unskew.data.federation import Federation
from unskew.partition import report as report_module
from unskew.partition.base import NO_CLIENT, Partition, SamplePool
from unskew.partition.report import PartitionReport
from unskew.skew.diagnosis import DEFINITIONS, Diagnosis, diagnose, diagnose_counts, gini
from unskew.utils.rng import generator

tables = arrays(
    np.int64, st.tuples(st.integers(1, 9), st.integers(1, 6)), elements=st.integers(0, 50)
)


def test_disjoint_labels_by_hand() -> None:
    d = diagnose_counts(np.array([[10, 0], [0, 10]]))
    assert d.label_skew == 0.5  # half of each client's samples would have to change
    # JS of (1, 0) and (1/2, 1/2): entropy of (3/4, 1/4) less the mean of 0 and 1 bit.
    assert d.label_divergence == pytest.approx(0.8112781 - 0.5)
    assert (d.classes_held, d.effective_classes) == (1, 1)
    assert (d.size_gini, d.size_ratio) == (0, 1)


def test_larger_clients_have_more_weight() -> None:
    # Pooled (3/4, 1/4); variations 1/4 (3 samples of 4) and 3/4 (1 of 4).
    assert diagnose_counts(np.array([[3, 0], [0, 1]])).label_skew == pytest.approx(0.375)


def test_sizes_by_hand() -> None:
    d = diagnose_counts(np.array([[1, 0], [1, 2], [0, 0], [4, 4]]))
    assert (d.clients, d.empty_clients, d.samples) == (4, 1, 12)
    assert d.size_ratio == 8
    # Sorted 0 1 3 8 with ranks -3 -1 1 3: 26 over 4 x 12.
    assert d.size_gini == pytest.approx(26 / 48)
    assert d.classes_held == pytest.approx(5 / 3)
    even, uneven = 2.0, 2 ** (np.log2(3) - 2 / 3)  # (1/2, 1/2) and (1/3, 2/3)
    assert d.effective_classes == pytest.approx((1 + uneven + even) / 3)


def test_gini_of_one_owner_is_near_one() -> None:
    assert gini(np.array([0] * 99 + [5])) == pytest.approx(0.99)
    assert gini(np.zeros(3, np.int64)) == 0


@given(tables)
def test_all_measures_are_in_their_ranges(counts: np.ndarray) -> None:
    d = diagnose_counts(counts)
    for value in (d.label_skew, d.label_skew_by_chance, d.label_divergence, d.size_gini):
        assert -1e-9 <= value <= 1
    assert d.effective_classes <= d.classes_held + 1e-9
    assert d.classes_held <= counts.shape[1]


@given(tables, st.integers(1, 5))
def test_alike_clients_have_no_label_skew(counts: np.ndarray, copies: int) -> None:
    d = diagnose_counts(np.repeat(counts[:1], copies, axis=0))
    assert d.label_skew == pytest.approx(0, abs=1e-12)
    assert d.label_divergence == pytest.approx(0, abs=1e-12)


def test_label_skew_by_chance_by_hand() -> None:
    # Two clients of 2 out of 4 samples, half of each class: |X - 1| has the mean 1/2 for a
    # binomial X, so the variation is 1/4, and sqrt(2/3) for drawing without replacement.
    chance = diagnose_counts(np.array([[2, 0], [0, 2]])).label_skew_by_chance
    assert chance == pytest.approx(0.25 * (2 / 3) ** 0.5)
    assert comb(2, 1) * 0.25 == 0.5


def test_label_skew_by_chance_is_that_of_a_random_partition() -> None:
    rng = np.random.default_rng(0)
    labels = rng.choice(5, 4000, p=[0.5, 0.2, 0.15, 0.1, 0.05])
    counts = np.array([np.bincount(part, minlength=5) for part in labels.reshape(200, 20)])
    d = diagnose_counts(counts)
    assert d.label_skew == pytest.approx(d.label_skew_by_chance, rel=0.1)


def test_every_measure_is_defined() -> None:
    assert set(DEFINITIONS) == set(diagnose_counts(np.ones((2, 2), np.int64)).to_dict())


def federation(shift: float, within: float = 1.0, clients: int = 20, each: int = 50) -> Federation:
    """Clients whose features are shifted by a normal random vector per client."""
    rng = generator(0, "test")
    means = shift * rng.standard_normal((clients, 1, 12))
    x = means + within * rng.standard_normal((clients, each, 12))
    y = np.tile(np.arange(each) % 2, clients)
    return Federation.from_arrays(
        x.reshape(-1, 12).astype(np.float32), y, np.repeat(np.arange(clients), each)
    )


def test_iid_features_have_no_skew() -> None:
    d = diagnose(federation(0.0, each=3))  # without the correction it would be about 1/3
    assert d.feature_skew is not None
    assert d.feature_skew < 0.03


def test_feature_skew_is_the_share_of_variance_between_clients() -> None:
    d = diagnose(federation(1.0))
    assert d.feature_skew == pytest.approx(0.5, abs=0.08)
    assert d.feature_skew_in_class == pytest.approx(0.5, abs=0.08)
    assert diagnose(federation(1.0, within=0.0)).feature_skew == pytest.approx(1)


def test_feature_skew_by_hand() -> None:
    f = Federation.from_arrays(np.array([0.0, 2, 4, 6]), np.zeros(4, int), [0, 0, 1, 1])
    # Between 16, within 4, total 20; the mean square within is 2: (16 - 1 x 2) / 20.
    assert diagnose(f).feature_skew == pytest.approx(0.7)


def test_label_skew_alone_shows_overall_but_not_within_classes() -> None:
    rng = generator(0, "test")
    y = np.repeat([0, 1], 200)
    x = y[:, None] * 5 + rng.standard_normal((400, 3))
    owner = np.where(rng.random(400) < 0.9, y, 1 - y)
    d = diagnose(Federation.from_arrays(x, y, owner))
    assert d.feature_skew is not None
    assert d.feature_skew_in_class is not None
    assert d.feature_skew > 0.4
    assert d.feature_skew_in_class < 0.02


def test_tokens_are_compared_as_word_counts() -> None:
    x = np.array([[7, 8, 0], [8, 7, 0], [7, 8, 0], [9, 5, 0], [5, 9, 0], [5, 9, 0]], np.int32)
    d = diagnose(Federation.from_arrays(x, np.zeros(6, int), [0, 0, 0, 1, 1, 1], tokens=True))
    assert d.feature_skew == pytest.approx(1)


def test_feature_skew_of_large_clients_is_the_same_in_blocks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    f = federation(0.3)
    whole = diagnose(f)
    monkeypatch.setattr("unskew.skew.feature_skew.BLOCK", 70)
    assert diagnose(f).feature_skew == pytest.approx(whole.feature_skew)
    assert diagnose(f).feature_skew_in_class == pytest.approx(whole.feature_skew_in_class)


@pytest.mark.parametrize(
    ("x", "owner"), [([1.0, 2.0], [0, 0]), ([1.0, 2.0], [0, 1]), ([3.0] * 4, [0, 0, 1, 1])]
)
def test_feature_skew_is_unknown_without_two_clients_or_variance(
    x: list[float], owner: list[int]
) -> None:
    assert diagnose(Federation.from_arrays(x, np.zeros(len(x), int), owner)).feature_skew is None


def report(clients: int = 3) -> PartitionReport:
    owner = np.append(np.arange(2 * clients) % clients, NO_CLIENT)
    pool = SamplePool(np.append(np.arange(2 * clients) // clients, 1), 2)
    return PartitionReport.of(
        "iid", pool, Partition(owner, clients, notes=("a",)), notes=("first",)
    )


def test_a_report_is_printed_with_the_meaning_of_its_measures() -> None:
    text = str(PartitionReport("iid", [2, 1], [[2, 0], [0, 1]], dropped=1_000, notes=("tidy",)))
    first, clients, *_, dropped, note = text.splitlines()
    assert first.startswith("iid: ")
    assert clients.split() == ["clients", "2", *DEFINITIONS["clients"].split()]
    assert "feature_skew" not in text  # it is not known
    assert (dropped, note) == ("1,000 samples were dropped", "note: tidy")


def test_report_counts_the_partition() -> None:
    made = report()
    assert made.sizes is not None
    assert made.label_counts is not None
    assert made.sizes.tolist() == [2, 2, 2]
    assert made.label_counts.tolist() == [[1, 1]] * 3
    assert made.dropped == 1
    assert made.notes == ("first", "a")
    assert made.diagnosis is not None
    assert made.diagnosis.label_skew == 0


def test_report_survives_json() -> None:
    made = report()
    again = PartitionReport.from_dict(json.loads(json.dumps(made.to_dict())))
    assert again == made
    assert isinstance(again.sizes, np.ndarray)
    assert again != PartitionReport("other", (2, 2, 2), ((1, 1),) * 3, 1)  # type: ignore[arg-type]


def test_report_of_many_clients_keeps_only_the_diagnosis(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_module, "MAX_LISTED_CLIENTS", 5)
    made = report(clients=6)
    again = PartitionReport.from_dict(json.loads(json.dumps(made.to_dict())))
    assert again.sizes is None
    assert again.label_counts is None
    assert isinstance(again.diagnosis, Diagnosis)
    assert again.diagnosis == made.diagnosis
    assert again == made


def test_a_million_clients_make_a_small_report() -> None:
    clients = 1_000_000
    rng = np.random.default_rng(0)
    pool = SamplePool(rng.integers(0, 2, clients), 2)
    made = PartitionReport.of("iid", pool, Partition(np.arange(clients), clients))
    assert made.diagnosis is not None
    assert made.diagnosis.label_skew == pytest.approx(0.5, abs=1e-3)
    assert len(json.dumps(made.to_dict())) < 1000
