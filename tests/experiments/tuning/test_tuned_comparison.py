"""Tuned comparisons from end to end, in Python."""

import sys
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest

import unskew as us
from toys import small_federation
from unskew.data.columns import Columns
from unskew.engine import round_loop
from unskew.errors import FolderError, UnskewError
from unskew.experiments.processes import can_run_in_parallel
from unskew.experiments.tuning.validation_split import validation_split
from unskew.methods import ServerSide
from unskew.report.charts.tuning_history import tuning_charts
from unskew.report.page import COMPARISON, read_comparison, write_page
from unskew.report.reproduce import python_text
from unskew.report.tuning_table import history_table, tuning_table
from unskew.runs.json_files import read_json_object
from unskew.runs.read import read_runs, run_folders
from unskew.runs.runs import Runs

pytest.importorskip("optuna")
FEDERATION = small_federation((60, 40, 30, 20))
OPTIONS = {"seeds": 2, "model": "logistic", "rounds": 4, "batch_size": 8}
TUNE = {"lr": [0.05, 2.0], "rounds": 3, "budget": 11}
"""A single wave: four settings of one round, two of three rounds, one with a second seed."""


def tuned(methods="fedavg,ditto", **options):
    return us.compare(FEDERATION, methods, **{**OPTIONS, "tune": TUNE, **options})


@pytest.fixture(scope="module")
def searched():
    """The runs of a search without a folder, in one process."""
    return tuned(jobs=1)


@pytest.fixture
def trained(monkeypatch):
    """The training samples, the number of rounds and the seed of every round that is trained."""
    rounds, run_round = [], round_loop.run_round

    def recorded(context, *arguments):
        rounds.append(
            (context.federation.train.samples, context.settings.rounds, context.settings.seed)
        )
        return run_round(context, *arguments)

    monkeypatch.setattr(round_loop, "run_round", recorded)
    return rounds


def test_the_best_setting_on_validation_is_chosen_and_trained(searched):
    for run in searched:
        search = run.metadata["tuning"]
        repeated = [each for each in search["results"] if len(each["values"]) == 2]
        assert search["chosen"] == max(repeated, key=lambda each: each["value"])
        assert search["chosen"]["failures"] == []
        assert run.method == search["chosen"]["method"]
        assert run.metadata["configuration"]["lr"] == search["chosen"]["lr"]
        assert (len(search["results"]), search["spent"], search["seeds"]) == (4, 11, [0, 1])


def test_the_value_of_a_setting_is_that_of_runs_on_the_validation_splits():
    (run, *_) = tuned("ditto")
    search = run.metadata["tuning"]
    for each in search["results"]:
        for seed, value in enumerate(each["values"]):
            split = validation_split(FEDERATION, search["share"], seed)
            options = {**OPTIONS, "rounds": each["rounds"], "lr": each["lr"], "seed": seed}
            del options["seeds"]
            again = us.train(split, each["method"], **options)
            rounds, values = again.curve("personal")
            late = [v for t, v in zip(rounds, values, strict=True) if 2 * t > rounds[-1]]
            assert value == pytest.approx(sum(late) / len(late))
    assert search["level"] == "personal"


def test_an_option_that_was_given_at_its_default_is_not_searched(tmp_path):
    runs = tuned("fedprox:mu=0.01", jobs=1, out=tmp_path)
    search = runs[0].metadata["tuning"]
    assert {each["method"] for each in search["results"]} == {"fedprox"} == set(runs.methods)
    assert (search["requested"], search["given"]) == ("fedprox", "fedprox:mu=0.01")
    assert "['fedprox:mu=0.01'], seeds=[0, 1]" in python_text(read_runs([tmp_path]))


