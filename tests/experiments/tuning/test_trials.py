"""Which settings are tried: the same number for every method, the published ones first."""

import math
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unskew.engine.settings import Settings
from unskew.errors import UnskewError
from unskew.experiments.tuning.choice import Choice, Tried, best_of, level_of
from unskew.experiments.tuning.plan import make_plan
from unskew.experiments.tuning.search import check_apart
from unskew.experiments.tuning.trials import Trial, further_trials, rates_around, settings_of_grid
from unskew.methods import METHODS, make_method, name_of, with_options
from unskew.runs.run import Run
from unskew.stats.metric import ACCURACY, LOSS

RATES = (0.01, 0.1, 1.0)


@pytest.mark.parametrize("spelling", [*METHODS, "fedprox+ida", "moon+fedadam"])
@pytest.mark.parametrize("number", [0, 1, 3, 9])
def test_every_method_gets_as_many_trials_and_none_twice(spec, number):
    method = make_method(spec)
    trials = further_trials(method, 0.1, RATES, number, seed=0)
    settings = {(trial.name, trial.lr) for trial in trials}
    assert len(settings) == len(trials) == number
    assert not settings & {(name_of(method), rate) for rate in RATES}
    published = [trial for trial in trials if trial.name != name_of(method)]
    assert len(published) == min(number, len(settings_of_grid(method)))
    assert all(trial.lr == 0.1 for trial in published)


def test_published_values_by_hand():
    assert settings_of_grid(make_method("fedprox")) == [{"mu": 0.001}, {"mu": 0.1}, {"mu": 1.0}]
    assert settings_of_grid(make_method("fedprox:mu=0.5")) == []  # what is spelled stays
    assert settings_of_grid(make_method("fedavg")) == []
    both = settings_of_grid(make_method("fedprox+fedntd"))
    assert len(both) == len(METHODS["fedprox"].grid["mu"]) * len(METHODS["fedntd"].grid["beta"]) - 1
    assert {"mu": 0.1, "beta": 0.3} in both


def test_options_change_in_every_part():
    method = with_options(make_method("fedprox+ida"), {"mu": 0.5})
    assert name_of(method) == "fedprox:mu=0.5+ida"
    assert method.mu == 0.5
    assert name_of(with_options(make_method("qffl"), {"q": 5})) == "qffl:q=5.0"


def test_rates_by_hand():
    assert list(islice(rates_around(0.1, RATES), 4)) == [0.3162, 0.03162, 0.1778, 0.05623]
    assert list(islice(rates_around(1.0, RATES), 3)) == [0.3162, 0.5623, 0.1778]


@given(
    rates=st.lists(st.floats(1e-4, 10), min_size=2, max_size=5, unique=True),
    place=st.integers(0, 4),
)
def test_rates_are_new_and_within_the_range(rates, place):
    if max(rates) / min(rates) < 1.1:
        return
    best = rates[place % len(rates)]
    found = list(islice(rates_around(best, rates), 8))
    assert len({*found, *rates}) == 8 + len(rates)
    assert all(min(rates) < rate < max(rates) for rate in found)


# What is asked for.


def test_a_plan_by_hand():
    plan = make_plan(True, Settings(rounds=50, lr=0.2), seed=3)
    assert (plan.rates, plan.trials, plan.rounds, plan.seed) == ((0.05, 0.2, 0.8), 6, 13, 3)
    assert make_plan(False, Settings(), 0) is None
    plan = make_plan({"lr": [0.1, 1], "trials": 2, "rounds": 7}, Settings(), 0)
    assert (plan.rates, plan.trials, plan.further, plan.rounds) == ((0.1, 1.0), 2, 0, 7)


@pytest.mark.parametrize(
    ("tune", "words"),
    [
        ({"lr": [0.1]}, "lr: give at least two learning rates"),
        ({"lr": [0.1, 0.1]}, "lr: give at least two learning rates"),
        ({"lr": [0.1, -1]}, "must be greater than 0"),
        ({"trials": 2}, "trials must be at least the number of learning rates, 3"),
        ({"trials": 1000}, "trials must be less than or equal to 100"),
        ({"rounds": 0}, "rounds must be greater than"),
        ({"round": 5}, "did you mean 'rounds'?"),
        ({"lr": [0.1, 0.1002]}, "only 1 of 4 further trials fit between them; spread them"),
    ],
)
def test_bad_searches_are_one_line(tune, words):
    with pytest.raises(UnskewError, match=r"^tune: [^\n]*$") as caught:
        make_plan(tune, Settings(), 0)
    assert words in str(caught.value)


def test_methods_whose_searches_meet_are_refused():
    check_apart([make_method(m) for m in ("fedprox", "fedprox:mu=0.5", "fedavg", "ditto")])
    with pytest.raises(UnskewError, match=r"may both become fedprox:mu=0\.1; leave one away"):
        check_apart([make_method(m) for m in ("fedprox", "fedprox:mu=0.1")])


# What is chosen.


def tried(value, figure=ACCURACY):
    return Tried(Trial(make_method("fedavg"), 0.1), figure, value)


def test_a_trial_is_worth_its_mean_over_the_second_half():
    accuracies = {2: 0.9, 4: 0.9, 5: 0.9, 6: 0.1, 8: 0.4, 10: 0.7}
    rows = [
        {"stage": "task", "round": t, "global": {"accuracy": accuracy}}
        for t, accuracy in accuracies.items()
    ]
    run = Run(method="fedavg", network="", data="", seed=0, clients=1, metrics=rows, facts={})
    trial = Trial(make_method("fedavg"), 0.1)
    assert Tried.of(trial, run, "global").value == pytest.approx(0.4)
    rows[-1]["global"]["accuracy"] = None  # as NaN is written
    assert math.isnan(Tried.of(trial, run, "global").value)
    assert math.isnan(Tried.of(trial, run, "personal").value)


@pytest.mark.parametrize(
    ("values", "figure", "best"),
    [
        ((0.3, 0.9, 0.5), ACCURACY, 1),
        ((0.3, 0.9, 0.5), LOSS, 0),
        ((0.5, 0.5), ACCURACY, 0),
        ((float("nan"), 0.1), LOSS, 1),
        ((float("nan"), float("nan")), ACCURACY, 0),
    ],
)
def test_the_best_is_chosen_and_the_first_of_equals(values, figure, best):
    all_tried = [tried(value, figure) for value in values]
    assert best_of(all_tried) is all_tried[best]


def test_facts_can_be_written_down():
    plan = make_plan(True, Settings(), 0)
    facts = Choice("fedavg", "global", plan, [tried(float("nan")), tried(0.5)]).facts()
    assert facts["chosen"] == {"method": "fedavg", "lr": 0.1, "value": 0.5}
    assert [each["value"] for each in facts["tried"]] == [None, 0.5]
    assert facts["share"] == 0.2


def test_methods_are_judged_by_what_they_are_meant_for():
    levels = {spec: level_of(make_method(spec)) for spec in ("fedavg", "ditto")}
    assert levels == {"fedavg": "global", "ditto": "personal"}
    assert level_of(make_method("feddisk")) == "local"
