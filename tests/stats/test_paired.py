"""Differences over seeds, computed by hand and compared with scipy; texts of verdicts."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ttest_rel

from unskew.runs.run import Run
from unskew.runs.runs import Runs
from unskew.stats.paired import compare_with_others, paired_p

SHARES = st.floats(0, 1, allow_subnormal=False).map(lambda x: round(x, 6))


def test_a_p_value_by_hand():
    """Mean 2 and standard error 1 / sqrt(3) give t = 2 sqrt(3), for which two degrees of
    freedom have the closed form p = 1 - t / sqrt(t^2 + 2)."""
    t = 2 * math.sqrt(3)
    assert paired_p([1, 2, 3]) == pytest.approx(1 - t / math.sqrt(t * t + 2))


@given(st.lists(st.tuples(SHARES, SHARES), min_size=3, max_size=8))
def test_it_is_the_paired_t_test_of_scipy(pairs):
    one, two = zip(*pairs, strict=True)
    values = [a - b for a, b in pairs]
    if max(values) - min(values) < 1e-4:
        return
    assert paired_p(values) == pytest.approx(ttest_rel(one, two).pvalue, abs=1e-9)


def test_equal_differences_use_the_sign_test():
    assert paired_p([0.1, 0.1, 0.1]) == 0.25
    assert paired_p([0.8 - 0.7, 0.9 - 0.8]) == 0.5  # equal but for the last bit
    assert paired_p([0.0, 0.0]) == 1.0


def test_one_seed_has_no_p_value():
    assert math.isnan(paired_p([0.1]))
    assert math.isnan(paired_p([]))


def test_differences_use_the_seeds_both_have():
    (one,) = compare_with_others(
        "a", {"a": {0: 0.9, 1: 0.8, 2: 0.1}, "b": {0: 0.7, 1: 0.7, 5: 0.9}}
    )
    assert (one.first, one.second, one.seeds) == ("a", "b", 2)
    assert one.mean == pytest.approx(0.15)
    # One degree of freedom: 12.706 standard errors of 0.05 each on both sides.
    assert (one.low, one.high) == pytest.approx((0.15 - 0.6353, 0.15 + 0.6353), abs=1e-4)


def test_p_values_are_multiplied_by_the_number_of_tests():
    scores = {"a": {0: 1, 1: 2, 2: 3}, "b": dict.fromkeys(range(3), 0.0), "c": {0: 1, 9: 0}}
    alone = paired_p([1, 2, 3])
    (only,) = compare_with_others("a", {name: scores[name] for name in "ab"})
    assert only.p == pytest.approx(alone)
    first, second = compare_with_others("a", scores)
    assert first.p == pytest.approx(alone)  # the other has one common seed, so it is not tested
    assert math.isnan(second.p)
    assert not second.is_significant
    first, _ = compare_with_others("a", {**scores, "c": dict.fromkeys(range(3), 2.0)})
    assert first.p == pytest.approx(2 * alone)


def test_the_best_of_many_equal_methods_is_rarely_significantly_worse():
    """Eight methods with identical distributions, five seeds: the first is rarely beaten."""
    rng, beaten = np.random.default_rng(0), 0
    for _ in range(300):
        noise = rng.normal(size=(8, 5))
        scores = {str(i): dict(enumerate(row)) for i, row in enumerate(noise)}
        leader = str(int(noise.mean(axis=1).argmax()))
        beaten += any(
            d.is_significant for d in compare_with_others(leader, scores) if d.second == "0"
        )
    assert beaten <= 15


@given(st.lists(st.tuples(SHARES, SHARES, SHARES), min_size=2, max_size=5))
def test_a_comparison_is_symmetric(rows):
    scores = {
        name: dict(enumerate(row)) for name, row in zip("abc", zip(*rows, strict=True), strict=True)
    }
    one, two = compare_with_others("a", scores)[0], compare_with_others("b", scores)[0]
    assert (one.p, one.mean) == (two.p, -two.mean)


def run_of(method, seed, value, metric="accuracy", level="global"):
    run = Run(method, "mlp", "digits", seed, 4)
    run.metrics.append({"stage": "task", "round": 1, level: {metric: value}})
    return run


def runs_of(values, **options):
    return Runs(
        run_of(method, seed, value, **options)
        for method, row in values.items()
        for seed, value in enumerate(row)
    )


def test_a_clear_lead_is_significant():
    verdict = runs_of({"mean": [0.70, 0.71, 0.69], "fedavg": [0.901, 0.909, 0.893]}).verdict()
    assert (verdict.leader, verdict.is_significant, verdict.not_significant) == ("fedavg", True, [])
    assert str(verdict).startswith(
        "fedavg leads by 20.10 points over mean, and the lead is significant (p "
    )
    assert (verdict.note("fedavg"), verdict.note("mean")) == ("leads", "significantly worse")


def test_a_lead_that_is_not_significant_is_called_that():
    verdict = runs_of({"a": [0.7, 0.9, 0.8], "b": [0.8, 0.7, 0.82]}).verdict()
    assert not verdict.is_significant
    assert "not significant: 3 seeds do not distinguish the leader from it" in str(verdict)
    assert verdict.note("b") == "not significant"


def test_a_tie_at_the_top_is_reported():
    verdict = runs_of({"a": [0.7, 0.9, 0.8], "b": [0.7, 0.9, 0.8], "c": [0.1, 0.3, 0.21]}).verdict()
    assert str(verdict).startswith("a and b are equivalent and lead")
    verdict = runs_of({"a": [0.7], "b": [0.7], "c": [0.1]}).verdict()
    assert str(verdict).startswith(
        "a and b are equivalent and lead by 60.00 points over c, but one"
    )


@pytest.mark.parametrize("row", [[0.5], [0.5, 0.7], [0.1, 0.2, 0.3]])
def test_methods_with_the_same_scores_are_equivalent(row):
    verdict = runs_of({"a": row, "b": row, "c": row}).verdict()
    assert str(verdict) == "a, b and c are equivalent: the same accuracy with every seed."
    assert verdict.note("b") == "equivalent"
    assert not verdict.is_significant


def test_a_mean_difference_of_zero_is_not_a_tie():
    verdict = runs_of({"a": [0.25, 0.75], "b": [0.75, 0.25]}).verdict()
    assert "not significant" in str(verdict)


def test_a_verdict_names_the_local_tests():
    rows = {"a": [0.7, 0.9, 0.8], "b": [0.8, 0.7, 0.82]}
    runs = runs_of(rows)
    for run in runs:
        for row in run.metrics:
            row["local"] = row.pop("global")
    assert str(runs.verdict()).startswith("By the clients' own tests, on average: a leads by")
    for run in runs:
        for row in run.metrics:
            row["personal"] = row["local"]
    assert str(runs.verdict("personal")).startswith("a leads by")


def test_methods_not_significantly_worse_than_the_leader_are_named():
    rows = {
        "a": [0.90, 0.92, 0.91, 0.90],
        "b": [0.91, 0.90, 0.91, 0.90],
        "c": [0.2, 0.21, 0.2, 0.22],
    }
    verdict = runs_of(rows).verdict()
    assert verdict.not_significant == ["b"]
    assert str(verdict).startswith(
        "a leads and is significantly better than c; its difference from b is not significant."
    )


def test_the_smallest_loss_leads():
    verdict = runs_of({"a": [3.0, 3.1, 3.2], "b": [1.0, 1.2, 1.1]}, metric="loss").verdict()
    assert verdict.leader == "b"
    assert verdict.differences[0].mean == pytest.approx(2.0)
    assert "leads by 2 over a" in str(verdict)


def test_one_seed_or_one_method_cannot_lead():
    assert "one seed cannot show" in str(runs_of({"a": [0.5], "b": [0.4]}).verdict())
    assert "is the only method" in str(runs_of({"a": [0.5, 0.6]}).verdict())
    assert Runs([Run("a", "mlp", "digits", 0, 4)]).verdict() is None


def test_without_a_common_test_local_tests_decide():
    assert runs_of({"a": [0.5, 0.5], "b": [0.6, 0.7]}, level="local").verdict().leader == "b"


def test_a_run_without_a_score_cannot_lead():
    verdict = runs_of({"a": [None, 0.9], "b": [0.6, 0.7]}).verdict()
    assert (verdict.leader, verdict.note("a")) == ("b", "-")