def test_with_few_positives_good_settings_have_not_collapsed_in_the_judged_metric():
    """Their accuracy is that of the most frequent class, their AUC is far above one half."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(900, 4)).astype(np.float32)
    y = (x[:, 0] + x[:, 1] + rng.normal(size=900) > 3.2).astype(int)
    rare = us.Federation.from_arrays(x, y, rng.choice(3, 900), holdout=0.3)
    options = {"model": "logistic", "rounds": 3, "seeds": 2, "metric": "auc", "lr": 0.02}
    runs = us.compare(rare, "fedavg", tune=TUNE, jobs=1, progress=False, **options)
    assert 0.02 < y.mean() < 0.04
    assert runs.failures("fedavg") == {}
    assert min(run.last("local", "auc") for run in runs) > 0.7
    search = runs[0].metadata["tuning"]
    assert [each["failures"] for each in search["results"]] == [[]] * 4
    assert search["chosen"]["value"] == max(
        each["value"] for each in search["results"] if len(each["values"]) == 2
    )


def test_if_every_setting_collapses_the_best_is_chosen_and_the_table_and_the_page_say_so(tmp_path):
    """Nothing can be learnt, and a setting that stopped early had no chance to collapse."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(800, 4)).astype(np.float32), np.arange(800) % 25 == 0
    noise = us.Federation.from_arrays(x, y.astype(int), rng.choice(4, 800), holdout=0.3)
    tune = {"lr": [1e-3, 0.2], "rounds": 3, "budget": 36}
    us.compare(noise, "fedavg", out=tmp_path, tune=tune, jobs=1, progress=False, **OPTIONS)
    runs = read_runs([tmp_path])
    search = runs[0].metadata["tuning"]
    complete = [each for each in search["results"] if len(each["values"]) == 2]
    assert {failure for each in complete for failure in each["failures"]} == {"collapsed"}
    assert any(each["rounds"] == 1 for each in search["results"])
    assert search["chosen"]["value"] == max(each["value"] for each in complete)
    words = "fedavg: every setting failed; the chosen one collapsed"
    assert words in tuning_table(runs).notes
    write_page(tmp_path / "page.html", runs)
    assert words in (tmp_path / "page.html").read_text()


def test_trials_train_on_a_part_and_runs_on_all(trained):
    tuned("fedavg", jobs=1)
    part = validation_split(FEDERATION, 0.2, 0).train.samples
    whole = FEDERATION.train.samples
    # Settings that are trained further resume their first round.
    trials = [(part, 1, 0)] * 4 + [(part, 3, 0)] * 4 + [(part, 3, 1)] * 3
    assert trained == trials + [(whole, 4, 0)] * 4 + [(whole, 4, 1)] * 4


def test_finished_trials_and_runs_are_not_trained_twice(trained, tmp_path):
    first = tuned(out=tmp_path, jobs=1)
    trained.clear()
    again = tuned(out=tmp_path, jobs=1)
    assert trained == []
    assert str(again.table()) == str(first.table())
    assert [run.metadata["tuning"] for run in again] == [run.metadata["tuning"] for run in first]
    tuned("fedavg,ditto,mean", out=tmp_path, jobs=1)
    assert len(trained) == 11 + 2 * 4  # only the new method's trials and runs


