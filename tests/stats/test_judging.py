"""Answers about pairs of methods: numbers checked by hand, and properties that must hold."""

import math

import numpy as np
import pytest
from benchmarks.verdicts import holm
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import t as student
from scipy.stats import ttest_rel

from unskew.errors import UnskewError
from unskew.stats import judge
from unskew.stats.decisions import Settled, _step_down, decide
from unskew.stats.moderated import fit_variances
from unskew.stats.pairwise import (
    CALIBRATION,
    Differences,
    all_variances,
    differences_to,
    fit_model,
    noise_of_methods,
)

NAN = math.nan
TABLES = st.integers(0, 2**32 - 1).map(lambda seed: table(np.random.default_rng(seed)))


def table(rng, methods=5, seeds=5, spread=1.0):
    """Values around 70 with a shared seed effect; every other method is 4 points better."""
    values = 70 + 3 * rng.normal(size=seeds) + spread * rng.normal(size=(methods, seeds))
    values[1::2] += 4
    return {f"m{i}": row.tolist() for i, row in enumerate(values)}


def answers(verdicts):
    return {pair.method: pair.answer for pair in verdicts.pairs}


def test_two_methods_have_the_paired_t_test_by_hand():
    """Mean 2 and standard error 1 / sqrt(3) give t = 2 sqrt(3), for which two degrees of
    freedom have the closed form p = 1 - t / sqrt(t^2 + 2)."""
    (pair,) = judge({"a": [0, 0, 0], "b": [1, 2, 3]}).pairs
    t = 2 * math.sqrt(3)
    assert pair.p == pytest.approx(1 - t / math.sqrt(t * t + 2))
    assert pair.difference == 2
    # The 95 % quantile of two degrees of freedom is 4.303.
    assert (pair.low, pair.high) == pytest.approx((2 - 4.3027 / 3**0.5, 2 + 4.3027 / 3**0.5), 1e-4)
    assert pair.answer == "undecided"


@given(TABLES)
def test_two_methods_have_the_t_test_of_scipy(values):
    (pair,) = judge({"a": values["m0"], "b": values["m1"]}, margin=0).pairs
    assert pair.p == pytest.approx(ttest_rel(values["m1"], values["m0"]).pvalue, rel=1e-6)


def test_equivalence_is_two_one_sided_tests_by_hand():
    """Mean 0, standard error 0.1 and a margin of 1: t = 10 with 3 degrees of freedom."""
    row = [0.1 * 3**0.5, -0.1 * 3**0.5] * 2
    (pair,) = judge({"a": [0] * 4, "b": row}).pairs
    assert pair.answer == "equivalent"
    (pair,) = judge({"a": [0] * 4, "b": row}, margin=0.2).pairs
    assert pair.answer == "undecided"  # t = 2, and 2.35 is needed


def test_equal_variances_are_pooled_as_in_a_two_way_analysis_of_variance():
    """With an infinite prior d0 the scale is the mean over pairs: here with equal variances."""
    variance = np.full((1, 66), 4.0)
    seeds = np.full((1, 66), 20.0)
    model = fit_variances(variance, seeds, 12)
    assert model.variance(variance, seeds)[0, 0] == pytest.approx(4.0, rel=0.02)
    assert model.weight[model.dof > 10].sum() > 0.8


def test_the_variance_of_a_noisy_pair_is_pulled_towards_the_others():
    variance = np.array([[1.0] * 9 + [9.0]])
    seeds = np.full((1, 10), 4.0)
    model = fit_variances(variance, seeds, 5)
    found = model.variance(variance, seeds)[0]
    assert 1.0 < found[0] < found[-1] < 9.0


def test_variances_of_all_pairs_use_the_seeds_both_have():
    values = np.array([[[1.0, 2.0, 4.0, NAN], [0.0, 0.0, 0.0, 7.0]]])
    variance, count = all_variances(values)
    assert count[0, 0, 1] == 3
    assert variance[0, 0, 1] == pytest.approx(np.var([1, 2, 4], ddof=1))
    assert fit_model(variance, count) is None  # two methods: nothing to pool


def test_holm_by_hand():
    found = holm(np.array([[0.01, 0.04, 0.03, NAN]]))
    assert found[0, :3] == pytest.approx([0.03, 0.06, 0.06])
    assert math.isnan(found[0, 3])


def differences(mean, seeds=20):
    """Differences with variance 1 and no model: the t-tests of each pair."""
    means = np.array([mean], dtype=float)
    ones = np.ones_like(means)
    none = np.zeros_like(means)
    no = np.zeros(means.shape, bool)
    return Differences(means, ones, seeds * ones, None, ones, none, none, no, no)


