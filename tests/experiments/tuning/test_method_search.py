"""Searches on functions in place of runs: what is trained further, and what is chosen."""

import math

import pytest

from unskew.engine.settings import Settings
from unskew.experiments.tuning.choice import Measured, TrialResult, best_of, safe_lr
from unskew.experiments.tuning.method_search import MethodSearch
from unskew.experiments.tuning.plan import make_plan
from unskew.experiments.tuning.space import Trial
from unskew.methods import make_method
from unskew.runs.run import Run
from unskew.stats.metric import ACCURACY, LOSS

pytest.importorskip("optuna")


def searched(spec, value, **tune):
    """Run a search in which ``value(trial, seed, rounds)`` is a run's value, or how it failed."""
    plan = make_plan({"lr": [0.01, 1.0], "rounds": 15, **tune}, Settings(lr=0.1), [0])
    steps, trained = MethodSearch(make_method(spec), plan).steps(), []
    batch = next(steps)
    while True:
        trained += batch
        found = [value(run.trial, run.seed, run.rounds) for run in batch]
        try:
            batch = steps.send([v if isinstance(v, Measured) else measured(v) for v in found])
        except StopIteration as end:
            return end.value, trained


def measured(value):
    if isinstance(value, str):
        return Measured(ACCURACY, math.nan, value)
    return Measured(ACCURACY, value)


def peak(best):
    """A value that is largest at a learning rate."""
    return lambda trial, seed, rounds: 0.9 - 0.1 * abs(math.log(trial.lr / best))


def cost(trained):
    """The rounds that runs take if a run of a setting resumes its earlier ones."""
    longest = {}
    for run in trained:
        key = run.trial.text, run.seed
        longest[key] = max(longest.get(key, 0), run.rounds)
    return sum(longest.values())


@pytest.mark.parametrize("spec", ["fedavg", "fedprox", "fedavgm", "fedadam+fedprox"])
@pytest.mark.parametrize("tune", [{}, {"budget": 400}, {"budget": 55}, {"seeds": 3, "rounds": 4}])
def test_every_method_spends_the_budget_and_no_more(spec, tune):
    choice, trained = searched(spec, peak(0.2), **tune)
    plan = choice.plan
    assert choice.spent == cost(trained) <= plan.budget
    assert plan.budget - choice.spent < plan.wave_cost
    assert len({run.trial.text for run in trained}) == len(choice.results)
    assert len(choice.chosen.measured) == len(plan.seeds)


def test_the_first_setting_is_the_requested_one_and_only_the_better_are_trained_further():
    choice, trained = searched("fedprox", peak(0.1))
    first = choice.results[0]
    assert (first.trial.name, first.trial.lr) == ("fedprox", 0.1)
    assert [run.is_requested for run in trained[:4]] == [True, False, False, False]
    assert {run.rounds for run in trained[:4]} == {5}
    further = [run.trial.text for run in trained[4:6]]
    best = sorted(choice.results[:4], key=lambda result: -result.score)[:2]
    assert further == [result.trial.text for result in best]
    assert choice.chosen is first  # it is at the peak


def test_the_same_seed_gives_the_same_trials_and_another_one_others():
    texts = [
        [result.trial.text for result in searched("fedadam", peak(0.2), budget=400)[0].results]
        for _ in range(2)
    ]
    assert texts[0] == texts[1]
    assert len(texts[0]) > 12  # some were proposed by Optuna


def test_proposals_come_closer_to_the_best():
    choice, _ = searched("fedavg", peak(0.2), budget=800)
    distances = [abs(math.log(result.trial.lr / 0.2)) for result in choice.results]
    assert min(distances) < 0.1
    assert sum(distances[-8:]) < sum(distances[:8])


@pytest.mark.parametrize(("best", "side"), [(30.0, "high"), (0.0005, "low")])
def test_the_range_is_extended_towards_a_best_beyond_its_edge(best, side):
    choice, _ = searched("fedavg", peak(best), budget=600)
    low, high = choice.lr_range
    assert (high > 1.0) if side == "high" else (low < 0.01)
    lrs = [result.trial.lr for result in choice.results]
    assert max(lrs) > 1.0 if side == "high" else min(lrs) < 0.01
    assert choice.edges in ({"lr": side}, {})


def test_a_best_at_an_edge_is_reported():
    choice, _ = searched("fedavg", peak(1e6), budget=55)  # a single wave, which cannot extend
    assert choice.lr_range == (0.01, 1.0)
    lr = choice.chosen.trial.lr
    assert choice.edges == ({"lr": "high"} if lr > 10**-0.2 else {})
    choice, _ = searched("fedadam", lambda trial, seed, rounds: trial.method.parts[0].server_lr)
    assert choice.edges["fedadam.server_lr"] == "high"


@pytest.mark.parametrize("failure", ["diverged", "collapsed"])
def test_a_setting_that_fails_with_any_seed_loses(failure):
    def value(trial, seed, rounds):
        if trial.lr > 0.05 and seed == 1:
            return failure
        return trial.lr

    choice, _ = searched("fedavg", value)
    assert any(result.failures == [failure] for result in choice.results)
    assert choice.chosen.trial.lr <= 0.05
    assert choice.chosen.failures == []


