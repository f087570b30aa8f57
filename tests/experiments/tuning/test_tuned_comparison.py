"""Tuned comparisons from end to end, in Python."""

from dataclasses import dataclass, replace
from typing import ClassVar

import pytest

import unskew as us
from toys import small_federation
from unskew.engine import train as engine_train
from unskew.errors import FolderError, UnskewError
from unskew.experiments.processes import can_run_in_parallel
from unskew.experiments.tuning.split import validation_split
from unskew.methods import ServerSide
from unskew.report.tuning_table import tuning_table
from unskew.runs.read import read_runs, run_folders

FEDERATION = small_federation((60, 40, 30, 20))
OPTIONS = {"seeds": 2, "model": "logistic", "rounds": 4, "batch_size": 8}
TUNE = {"lr": [0.01, 0.2], "trials": 4, "rounds": 3}


def tuned(methods="fedavg,ditto", **options):
    return us.compare(FEDERATION, methods, **{**OPTIONS, "tune": TUNE, **options})


@pytest.fixture
def trained(monkeypatch):
    """The training samples, the number of rounds and the seed of every round that is trained."""
    rounds, run_round = [], engine_train.run_round

    def recorded(context, *arguments):
        rounds.append(
            (context.federation.train.samples, context.settings.rounds, context.settings.seed)
        )
        return run_round(context, *arguments)

    monkeypatch.setattr(engine_train, "run_round", recorded)
    return rounds


def test_the_best_setting_on_validation_is_chosen_and_trained():
    for run in tuned():
        facts = run.facts["tuning"]
        best = max(facts["results"], key=lambda each: each["value"])
        assert facts["chosen"] == best
        assert (run.method, run.facts["configuration"]["lr"]) == (best["method"], best["lr"])
        assert len(facts["results"]) == 4


def test_the_value_of_a_trial_is_that_of_a_run_on_the_validation_split():
    (run, *_) = tuned("ditto")
    facts = run.facts["tuning"]
    split = validation_split(FEDERATION, facts["share"], facts["seed"])
    for each in facts["results"]:
        options = {**OPTIONS, "rounds": 3, "lr": each["lr"]}
        del options["seeds"]
        again = us.train(split, each["method"], **options)
        _, (_, second, third) = again.curve("personal")
        assert each["value"] == pytest.approx((second + third) / 2)
    assert facts["level"] == "personal"


def test_trials_train_on_a_part_and_runs_on_all(trained):
    tuned("fedavg", jobs=1)
    part = validation_split(FEDERATION, 0.2, 0).train.samples
    whole = FEDERATION.train.samples
    assert trained[: 4 * 3] == [(part, 3, 0)] * 12
    assert trained[4 * 3 :] == [(whole, 4, 0)] * 4 + [(whole, 4, 1)] * 4


def test_finished_trials_and_runs_are_not_trained_twice(trained, tmp_path):
    first = tuned(out=tmp_path, jobs=1)
    trained.clear()
    again = tuned(out=tmp_path, jobs=1)
    assert trained == []
    assert str(again.table()) == str(first.table())
    assert [run.facts["tuning"] for run in again] == [run.facts["tuning"] for run in first]
    tuned("fedavg,ditto,mean", out=tmp_path, jobs=1)
    assert len(trained) == 4 * 3 + 2 * 4  # only the new method's trials and runs


def test_an_interrupted_search_is_resumed(tmp_path, monkeypatch):
    run_round, left = engine_train.run_round, [8]

    def interrupted(*arguments):
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return run_round(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(engine_train, "run_round", interrupted)
        with pytest.raises(KeyboardInterrupt):
            tuned(out=tmp_path, jobs=1)
    resumed, whole = tuned(out=tmp_path, jobs=1), tuned(jobs=1)
    assert [run.facts["tuning"] for run in resumed] == [run.facts["tuning"] for run in whole]
    assert str(resumed.table()) == str(whole.table())


@pytest.mark.skipif(not can_run_in_parallel(None), reason="parallel runs need fork")
def test_parallel_trials_choose_the_same():
    sequential, parallel = tuned(jobs=1), tuned(jobs=3)
    assert [run.facts["tuning"] for run in sequential] == [run.facts["tuning"] for run in parallel]


def test_reports_read_the_runs_and_not_the_trials(tmp_path):
    runs = tuned(out=tmp_path)
    assert len(list((tmp_path / "tuning").rglob("run.json"))) == 2 * 4
    found = read_runs([tmp_path])
    assert {(run.method, run.seed) for run in found} == {(run.method, run.seed) for run in runs}
    assert tuning_table(found).rows == sorted(tuning_table(runs).rows)
    assert len(run_folders(tmp_path / "tuning")) == 8
    for run in found:
        assert run.folder.parent.name == run.facts["tuning"]["requested"]


def test_the_test_samples_do_not_affect_a_search():
    """Whatever the test samples are, the same setting is chosen by the same values."""
    other = replace(FEDERATION, test=FEDERATION.train, common=FEDERATION.test)
    first, second = (
        us.compare(data, "fedprox", tune=TUNE, **OPTIONS)[0].facts["tuning"]
        for data in (FEDERATION, other)
    )
    assert first == second


def test_a_published_value_that_the_network_does_not_support_is_skipped():
    options = {"model": "mlp:hidden=6,norm=batch", "runner": "loop", "seeds": 1}
    (run,) = tuned("fedgn", tune={**TUNE, "trials": 8}, **options)
    skipped = [each for each in run.facts["tuning"]["results"] if "skipped" in each]
    assert {each["method"] for each in skipped} == {
        f"fedgn:groups={number}" for number in (4, 8, 16, 32)
    }
    assert all("does not divide" in each["skipped"] for each in skipped)
    assert all(each["value"] is None for each in skipped)


@dataclass(frozen=True, kw_only=True)
class Dividing(ServerSide):
    k: int = 1
    grid: ClassVar = {"k": (1, 0)}

    def receive(self, server, uploads):
        assert 10 // self.k
        return {}


def test_a_bug_on_the_server_is_not_a_skipped_trial():
    with pytest.raises(UnskewError, match="in aggregate: ZeroDivisionError"):
        tuned([Dividing()])


def test_a_method_that_cannot_be_trained_as_requested_is_an_error():
    with pytest.raises(UnskewError, match="krum"):
        tuned("krum:f=40")


def test_a_different_search_in_the_same_folder_is_an_error(tmp_path):
    tuned("fedavg", out=tmp_path)
    with pytest.raises(FolderError, match="cannot resume"):
        tuned("fedavg", out=tmp_path, momentum=0.5)


def test_the_table_of_a_search():
    runs = tuned("fedavg")
    table, facts = tuning_table(runs), runs[0].facts["tuning"]
    assert table.columns == ["chosen", "lr", "validation", "worst trial", "judged by"]
    values = [each["value"] for each in facts["results"]]
    assert table.rows == [
        ["fedavg", f"{facts['chosen']['lr']:g}", f"{100 * max(values):.2f} %",
         f"{100 * min(values):.2f} %", "global accuracy"],
    ]  # fmt: skip
    assert table.title == (
        "tuned on 20 % of each client's training samples "
        "(trials per method: 4, rounds per trial: 3, seed: 0)"
    )
    assert tuning_table(us.compare(FEDERATION, "fedavg", **OPTIONS)) is None