def test_a_pair_that_differs_makes_other_tests_easier_and_an_equivalent_one_does_not():
    """Three pairs, t = mean * sqrt(20): Holm's factors are 3, 2 and 1 for differences, and the
    test of equivalence counts all three pairs."""
    found = decide(differences([3.0, 0.5, 0.0]), margin=1.0)
    t = [mean * 20**0.5 for mean in (3.0, 0.5, 1.0)]
    p = [student.sf(value, 19) for value in t]
    assert found.p[0, :2] == pytest.approx([3 * 2 * p[0], 2 * 2 * p[1]])
    assert found.p_equivalent[0, 2] == pytest.approx(3 * p[2])
    assert found.is_equivalent(0.05)[0].tolist() == [False, False, True]
    alone = decide(differences([0.5, 0.0, 0.0]), margin=1.0)
    assert alone.p[0, 0] == pytest.approx(3 * 2 * p[1])


def test_pairs_answered_earlier_still_count():
    """One of two earlier answers was a difference: factor 2 for differences, 3 for equivalence."""
    settled = Settled(np.array([1]), np.array([1]))
    found = decide(differences([0.5]), 1.0, 5.0, settled)
    t = 0.5 * 20**0.5
    assert found.p[0, 0] == pytest.approx(5 * 2 * 2 * student.sf(t, 19))
    close = decide(differences([0.0]), 1.0, 5.0, settled)
    assert close.p_equivalent[0, 0] == pytest.approx(5 * 3 * student.sf(20**0.5, 19))


def test_the_noise_of_a_method_is_its_variance_around_the_others_median():
    rows = np.array([[[1.0, -1.0, 0.0], [0.0, 0.0, 0.0], [2.0, -2.0, 0.0]]])
    # Medians of the others: (1, -1, 0), (1.5, -1.5, 0) and (0.5, -0.5, 0).
    assert noise_of_methods(rows)[0] == pytest.approx([0.0, 1.5**2, 1.5**2])


def test_the_median_of_the_others_leaves_out_what_is_missing():
    rng = np.random.default_rng(0)
    values = np.round(rng.normal(size=(20, 7, 5)), 1)  # with ties
    values[:, :, 2:][rng.random((20, 7, 3)) < 0.2] = NAN
    centered = values - np.nanmean(values, axis=2, keepdims=True)
    expected = [
        np.nanvar(centered[:, m] - np.nanmedian(np.delete(centered, m, axis=1), axis=1), 1, ddof=1)
        for m in range(7)
    ]
    assert noise_of_methods(values) == pytest.approx(np.stack(expected, 1))


def noisy_table(*scales):
    """Five seeds of a baseline, three quiet rivals and noisy ones, all 4 points better."""
    rng, pattern = np.random.default_rng(4), np.array([1.2, -1.1, 0.5, -1.0, 0.4])
    rows = {name: 70 + 0.5 * rng.normal(size=5) for name in ("base", "a", "b", "c")}
    rows |= {f"noisy {i}": 74 + scale * pattern for i, scale in enumerate(scales)}
    return {name: row.tolist() for name, row in rows.items()}


def test_a_method_much_noisier_than_most_has_its_t_test_with_a_correction_for_all_pairs():
    """Four rivals and no other difference, so Holm's factor of the noisy one is 4."""
    values = noisy_table(2.0)
    found = judge(values).pair("noisy 0")
    own = ttest_rel(values["noisy 0"], values["base"]).pvalue
    assert found.p == pytest.approx(4 * CALIBRATION * own, rel=0.2)
    assert found.p >= 4 * CALIBRATION * own  # the larger of two variances counts


def test_a_method_may_have_collapsed_with_every_seed():
    """Four of twelve methods collapse with one seed of three, so the probability that one does with
    all is (4 / 12 / 3)^3 = 1/729, and for eleven rivals in two directions 22/729."""
    rng = np.random.default_rng(1)
    rows = 70 + 0.1 * rng.normal(size=(12, 3))
    rows[[1, 2, 3, 4], [0, 1, 2, 0]] -= 30
    rows[5] -= 30
    values = {f"m{i}": row.tolist() for i, row in enumerate(rows)}
    assert judge(values).pair("m5").p == pytest.approx(22 / 729)
    quiet = {name: values[name] for name in ("m0", *(f"m{i}" for i in range(5, 12)))}
    assert judge(quiet).pair("m5").p < 0.01


