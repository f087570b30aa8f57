"""Runs read back from their folders are the runs that were written."""

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


def test_a_run_reads_back_as_it_was(written):
    run = written[0][0]
    read = read_run(run.folder)
    for name in ("method", "network", "data", "seed", "clients", "metrics", "client_tables"):
        assert getattr(read, name) == getattr(run, name)
    assert read.facts.items() >= run.facts.items()


def test_the_federation_is_remembered(written, federation):
    data = read_run(written[0][0].folder).facts["data"]
    counts = federation.train.label_counts(3).tolist()
    assert data["label_counts"] == counts
    assert (data["clients"], data["classes"]) == (4, 3)
    assert data["train"] == sum(map(sum, counts))
    assert 0 < data["diagnosis"]["label_skew"] < 1


def test_a_comparison_reads_back_as_it_was(written):
    runs, out = written
    assert str(read_runs([out]).table()) == str(runs.table())
    assert read_runs([out, out / "mean"]).methods == ["fedavg", "mean"]
    assert [run.seed for run in read_runs([out / "mean"])] == [3, 5]


def test_what_cannot_be_read_is_named(tmp_path, written):
    with pytest.raises(UnskewError, match="no such folder"):
        read_runs([tmp_path / "none"])
    with pytest.raises(UnskewError, match="there is no run in it"):
        read_runs([tmp_path])
    with pytest.raises(UnskewError, match="name at least one"):
        read_runs([])
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(UnskewError, match=r"run\.json: is not JSON"):
        read_runs([tmp_path])
    (tmp_path / "run.json").write_text(json.dumps({"identity": {}}))
    with pytest.raises(UnskewError, match="'data' is missing"):
        read_runs([tmp_path])
    with pytest.raises(UnskewError, match=r"run\.json: cannot be read"):
        read_run(tmp_path / "none")


def test_one_method_with_one_seed_may_stand_once(written, tmp_path):
    run = written[0][0]
    (tmp_path / "copy").symlink_to(run.folder)
    with pytest.raises(UnskewError, match="fedavg with seed 3 is there twice"):
        read_runs([run.folder, tmp_path / "copy"])
