"""The settings that are tried: the same number per method, published values first."""

import math
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unskew.engine.settings import Settings
from unskew.errors import UnskewError
from unskew.experiments.tuning.choice import Choice, TrialResult, best_of, level_of
from unskew.experiments.tuning.plan import make_plan
from unskew.experiments.tuning.search import check_disjoint
from unskew.experiments.tuning.trials import Trial, further_trials, grid_options, lrs_around
from unskew.methods import METHODS, make_method, with_options
from unskew.runs.run import Run
from unskew.stats.metric import ACCURACY, LOSS

LRS = (0.01, 0.1, 1.0)


@pytest.mark.parametrize("spec", [*METHODS, "fedprox+ida", "moon+fedadam"])
@pytest.mark.parametrize("number", [0, 1, 3, 9])
def test_every_method_gets_the_same_number_of_distinct_trials(spec, number):
    method = make_method(spec)
    trials = further_trials(method, 0.1, LRS, number, seed=0)
    settings = {(trial.name, trial.lr) for trial in trials}
    assert len(settings) == len(trials) == number
    assert not settings & {(method.spec, lr) for lr in LRS}
    published = [trial for trial in trials if trial.name != method.spec]
    assert len(published) == min(number, len(grid_options(method)))
    assert all(trial.lr == 0.1 for trial in published)


def test_published_values():
    assert grid_options(make_method("fedprox")) == [
        {("fedprox", "mu"): mu} for mu in (0.001, 0.1, 1.0)
    ]
    assert grid_options(make_method("fedprox:mu=0.5")) == []  # a given value stays
    assert grid_options(make_method("fedavg")) == []
    both = grid_options(make_method("fedprox+fedntd"))
    assert len(both) == len(METHODS["fedprox"].grid["mu"]) * len(METHODS["fedntd"].grid["beta"]) - 1
    assert {("fedprox", "mu"): 0.1, ("fedntd", "beta"): 0.3} in both


def test_options_change_in_their_part_alone():
    method = with_options(make_method("fedprox+moon"), {("fedprox", "mu"): 0.5})
    assert method.spec == "fedprox:mu=0.5+moon"
    assert with_options(make_method("qffl"), {("qffl", "q"): 5}).spec == "qffl:q=5.0"


def test_learning_rates_around_the_best():
    assert list(islice(lrs_around(0.1, LRS), 4)) == [0.3162, 0.03162, 0.1778, 0.05623]
    assert list(islice(lrs_around(1.0, LRS), 3)) == [0.3162, 0.5623, 0.1778]


@given(
    lrs=st.lists(st.floats(1e-4, 10), min_size=2, max_size=5, unique=True),
    index=st.integers(0, 4),
)
def test_learning_rates_are_new_and_within_the_range(lrs, index):
    if max(lrs) / min(lrs) < 1.1:
        return
    best = lrs[index % len(lrs)]
    found = list(islice(lrs_around(best, lrs), 8))
    assert len({*found, *lrs}) == 8 + len(lrs)
    assert all(min(lrs) < lr < max(lrs) for lr in found)


# The plan of a search.


def test_plans():
    plan = make_plan(True, Settings(rounds=50, lr=0.2), seed=3)
    assert (plan.lrs, plan.trials, plan.rounds, plan.seed) == ((0.05, 0.2, 0.8), 6, 13, 3)
    assert make_plan(False, Settings(), 0) is None
    plan = make_plan({"lr": [0.1, 1], "trials": 2, "rounds": 7}, Settings(), 0)
    assert (plan.lrs, plan.trials, plan.remaining, plan.rounds) == ((0.1, 1.0), 2, 0, 7)


@pytest.mark.parametrize(
    ("tune", "words"),
    [
        ({"lr": [0.1]}, "lr: give at least two distinct learning rates"),
        ({"lr": [0.1, 0.1]}, "lr: give at least two distinct learning rates"),
        ({"lr": [0.1, -1]}, "must be greater than 0"),
        ({"trials": 2}, "trials must be at least the number of learning rates, 3"),
        ({"trials": 1000}, "trials must be less than or equal to 100"),
        ({"rounds": 0}, "rounds must be greater than"),
        ({"round": 5}, "did you mean 'rounds'?"),
        ({"lr": [0.1, 0.1002]}, "only 1 of 4 remaining trials fit between them; spread them"),
    ],
)
def test_errors_of_plans_are_one_line(tune, words):
    with pytest.raises(UnskewError, match=r"^tune: [^\n]*$") as caught:
        make_plan(tune, Settings(), 0)
    assert words in str(caught.value)


def test_methods_with_overlapping_searches_are_an_error():
    check_disjoint([make_method(m) for m in ("fedprox", "fedprox:mu=0.5", "fedavg", "ditto")])
    with pytest.raises(UnskewError, match=r"may both become fedprox:mu=0\.1; remove one of them"):
        check_disjoint([make_method(m) for m in ("fedprox", "fedprox:mu=0.1")])


# The choice.


def result(value, metric=ACCURACY):
    return TrialResult(Trial(make_method("fedavg"), 0.1), metric, value)


def test_the_value_of_a_trial_is_its_mean_over_the_second_half():
    accuracies = {2: 0.9, 4: 0.9, 5: 0.9, 6: 0.1, 8: 0.4, 10: 0.7}
    rows = [
        {"stage": "task", "round": t, "global": {"accuracy": accuracy}}
        for t, accuracy in accuracies.items()
    ]
    run = Run(method="fedavg", network="", data="", seed=0, clients=1, metrics=rows, facts={})
    trial = Trial(make_method("fedavg"), 0.1)
    assert TrialResult.of(trial, run, "global").value == pytest.approx(0.4)
    rows[-1]["global"]["accuracy"] = None  # as NaN is written
    assert math.isnan(TrialResult.of(trial, run, "global").value)
    assert math.isnan(TrialResult.of(trial, run, "personal").value)


@pytest.mark.parametrize(
    ("values", "metric", "best"),
    [
        ((0.3, 0.9, 0.5), ACCURACY, 1),
        ((0.3, 0.9, 0.5), LOSS, 0),
        ((0.5, 0.5), ACCURACY, 0),
        ((float("nan"), 0.1), LOSS, 1),
        ((float("nan"), float("nan")), ACCURACY, 0),
    ],
)
def test_the_best_is_chosen_and_the_first_of_equals(values, metric, best):
    results = [result(value, metric) for value in values]
    assert best_of(results) is results[best]


def test_facts_are_plain_values():
    plan = make_plan(True, Settings(), 0)
    facts = Choice("fedavg", "global", plan, [result(float("nan")), result(0.5)]).facts()
    assert facts["chosen"] == {"method": "fedavg", "lr": 0.1, "value": 0.5}
    assert [each["value"] for each in facts["results"]] == [None, 0.5]
    assert facts["share"] == 0.2


def test_methods_are_judged_at_the_level_they_are_designed_for():
    levels = {spec: level_of(make_method(spec)) for spec in ("fedavg", "ditto")}
    assert levels == {"fedavg": "global", "ditto": "personal"}
    assert level_of(make_method("feddisk")) == "local"
