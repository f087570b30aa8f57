"""Verdicts of runs, in words."""

import pytest

from unskew.runs.run import Run
from unskew.runs.runs import Runs


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


def test_a_clear_difference_is_significant():
    verdict = runs_of({"mean": [0.70, 0.71, 0.69], "fedavg": [0.901, 0.909, 0.893]}).verdict()
    assert (verdict.leader, verdict.baseline) == ("fedavg", "fedavg")
    assert verdict.is_significant
    assert str(verdict).startswith("mean is significantly worse than fedavg: -20.10 (")
    assert str(verdict).endswith("fedavg is the best, with 90.10 %.")
    assert (verdict.note("fedavg"), verdict.note("mean")) == ("baseline", "worse")
    assert verdict.against("mean") == "-20.10 (worse)"


def test_seeds_that_do_not_decide_are_undecided():
    verdict = runs_of({"a": [0.7, 0.9, 0.8], "b": [0.8, 0.7, 0.82]}).verdict()
    assert not verdict.is_significant
    assert "b is not yet separated, after 3 seeds, from a" in str(verdict)
    assert "any method may be the best" in str(verdict)
    assert verdict.note("b").startswith("undecided")


def test_many_methods_are_counted_and_few_are_named():
    rows = {"fedavg": [0.70, 0.72, 0.71, 0.70, 0.71]}
    for i in range(6):
        rows[f"good{i}"] = [
            value + 0.1 + 0.001 * i * (-1) ** s for s, value in enumerate(rows["fedavg"])
        ]
    rows["bad"] = [0.2, 0.21, 0.2, 0.22, 0.21]
    text = str(runs_of(rows).verdict())
    assert text.startswith(
        "Of 7 rivals of fedavg, 6 significantly better and 1 significantly worse."
    )
    assert text.count(". ") == 1
    assert "3 more" in text or "4 more" in text or "may be as good" in text


@pytest.mark.parametrize("row", [[0.5], [0.5, 0.7], [0.1, 0.2, 0.3]])
def test_methods_with_the_same_scores_are_identical(row):
    verdict = runs_of({"a": row, "b": row, "c": row}).verdict()
    assert str(verdict).startswith("All methods have the accuracy of a with every seed.")
    assert verdict.note("b") == "identical"
    assert not verdict.is_significant


def test_identical_methods_are_not_counted_as_equivalent():
    row = [0.70, 0.72, 0.71, 0.70, 0.71]
    near = [value + 0.0001 * (-1) ** s for s, value in enumerate(row)]
    verdict = runs_of({"fedavg": row, "copy": row, "near": near}).verdict()
    assert str(verdict).startswith(
        "Of 2 rivals of fedavg, 1 equivalent within 1 point and 1 identical to fedavg."
    )
    assert [verdict.note(method) for method in ("copy", "near")] == ["identical", "equivalent"]


def test_a_verdict_names_the_local_tests():
    runs = runs_of({"a": [0.7, 0.9, 0.8], "b": [0.8, 0.7, 0.82]}, level="local")
    assert str(runs.verdict()).startswith("By the clients' own tests, on average: b is")


def test_the_smallest_loss_leads():
    verdict = runs_of({"a": [3.0, 3.1, 3.2], "b": [1.0, 1.2, 1.1]}, metric="loss").verdict()
    assert verdict.leader == "b"
    assert verdict.pairs[0].difference == pytest.approx(2.0)
    assert verdict.note("b") == "better"
    assert verdict.against("b").startswith("-2 (")
    assert verdict.answers.margin == pytest.approx(0.031)  # one per cent of the baseline's


def test_one_seed_or_one_method_cannot_be_compared():
    assert "One seed cannot show" in str(runs_of({"a": [0.5], "b": [0.4]}).verdict())
    assert "is the only method" in str(runs_of({"a": [0.5, 0.6]}).verdict())
    assert Runs([Run("a", "mlp", "digits", 0, 4)]).verdict() is None


def test_a_run_without_a_score_cannot_lead():
    verdict = runs_of({"a": [None, 0.9], "b": [0.6, 0.7]}).verdict()
    assert (verdict.leader, verdict.note("a")) == ("b", "-")


def test_the_mean_of_the_last_evaluations_is_judged():
    run = Run("a", "mlp", "digits", 0, 4)
    for round_ in range(1, 71):
        run.metrics.append({"stage": "task", "round": round_, "global": {"accuracy": round_ / 100}})
    assert run.final_value("global") == pytest.approx(0.67)  # rounds 64 to 70
    assert run.final_value("global", final="last") == pytest.approx(0.70)
    del run.metrics[10:]
    assert run.final_value("global") == pytest.approx(0.08)  # at least five
    del run.metrics[3:]
    assert run.final_value("global") == pytest.approx(0.02)
    assert Runs([run]).final_text == "mean of the last 3 evaluations"
    assert Runs([run], final="last").final_text == "after the last round"