def test_a_pair_that_fails_alone_neither_helps_nor_hinders_others():
    """Holm's factors are 3 for the first pair and 2 for the next that is significant alone."""
    p, alone = np.array([[0.001, 0.002, 0.004]]), np.array([[0.01, 0.4, 0.02]])
    found = _step_down(p, alone, np.array([3]))
    assert found[0] == pytest.approx([0.01, 0.4, 0.02])
    missing = _step_down(np.c_[p, NAN, NAN], np.c_[alone, NAN, NAN], np.array([3]))
    assert missing[0] == pytest.approx([0.01, 0.4, 0.02, NAN, NAN], nan_ok=True)
    late = _step_down(np.array([[0.001, 0.002, 0.024]]), alone, np.array([3]))
    assert late[0] == pytest.approx([0.01, 0.4, 0.048])


@settings(max_examples=20)
@given(TABLES, st.sampled_from([0.05, 0.2]), st.sampled_from([1.0, 5.0]))
def test_p_values_below_a_level_are_exact_without_the_others(values, level, looks):
    rows = np.array([list(values.values()), list(values.values())])
    rows[1] *= 1.5
    variance, count = all_variances(rows)
    noise = noise_of_methods(rows)
    gaps = differences_to(rows, 0, variance, count, fit_model(variance, count), noise)
    full, part = decide(gaps, 1.0, looks), decide(gaps, 1.0, looks, exact_below=level)
    for exact, found in ((full.p, part.p), (full.p_equivalent, part.p_equivalent)):
        assert found[exact < level] == pytest.approx(exact[exact < level])
        assert (found[exact >= level] >= level).all()


def test_rounded_values_that_tie_by_chance_are_not_identical():
    rows = {"a": [1, 2, 3], "b": [1, 2, 3], "c": [1, 3, 3], "d": [2, 2, 3], "e": [1, 2, 4]}
    assert not judge(rows).pair("b").is_identical
    exact = {
        name: [value + 0.01 * i for value in row] for i, (name, row) in enumerate(rows.items())
    }
    assert judge(exact | {"b": exact["a"]}).pair("b").is_identical


def test_a_noisy_table_of_three_seeds_is_decided_by_what_methods_share():
    """Ten seeds of noise 1 in all methods, so 4 points are found with few seeds."""
    found = answers(judge(table(np.random.default_rng(0), methods=9, seeds=5)))
    assert [found[f"m{i}"] for i in (1, 3, 5, 7)] == ["better"] * 4
    assert {found[f"m{i}"] for i in (2, 4, 6, 8)} <= {"undecided", "equivalent"}


def test_identical_values_are_equivalent_with_any_number_of_seeds():
    for row in ([70.0], [70.0, 71.0], [70.0, 68.0, 71.0]):
        verdicts = judge({"a": row, "b": row, "c": row})
        assert all(pair.answer == "equivalent" and pair.is_identical for pair in verdicts.pairs)
        assert verdicts.best == ("a", "b", "c")


def test_constant_differences_have_the_sign_test():
    (pair,) = judge({"a": [1, 2, 3], "b": [2, 3, 4]}, margin=0.1).pairs
    assert (pair.answer, pair.p) == ("undecided", 0.25)
    (pair,) = judge({"a": list(range(8)), "b": list(range(5, 13))}).pairs
    assert pair.answer == "better"


def test_one_seed_and_missing_methods_have_no_p_value():
    verdicts = judge({"a": [1.0], "b": [2.0], "c": [NAN]})
    assert answers(verdicts) == {"b": "undecided", "c": "undecided"}
    assert all(math.isnan(pair.p) and pair.seeds_needed is None for pair in verdicts.pairs)
    assert verdicts.best == ("b", "a")


def test_missing_seeds_do_not_count():
    full = table(np.random.default_rng(3))
    partly = full | {"m1": [*full["m1"][:3], NAN, NAN]}
    pair = judge(partly).pair("m1")
    assert pair.seeds == 3
    assert pair.difference == pytest.approx(
        np.mean(np.array(full["m1"][:3]) - np.array(full["m0"][:3]))
    )


def test_methods_without_values_change_no_answer():
    full = table(np.random.default_rng(3))
    more = full | {"none": [NAN] * 5, "one": [70.0] + [NAN] * 4}
    assert answers(judge(more)) == answers(judge(full)) | {"none": "undecided", "one": "undecided"}


