"""Seeds are added until methods are decided: on fixed numbers, and with trained methods."""

import math

import pytest

import unskew as us
from unskew.engine.progress import ProgressDisplay
from unskew.errors import UnskewError
from unskew.experiments.deciding import DecidingPlan, make_deciding_plan, run_until_decided
from unskew.runs.decision import decision_text
from unskew.runs.run import Run
from unskew.runs.runs import Runs
from unskew.stats.sequential import plan_waves
from unskew.stats.waves import Waves

PLAN = DecidingPlan(Waves((5, 8, 12)), None)


def result(method, seed, accuracy, seconds=1.0):
    """Return a run with one evaluation."""
    row = {"stage": "task", "round": 1, "global": {"accuracy": accuracy}, "seconds": seconds}
    return Run(method, "mlp", "fake", seed, 2, metrics=[row])


def scores(method, seed):
    """``better`` and ``also`` are clearly better, ``near`` hovers around 1 point."""
    wobble = 0.01 * math.sin(7 * seed)
    near = 0.012 * (-1) ** seed
    base = {"fedavg": 0.7, "better": 0.8, "same": 0.7 + wobble / 100, "near": 0.71 + near}
    return wobble + (0.8 + near if method == "also" else base[method])


class Trainer:
    """Returns fixed results, remembers what was trained, and has a clock of its own."""

    def __init__(self, seconds=1.0, slow_from=1000, reads=False):
        self.trained, self.seconds, self.slow_from, self.now = [], seconds, slow_from, 0.0
        self.reads = reads

    def __call__(self, methods, seeds):
        pairs = [(method, seed) for seed in seeds for method in methods]
        self.trained += pairs
        runs = [
            result(m, s, scores(m, s), self.seconds * (10 if s >= self.slow_from else 1))
            for m, s in pairs
        ]
        if not self.reads:
            self.now += sum(run.metrics[0]["seconds"] for run in runs) / 2
        return runs

    def seeds_of(self, method):
        return [seed for name, seed in self.trained if name == method]


def decided(methods, plan=PLAN, trainer=None):
    trainer = trainer or Trainer()
    runs = run_until_decided(
        methods,
        plan,
        trainer,
        lambda found: Runs(found, waves=plan.waves),
        ProgressDisplay(None, 4, 1),
        started=0.0,
        clock=lambda: trainer.now,
    )
    return runs, trainer


def test_a_method_with_an_answer_is_not_trained_further():
    runs, trainer = decided(["fedavg", "better", "same", "near"])
    assert trainer.seeds_of("better") == trainer.seeds_of("same") == [0, 1, 2, 3, 4]
    assert trainer.seeds_of("near") == trainer.seeds_of("fedavg") == list(range(12))
    answers = {pair.method: pair.answer for pair in runs.verdict().pairs}
    assert answers == {"better": "better", "same": "equivalent", "near": "undecided"}
    text = decision_text(runs)
    assert (
        "After 12 seeds, near is undecided: 34 runs were trained, 29 % fewer than 12 seeds" in text
    )


def test_it_ends_with_the_first_wave_if_all_have_an_answer():
    runs, trainer = decided(["fedavg", "better", "same"])
    assert len(trainer.trained) == 15
    assert decision_text(runs) == "All methods are decided after 5 seeds: 15 runs were trained."


def budget(seconds):
    return DecidingPlan(PLAN.waves, seconds)


def test_a_wave_that_exceeds_the_budget_is_not_begun():
    """A seed of two methods takes 10 s on two cores: 50 s for the first wave, 30 s for the next."""
    runs, trainer = decided(["fedavg", "near"], budget(79.0), Trainer(10))
    assert trainer.seeds_of("near") == [0, 1, 2, 3, 4]
    assert "After 5 seeds, near is undecided" in decision_text(runs)
    _, trainer = decided(["fedavg", "near"], budget(81.0), Trainer(10))
    assert trainer.seeds_of("near") == list(range(8))


def test_finished_runs_cost_no_budget():
    """The records say 10 s per run, but reading them takes no time."""
    trainer = Trainer(10, reads=True)
    _, trainer = decided(["fedavg", "near"], budget(25.0), trainer)
    assert trainer.seeds_of("near") == list(range(12))


