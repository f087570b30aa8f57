"""What metrics reveal: no better than one class, diverged, identical to another method."""

import json

import pytest

import unskew as us
from reports import made_run
from toys import small_federation
from unskew.engine.metrics import plan_metrics
from unskew.experiments.tuning.choice import Measured
from unskew.runs.metadata import federation_metadata
from unskew.runs.outcomes import identity, outcomes_of
from unskew.runs.runs import Runs
from unskew.stats.metric import ACCURACY


def run_with(accuracy, majority):
    run = made_run(accuracies=[accuracy] * 3)
    run.metadata["data"] = {"majority": {} if majority is None else {"global": majority}}
    return run


@pytest.mark.parametrize(
    ("accuracy", "majority", "is_said"),
    [(0.56, 0.56, True), (0.564, 0.56, True), (0.57, 0.56, False), (0.3, 0.56, True),
     (1.0, 1.0, False), (0.5, None, False)],
)  # fmt: skip
def test_no_better_than_the_most_frequent_class(accuracy, majority, is_said):
    found = outcomes_of([run_with(accuracy, majority)], "global", ACCURACY)
    said = "collapsed: no better than always predicting the most frequent class (56.00 %)"
    assert [outcome.sentence.startswith(said) for outcome in found] == [True] * is_said


@pytest.mark.parametrize(
    ("name", "value", "without_skill"),
    [
        *(("auc", 0.79, ""), ("auc", 0.504, "50.00 %"), ("auc", 0.51, ""), ("auc", 0.3, "50.00 %")),
        *(("balanced_accuracy", 0.254, "25.00 %"), ("balanced_accuracy", 0.5, "")),
        *(("sensitivity:specificity=0.8", 0.2, "20.00 %"), ("f1", 0.0, ""), ("brier", 0.02, "")),
    ],
)
def test_a_run_that_is_judged_by_another_metric_collapses_in_that_metric(
    name, value, without_skill
):
    """Its accuracy is that of the most frequent class, as with 3 % positives."""
    plan = plan_metrics([], name, "multiclass" if name == "balanced_accuracy" else "binary", 4, "")
    run = run_with(0.97, 0.97)
    run.metadata |= json.loads(json.dumps(plan.to_dict()))
    for row in run.metrics:
        row["global"][run.metric.name] = value
    found = [outcome.sentence for outcome in outcomes_of([run], "global", run.metric)]
    said = (
        f"collapsed: no better than the {run.metric.name} of a prediction that ignores the sample"
    )
    assert [text.startswith(f"{said} ({without_skill})") for text in found] == (
        [True] if without_skill else []
    )
    assert Runs([run]).failures("fedavg") == ({0: "collapsed"} if without_skill else {})
    rounds = len(run.metrics)
    failure = "collapsed" if without_skill else ""
    assert Measured.of(run, "global", rounds, is_last=True).failure == failure


def test_personal_models_are_compared_with_one_class_on_the_clients_tests():
    run = made_run(accuracies=[0.9] * 3)
    run.metadata["data"] = {"majority": {"global": 0.9, "local": 0.4}}
    assert [each.words for each in outcomes_of([run], "personal", ACCURACY)] == ["collapsed"]
    for row in run.metrics:
        row["personal"] = {**row["personal"], "accuracy": 0.41}
    assert outcomes_of([run], "personal", ACCURACY) == []


def test_the_share_is_that_of_the_best_constant_prediction():
    federation = small_federation()
    majority = federation_metadata(federation)["majority"]
    common, test = federation.common, federation.test
    assert majority["global"] == max((common.y == c).mean() for c in range(3))
    shares = [[(test.client(k)[1] == c).mean() for k in range(4)] for c in range(3)]
    assert majority["local"] == pytest.approx(max(sum(row) / 4 for row in shares))