def test_a_setting_that_diverges_early_is_not_trained_further():
    choice, trained = searched("fedavg", lambda trial, *_: "diverged" if trial.lr > 0.1 else 0.5)
    for run in trained:
        assert run.rounds == 5 or run.trial.lr <= 0.1
    assert choice.chosen.trial.lr == 0.1  # the first of equals


def test_if_every_setting_fails_one_is_chosen_and_says_so():
    choice, _ = searched("fedavg", lambda *_: "diverged")
    assert choice.chosen.failures == ["diverged"]
    search = choice.to_dict()
    assert search["chosen"]["value"] is None
    assert search["spent"] <= search["budget"]


def collapsed(score):
    return Measured(ACCURACY, score, "collapsed")


def tried(number, lr, rounds, *measured):
    trial = Trial(make_method("fedavg"), lr)
    return TrialResult(number, trial, {"lr": lr}, rounds, list(measured))


def test_if_every_setting_collapses_the_best_of_the_fully_trained_is_chosen():
    plan = make_plan({"rounds": 3}, Settings(lr=0.1), [0])
    results = [
        tried(0, 0.05, 3, collapsed(0.36), collapsed(0.37)),
        tried(1, 0.3, 3, collapsed(0.43), collapsed(0.44)),
        tried(2, 0.013, 3, collapsed(0.31)),
        tried(3, 0.007, 1, Measured(ACCURACY, 0.28)),  # stopped before it could collapse
        tried(4, 0.4, 1, Measured(ACCURACY, 0.45)),
    ]
    assert best_of(results, plan) is results[1]
    assert safe_lr(results, 2) == math.inf  # none was unstable: all have merely not learnt
    results += [tried(5, 1.0, 3, Measured(ACCURACY, 0.6), collapsed(0.1))]
    assert safe_lr(results, 2) == 0.5
    assert best_of(results, plan) is results[1]
    # One that diverged is no choice as long as others may work, at a safe learning rate.
    diverged = tried(0, 0.1, 3, Measured(ACCURACY, 0.9, "diverged"))
    stopped = [tried(1, 0.3, 1, Measured(ACCURACY, 0.4)), tried(2, 0.01, 1, measured(0.3))]
    assert best_of([diverged, *stopped], plan) is stopped[1]


def test_a_search_in_which_nothing_learns_follows_the_value_up():
    """The value rises with the learning rate, and every setting with all rounds has collapsed."""

    def value(trial, seed, rounds):
        return Measured(ACCURACY, trial.lr / 10, "collapsed" if rounds == 15 else "")

    choice, _ = searched("fedavg", value)
    complete = [result for result in choice.results if len(result.measured) == 2]
    assert choice.chosen is max(complete, key=lambda result: result.score)
    assert choice.chosen.trial.lr == max(result.trial.lr for result in choice.results)


def test_facts_are_plain_values():
    search = searched("fedprox", peak(0.2), clip=[10], budget=200)[0].to_dict()
    assert search["chosen"] in search["results"]
    assert search["requested"] == "fedprox"
    assert search["clips"] == [10.0]
    assert {result["clip"] for result in search["results"]} == {None, 10.0}
    assert [len(search["results"][0][key]) for key in ("values", "failures")][1] == 0


# The value of a run.


def run_of(accuracies, majority=None, losses=None):
    rows = [
        {"stage": "task", "round": t, "global": {"accuracy": accuracy}, "train_loss": 1.0}
        for t, accuracy in accuracies.items()
    ]
    for row, loss in zip(rows, losses or [], strict=False):
        row["train_loss"] = loss
    metadata = {} if majority is None else {"data": {"majority": {"global": majority}}}
    return Run(
        method="fedavg", network="", data="", seed=0, clients=1, metrics=rows, metadata=metadata
    )


def test_the_value_is_the_mean_over_the_second_half_of_the_rounds():
    run = run_of({2: 0.9, 4: 0.9, 5: 0.9, 6: 0.1, 8: 0.4, 10: 0.7})
    assert Measured.of(run, "global", 10, is_last=True).value == pytest.approx(0.4)
    assert Measured.of(run, "global", 5, is_last=False).value == pytest.approx(0.9)
    assert math.isnan(Measured.of(run, "personal", 10, is_last=True).value)
    run.metrics[-1]["global"]["accuracy"] = None  # as NaN is written
    assert Measured.of(run, "global", 10, is_last=True).failure == "no value"


def test_a_run_collapses_only_at_the_end_and_diverges_at_any_time():
    run = run_of({1: 0.1, 2: 0.104}, majority=0.1)
    assert Measured.of(run, "global", 2, is_last=True).failure == "collapsed"
    assert Measured.of(run, "global", 2, is_last=False).failure == ""
    run = run_of({1: 0.5, 2: 0.5, 3: 0.5}, majority=0.1, losses=[1.0, 50.0, 60.0])
    assert Measured.of(run, "global", 3, is_last=False).failure == "diverged"


def test_a_smaller_loss_is_better():
    assert Measured(LOSS, 2.0).score < Measured(LOSS, 1.0).score
    assert Measured(ACCURACY, 0.2).score > Measured(ACCURACY, math.nan).score == -math.inf
