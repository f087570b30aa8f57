"""Runs as DataFrames."""

import builtins

import pytest

from reports import RUNS, made_run, trained_runs
from unskew.errors import UnskewError
from unskew.runs.runs import Runs


@pytest.mark.extras("pandas")
def test_the_history_of_a_run_has_one_row_per_round():
    frame = made_run(accuracies=(0.3, None, 0.5)).history()
    assert frame["round"].tolist() == [1, 2, 3]
    assert frame["global_accuracy"].isna().tolist() == [False, True, False]
    assert frame["global_accuracy"].dropna().tolist() == [0.3, 0.5]
    assert frame["bytes_up"].tolist() == [4, 4, 4]
    assert frame["local_min"].tolist() == [0.2] * 3


@pytest.mark.extras("pandas")
def test_a_history_has_scalar_diagnostics_and_rejections():
    run = made_run()
    run.metrics[1] |= {"diagnostics": {"step_size": 0.5, "matrix": [[1]]}, "rejected": {"2": "NaN"}}
    frame = run.history()
    assert frame["step_size"].tolist()[1] == 0.5
    assert "matrix" not in frame
    assert frame["rejected"].tolist() == [0, 1]


@pytest.mark.extras("pandas")
def test_comparisons_have_one_row_per_run_and_one_per_round():
    runs = trained_runs()
    frame = runs.to_pandas()
    assert frame[["method", "seed"]].to_numpy().tolist() == [[r.method, r.seed] for r in runs]
    assert frame["global_accuracy"].tolist() == [run.accuracy for run in runs]
    assert frame["bytes_up"].tolist() == [run.cost.bytes_up for run in runs]
    assert frame["lr"].tolist() == [0.05] * len(runs)
    history = runs.history()
    assert len(history) == sum(run.rounds for run in runs)
    assert history.groupby("method")["seed"].nunique().tolist() == [2, 2]


@pytest.mark.extras("pandas")
def test_no_runs_are_an_empty_frame():
    assert Runs([]).to_pandas().empty
    assert Runs([]).history().empty


def test_without_pandas_the_error_names_the_fix(monkeypatch):
    real = builtins.__import__

    def without_pandas(name, *args, **kwargs):
        if name == "pandas":
            raise ModuleNotFoundError("No module named 'pandas'", name="pandas")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_pandas)
    for frame in (RUNS.to_pandas, RUNS.history, RUNS[0].history):
        with pytest.raises(UnskewError, match=r'pip install "unskew\[notebook\]"'):
            frame()