@pytest.mark.parametrize(
    ("losses", "reason"),
    [
        ([2.0, 0.1, 0.5], ""),  # above its minimum, but below its start
        ([2.0, 0.3, 5.0], "the training loss rose from 0.3 to 5"),
        ([0.7, 0.7, 1e6], "the training loss rose from 0.7 to 1e+06"),
        ([2.0, 1.9, 9.0], ""),
    ],
)
def test_divergence_is_a_loss_far_above_its_minimum_and_its_start(losses, reason):
    run = made_run(accuracies=[0.5] * 7)
    for row, loss in zip(run.metrics, [*losses, *losses[-1:] * 4], strict=True):
        row["train_loss"] = loss
    found = [outcome.sentence for outcome in outcomes_of([run], "global", ACCURACY)]
    assert [text.partition(": ")[2].partition(";")[0] for text in found] == [reason] * bool(reason)


def test_rounds_in_which_all_clients_failed_have_diverged():
    run = made_run(accuracies=[0.5] * 7)
    for row in run.task_metrics[-5:]:
        row |= {"train_loss": None, "kept_model": "no usable uploads"}
    (outcome,) = outcomes_of([run, made_run(seed=1)], "global", ACCURACY)
    assert outcome.sentence.startswith("diverged in 1 of 2 seeds: no client's training ended")
    assert outcome.words == "diverged in 1 of 2 seeds"


def test_identical_runs_are_named_once():
    runs = Runs([made_run(m, s) for m in ("mean", "fedavg", "ida") for s in (0, 1)])
    for run in runs:
        run.metrics = made_run("fedavg", run.seed).metrics
    assert runs.remarks == {
        "mean": ["identical to fedavg in every round"],
        "ida": ["identical to fedavg in every round"],
    }
    runs.of("ida")[0].metrics[0]["train_loss"] += 1e-9
    assert "ida" not in runs.remarks
    assert identity(runs.of("mean"), runs.of("fedavg")[:1]) is None


def test_methods_that_train_the_same_model_are_identical_to_the_bit():
    federation = small_federation((20, 20, 20))
    methods = "fedavg,mean,fedprox:mu=0.0,fedprox:mu=1.0"
    runs = us.compare(federation, methods, seeds=1, rounds=2, batch_size=4)
    assert "identical to fedavg in every round" in runs.remarks["mean"]
    assert "identical to fedavg in every round" in runs.remarks["fedprox:mu=0.0"]
    assert not any("identical" in text for text in runs.remarks.get("fedprox:mu=1.0", []))


@pytest.mark.parametrize(
    ("accuracies", "count"),
    [
        ([0.3, 0.6, 0.7, 0.1, 0.7, 0.1, 0.7], 2),
        ([0.3, 0.1, 0.6, 0.7, 0.7, 0.7, 0.7, 0.7], 0),  # before the evaluations that are judged
        ([0.1, 0.1, 0.1, 0.6, 0.7], 0),  # had not learnt yet
        ([0.1, 0.6, 0.1, 0.7, 0.7], 1),
        ([0.6, 0.1, 0.1, 0.1, 0.1, 0.1], None),  # collapsed
    ],
)
def test_some_of_the_judged_evaluations_may_have_collapsed(accuracies, count):
    run = made_run(accuracies=accuracies)
    run.metadata["data"] = {"majority": {"global": 0.1}}
    steady = made_run(seed=1, accuracies=[0.7] * 7)
    words = [outcome.words for outcome in outcomes_of([run, steady], "global", ACCURACY)]
    if count is None:
        assert words == ["collapsed in 1 of 2 seeds"]
        return
    assert words == ["unstable in 1 of 2 seeds"] * bool(count)
    assert outcomes_of([run, steady], "global", ACCURACY, "last") == []
    runs = Runs([run, steady, *(made_run("ida", seed) for seed in (0, 1))])
    assert not runs.verdict().failed
    assert runs.failures("fedavg") == {}
    if count:
        (remark,) = runs.remarks["fedavg"]
        assert f": up to {count} of the 5 evaluations that are averaged are no better" in remark
        assert "unstable in 1 of 2 seeds" in str(runs.table_with_verdict())