def test_the_baseline_is_fedavg_or_the_first():
    assert judge({"b": [1, 2], "fedavg": [1, 2]}).baseline == "fedavg"
    assert judge({"b": [1, 2], "c": [1, 2]}).baseline == "b"
    assert judge({"b": [1, 2], "c": [1, 2]}, "c").baseline == "c"
    with pytest.raises(UnskewError, match="none of the methods"):
        judge({"a": [1]}, "z")
    with pytest.raises(UnskewError, match="one per seed"):
        judge({"a": [1], "b": [1, 2]})
    with pytest.raises(UnskewError, match="margin"):
        judge({"a": [1]}, margin=-1)
    with pytest.raises(UnskewError, match="error_rate"):
        judge({"a": [1]}, error_rate=1)


def test_undecided_pairs_name_the_seeds_that_would_decide():
    rng = np.random.default_rng(1)
    for pair in judge(table(rng, spread=4)).pairs:
        if pair.answer == "undecided":
            assert pair.seeds_needed is None or pair.seeds_needed > pair.seeds
        else:
            assert pair.seeds_needed is None


@settings(max_examples=20)
@given(TABLES, st.floats(-50, 50))
def test_a_common_shift_changes_nothing(values, shift):
    moved = {name: [value + shift for value in row] for name, row in values.items()}
    one, two = judge(values), judge(moved)
    assert (answers(one), one.best) == (answers(two), two.best)
    assert [p.p for p in one.pairs] == pytest.approx([p.p for p in two.pairs], rel=1e-6)


@settings(max_examples=20)
@given(TABLES, st.floats(0.01, 100))
def test_values_and_margin_have_the_same_units(values, factor):
    scaled = {name: [factor * value for value in row] for name, row in values.items()}
    one, two = judge(values), judge(scaled, margin=factor)
    assert (answers(one), one.best) == (answers(two), two.best)
    assert [factor * p.low for p in one.pairs] == pytest.approx([p.low for p in two.pairs])


@settings(max_examples=20)
@given(TABLES, st.permutations(["m1", "m2", "m3", "m4"]))
def test_the_order_of_methods_does_not_matter(values, order):
    shuffled = {name: values[name] for name in ["m0", *order]}
    one, two = judge(values), judge(shuffled)
    assert (answers(one), set(one.best)) == (answers(two), set(two.best))
    for pair in one.pairs:
        assert two.pair(pair.method).p == pytest.approx(pair.p)


@settings(max_examples=20)
@given(TABLES)
def test_answers_agree_with_their_intervals(values):
    verdicts = judge(values)
    for pair in verdicts.pairs:
        assert pair.low <= pair.difference <= pair.high
        assert (pair.answer == "better") <= (pair.low >= 0)
        assert (pair.answer == "worse") <= (pair.high <= 0)
        assert (pair.answer == "equivalent") <= (pair.low >= -1 and pair.high <= 1)
    assert max(values, key=lambda name: np.mean(values[name])) == verdicts.best[0]


@pytest.mark.long
def test_false_answers_are_rare_with_three_seeds():
    """Eight methods with the same distribution, unequal variances: any false answer."""
    rng, wrong = np.random.default_rng(0), 0
    for _ in range(100):
        noise = np.exp(rng.uniform(np.log(0.4), np.log(4), size=(8, 1)))
        rows = 70 + 3 * rng.normal(size=3) + noise * rng.normal(size=(8, 3))
        found = judge({str(i): row.tolist() for i, row in enumerate(rows)})
        wrong += any(pair.answer in ("better", "worse") for pair in found.pairs)
    assert wrong <= 11  # 5 are expected


@pytest.mark.long
def test_the_best_method_is_rarely_left_out():
    rng, missed = np.random.default_rng(0), 0
    for _ in range(100):
        rows = 70 + 3 * rng.normal(size=5) + 1.5 * rng.normal(size=(8, 5))
        missed += "0" not in judge({str(i): row.tolist() for i, row in enumerate(rows)}).best
    assert missed <= 11


@given(st.lists(st.floats(0, 1e6), min_size=3, max_size=8))
def test_one_seed_has_no_variance_and_decides_nothing(values):
    table = np.array(values)[None, :, None]
    variance, count = all_variances(table)
    off_diagonal = ~np.eye(len(values), dtype=bool)
    assert np.isnan(variance[0][off_diagonal]).all()
    assert (count == 1).all()
    assert fit_model(variance, count) is None
    found = judge({f"m{i}": [value] for i, value in enumerate(values)})
    assert {pair.answer for pair in found.pairs} <= {"undecided", "equivalent"}