def test_a_wave_that_becomes_slower_than_expected_is_not_judged():
    """The sixth seed takes 100 s instead of 10, so the seventh is not begun."""
    trainer = Trainer(10, slow_from=5)
    runs, trainer = decided(["fedavg", "near"], budget(200.0), trainer)
    assert trainer.seeds_of("near") == [0, 1, 2, 3, 4, 5]
    assert len(runs) == 10


def test_a_budget_below_the_first_wave_is_an_error_that_says_how_long_it_takes():
    message = "25 s is too short for the first wave of 5 seeds, which takes about 40 s more"
    with pytest.raises(UnskewError, match=message):
        decided(["fedavg", "near"], budget(25.0), Trainer(10))


@pytest.mark.parametrize(
    ("decide", "seeds", "message"),
    [
        ({"budget": "soon"}, 5, "budget must be a time such as 90s, 20m or 1h30m .got 'soon'.$"),
        ({"budget": 0.0}, 5, "budget"),
        ({"max_seeds": 1}, 5, "max_seeds"),
        ({"seeds": 3}, 5, "decide: seeds"),
        (True, [1, 2, 3], "give the number of seeds of the first wave"),
        (True, 1, "the first wave needs two or more"),
    ],
)
def test_bad_options_are_named(decide, seeds, message):
    with pytest.raises(UnskewError, match=message):
        make_deciding_plan(decide, seeds)


def test_the_options_make_the_plan():
    plan = make_deciding_plan({"budget": "1h30m", "max_seeds": 20, "best": True}, 5)
    assert plan == DecidingPlan(Waves(plan_waves(20), best=True), 5400.0)
    assert make_deciding_plan({"max_seeds": 3}, 5).waves.seeds == (3,)
    assert make_deciding_plan(False, [1]) is None


def test_an_unknown_best_is_undecided():
    """Both are better by 10 points, and their difference is noise around 0."""
    plan = DecidingPlan(Waves((5, 8), best=True), None)
    runs, _ = decided(["fedavg", "better", "also"], plan)
    assert {pair.answer for pair in runs.verdict().pairs} == {"better"}
    text = "After 8 seeds, the best of also and better is undecided"
    other = "After 8 seeds, the best of better and also is undecided"
    assert decision_text(runs).startswith((text, other))


def test_runs_of_an_incomplete_wave_are_not_counted():
    runs, _ = decided(["fedavg", "near"], DecidingPlan(Waves((5, 8, 12)), None))
    first = Runs([run for run in runs if run.seed < 7], waves=runs.waves)
    assert decision_text(first).startswith(
        "After 5 seeds, near is undecided: 10 runs were trained."
    )


@pytest.mark.parametrize("method", ["fedavg", "near"])
def test_a_missing_score_in_a_later_wave_changes_no_answer(method):
    runs, _ = decided(["fedavg", "better", "near"])
    before = Runs([run for run in runs if run.seed < 5], waves=runs.waves).verdict()
    damaged = [
        result(run.method, run.seed, math.nan if (run.method, run.seed) == (method, 6)
               else scores(run.method, run.seed))
        for run in runs
    ]  # fmt: skip
    after = Runs(damaged, waves=runs.waves).verdict()
    assert after.baseline == before.baseline == "fedavg"
    assert after.answers.pair("better") == before.answers.pair("better")


def test_the_verdict_can_be_repeated_from_the_runs():
    runs, _ = decided(["fedavg", "better", "same", "near"])
    shuffled = Runs(sorted(runs, key=lambda run: run.seed), waves=runs.waves)
    assert shuffled.verdict().answers.pairs == runs.verdict().answers.pairs


def test_a_comparison_decides_resumes_and_reports_the_same(tmp_path):
    def federation(seed):
        return us.load("digits", skew="dirichlet:alpha=0.1", clients=4, samples=200, seed=seed)

    options = {
        "seeds": 2, "rounds": 2, "lr": 0.1, "out": tmp_path / "out", "progress": False,
        "decide": {"max_seeds": 4},
    }  # fmt: skip
    methods = "fedavg,mean,local"
    runs = us.compare(federation, methods, **options)
    open_ = [pair.method for pair in runs.verdict().pairs if pair.answer == "undecided"]
    trained = {method: len(runs.of(method)) for method in runs.methods}
    assert all(trained[method] == 4 for method in open_)
    again = us.compare(federation, methods, **options)
    assert again.verdict().answers == runs.verdict().answers
    assert {method: len(again.of(method)) for method in again.methods} == trained
