"""Runs read from their folders equal the runs that were written."""

import json

import pytest

import unskew as us
from unskew.errors import UnskewError
from unskew.runs.read import read_run, read_runs

OPTIONS = {"model": "logistic", "rounds": 2, "seeds": [3, 5], "batch_size": 8}


@pytest.fixture(scope="module")
def written(federation, tmp_path_factory):
    out = tmp_path_factory.mktemp("comparison")
    return us.compare(federation, "fedavg,mean", out=out, **OPTIONS), out


def test_a_run_is_read_exactly(written):
    run = written[0][0]
    read = read_run(run.folder)
    for name in ("method", "network", "data", "seed", "clients", "metrics", "client_tables"):
        assert getattr(read, name) == getattr(run, name)
    assert read.metadata.items() >= run.metadata.items()


def test_facts_about_the_federation_are_recorded(written, federation):
    data = read_run(written[0][0].folder).metadata["data"]
    counts = federation.train.label_counts(3).tolist()
    assert data["label_counts"] == counts
    assert (data["clients"], data["classes"]) == (4, 3)
    assert data["train"] == sum(map(sum, counts))
    assert 0 < data["diagnosis"]["label_skew"] < 1


def test_a_comparison_is_read_exactly(written):
    runs, out = written
    assert str(read_runs([out]).table()) == str(runs.table())
    assert str(read_runs(str(out)).table()) == str(read_runs(out).table()) == str(runs.table())
    assert read_runs([out, out / "mean"]).methods == ["fedavg", "mean"]
    assert [run.seed for run in read_runs([out / "mean"])] == [3, 5]


def test_unreadable_paths_are_named(tmp_path, written):
    with pytest.raises(UnskewError, match="no such folder"):
        read_runs([tmp_path / "none"])
    with pytest.raises(UnskewError, match="there is no run in it"):
        read_runs([tmp_path])
    with pytest.raises(UnskewError, match="pass at least one"):
        read_runs([])
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(UnskewError, match=r"run\.json: is not JSON"):
        read_runs([tmp_path])
    (tmp_path / "run.json").write_text(json.dumps({"identity": {}}))
    with pytest.raises(UnskewError, match=r"identity\.method is missing"):
        read_runs([tmp_path])
    with pytest.raises(UnskewError, match=r"run\.json: cannot be read"):
        read_run(tmp_path / "none")


def test_a_method_and_seed_may_be_listed_only_once(written, tmp_path):
    run = written[0][0]
    (tmp_path / "copy").symlink_to(run.folder)
    with pytest.raises(UnskewError, match="fedavg with seed 3 is listed twice"):
        read_runs([run.folder, tmp_path / "copy"])