def test_an_interrupted_search_is_resumed(searched, tmp_path, monkeypatch):
    run_round, left = round_loop.run_round, [8]

    def interrupted(*arguments):
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return run_round(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(round_loop, "run_round", interrupted)
        with pytest.raises(KeyboardInterrupt):
            tuned(out=tmp_path, jobs=1)
    resumed = tuned(out=tmp_path, jobs=1)
    assert [run.metadata["tuning"] for run in resumed] == [
        run.metadata["tuning"] for run in searched
    ]
    assert str(resumed.table()) == str(searched.table())


@pytest.mark.skipif(not can_run_in_parallel(None), reason="parallel runs need fork")
def test_parallel_trials_choose_the_same(searched):
    parallel = tuned("ditto", jobs=3)
    sequential = [run for run in searched if run.metadata["tuning"]["requested"] == "ditto"]
    assert [run.metadata["tuning"] for run in sequential] == [
        run.metadata["tuning"] for run in parallel
    ]


def test_reports_read_the_runs_and_not_the_trials(tmp_path):
    runs = tuned(out=tmp_path)
    assert len(list((tmp_path / "tuning").rglob("run.json"))) == 2 * 5
    found = read_runs([tmp_path])
    assert {(run.method, run.seed) for run in found} == {(run.method, run.seed) for run in runs}
    assert tuning_table(found).rows == sorted(tuning_table(runs).rows)
    assert len(run_folders(tmp_path / "tuning")) == 10
    for run in found:
        assert run.folder.parent.name == run.metadata["tuning"]["requested"]


def test_the_test_samples_do_not_affect_a_search():
    """Whatever the test samples are, the same setting is chosen by the same values."""
    other = replace(FEDERATION, test=FEDERATION.train, common=FEDERATION.test)
    first, second = (
        us.compare(data, "fedprox", tune=TUNE, **OPTIONS)[0].metadata["tuning"]
        for data in (FEDERATION, other)
    )
    assert first == second


def test_a_proposal_that_the_network_does_not_support_is_skipped():
    options = {"model": "mlp:hidden=6,norm=batch", "runner": "loop", "seeds": 1}
    (run,) = tuned("fedgn", tune={**TUNE, "budget": 33}, **options)
    skipped = [each for each in run.metadata["tuning"]["results"] if "skipped" in each]
    assert {each["method"] for each in skipped} <= {
        f"fedgn:groups={number}" for number in (4, 8, 16, 32)
    }
    assert skipped
    assert all("does not divide" in each["skipped"] for each in skipped)
    assert all(each["value"] is None for each in skipped)
    assert all(each["failures"] == ["skipped"] for each in skipped)


@dataclass(frozen=True, kw_only=True)
class Dividing(ServerSide):
    k: int = 1
    grid: ClassVar = {"k": (1, 0)}

    def receive(self, server, uploads):
        assert 10 // self.k
        return {}


def test_a_bug_on_the_server_is_not_a_skipped_trial():
    with pytest.raises(UnskewError, match="receive of 'dividing' raised ZeroDivisionError"):
        tuned([Dividing()])


def test_a_method_that_cannot_be_trained_as_requested_is_an_error():
    with pytest.raises(UnskewError, match="krum"):
        tuned("krum:f=40")


def test_a_different_search_in_the_same_folder_is_an_error(tmp_path):
    tuned("fedavg", out=tmp_path)
    with pytest.raises(FolderError, match="cannot resume"):
        tuned("fedavg", out=tmp_path, momentum=0.5)


def test_without_resume_an_earlier_search_is_an_error(tmp_path):
    first = tuned("fedavg", out=tmp_path, resume=False, seeds=1)
    assert first[0].metadata["tuning"]["spent"] == 11  # settings resume within one search
    with pytest.raises(FolderError, match="holds the trials of an earlier search"):
        tuned("fedavg", out=tmp_path, resume=False, seeds=1)


def test_the_norm_is_searched_and_used():
    runs = tuned("fedavg", tune={**TUNE, "clip": [1e-6], "budget": 22})
    search = runs[0].metadata["tuning"]
    assert {each["clip"] for each in search["results"]} == {None, 1e-6}
    assert search["chosen"]["clip"] is None  # with the tiny norm nothing is learnt
    assert runs[0].metadata["configuration"]["clip"] is None
    assert "clip" in tuning_table(runs).columns


def test_the_tables_of_a_search():
    runs = tuned("fedavg")
    table, search = tuning_table(runs), runs[0].metadata["tuning"]
    assert table.columns == ["chosen", "lr", "validation", "at an edge", "settings", "judged by"]
    edges = ", ".join(f"{name}: {side}" for name, side in search["edges"].items())
    chosen = search["chosen"]
    assert table.rows == [
        ["fedavg", f"{chosen['lr']:g}", f"{100 * chosen['value']:.2f} %", edges or "no", "4",
         "global accuracy"],
    ]  # fmt: skip
    assert table.title == (
        "tuned on 20 % of each client's training samples "
        "(budget per method: 11 rounds, rounds of a chosen setting: 3, seeds: 0, 1)"
    )
    history = history_table(runs)
    assert [row[4:6] for row in history.rows] == [
        [str(each["rounds"]), str(len(each["values"]))] for each in search["results"]
    ]
    assert history.rows[-1][-1] == f"{chosen['value']:.6g}"
    (chart,) = tuning_charts(runs)
    (series,) = chart.data["series"]
    assert series["x"] == [1, 2, 3, 4]
    assert series["points"] == [
        pytest.approx(each["value"], rel=1e-4) for each in search["results"]
    ]
    assert tuning_table(us.compare(FEDERATION, "fedavg", **OPTIONS)) is None


def test_without_optuna_the_error_names_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(UnskewError, match=r'^tune: needs Optuna; pip install "unskew\[tune\]"$'):
        tuned("fedavg")


def test_a_level_is_judged_by_the_search_and_by_the_folder(tmp_path):
    runs = tuned(level="personal", out=tmp_path, jobs=1)
    assert {run.metadata["tuning"]["level"] for run in runs} == {"personal"}
    assert runs.verdict().level == "personal"
    known = read_comparison(tmp_path)
    assert known.sorted(read_runs([tmp_path])).verdict() == runs.verdict()
    assert "personal accuracy" in (tmp_path / "table.md").read_text()


def test_a_method_without_a_global_model_is_neither_tuned_nor_judged_by_one(tmp_path):
    runs = tuned("fedavg,local", level="global", out=tmp_path, jobs=1)
    found = {run.metadata["tuning"]["requested"]: run.metadata["tuning"] for run in runs}
    assert {name: search["level"] for name, search in found.items()} == {
        "fedavg": "global",
        "local": "personal",
    }
    assert found["local"]["chosen"]["failures"] == []
    assert runs.table_with_verdict().rows[-1][-1] == "no global model"


def test_the_level_follows_from_the_methods_and_is_recorded(tmp_path):
    for methods, level in (("fedavg,mean", "global"), ("fedavg,local", "personal")):
        runs = us.compare(FEDERATION, methods, out=tmp_path / methods, **OPTIONS)
        assert runs.level == level == read_json_object(tmp_path / methods / COMPARISON)["level"]
        read = read_comparison(tmp_path / methods).sorted(read_runs([tmp_path / methods]))
        assert (read.level, str(read.verdict())) == (level, str(runs.verdict()))
        assert "level=" not in python_text(read)
    assert Runs(read_runs([tmp_path / methods])).level == "personal"
    for run in read:  # as earlier versions wrote it
        del run.metadata["models"]
    assert Runs(read).level == "personal"


def test_without_tests_of_clients_the_global_model_is_judged():
    alone = replace(FEDERATION, test=Columns.empty_like(FEDERATION.test))
    runs = us.compare(alone, "fedavg,ditto,local", **OPTIONS)
    assert runs.level == "global"
    rows = {row[0]: row for row in runs.table_with_verdict().rows}
    assert (rows["local"][1], rows["local"][-1]) == ("-", "no global model")
    assert rows["ditto"][1] == rows["fedavg"][1] != "-"


def test_a_level_without_test_samples_is_an_error_before_training():
    alone = replace(FEDERATION, common=Columns.empty_like(FEDERATION.common))
    with pytest.raises(UnskewError, match=r"level: .* has no common test; use local or personal"):
        us.compare(alone, "fedavg", level="global")
    alone = replace(FEDERATION, test=Columns.empty_like(FEDERATION.test))
    with pytest.raises(UnskewError, match=r"level: no client of .* has test samples"):
        us.compare(alone, "fedavg", level="personal")
