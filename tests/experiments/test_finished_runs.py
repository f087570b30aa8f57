"""A comparison that is called again reads its finished runs, and computes little more than that."""

import shutil

import numpy as np
import pytest
import torch

import unskew as us
from toys import vector_of
from unskew.data import load, tables
from unskew.engine import initial_network
from unskew.engine.progress import ProgressDisplay
from unskew.errors import UnskewError
from unskew.experiments.processes import ForkedProcesses

METHODS = "fedavg,fedgn,scaffold"
OPTIONS = {"seeds": 2, "rounds": 3, "jobs": 2, "progress": False, "checkpoint_seconds": 0.0}


def digits(seed):
    return us.load("digits", "dirichlet:alpha=1", 4, seed, samples=200)


def count_calls(monkeypatch, module, name):
    calls, original = [], getattr(module, name)

    def counting(*args, **kwargs):
        calls.append(args)
        return original(*args, **kwargs)

    monkeypatch.setattr(module, name, counting)
    return calls


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    out = tmp_path_factory.mktemp("comparison")
    return out, us.compare(digits, METHODS, out=out, **OPTIONS | {"jobs": 1})


@pytest.fixture
def finished(trained, tmp_path):
    out, runs = trained
    return shutil.copytree(out, tmp_path / "copy"), runs


def test_finished_runs_share_what_depends_on_the_seed_alone(finished, monkeypatch):
    out, first = finished
    written = {path: path.stat().st_mtime_ns for path in out.rglob("run.json")}
    networks = count_calls(monkeypatch, initial_network, "make_module")
    probes = count_calls(monkeypatch, initial_network, "resolve_runner")
    reads = count_calls(monkeypatch, load, "source")
    workers = count_calls(monkeypatch, ForkedProcesses, "submit")
    second = us.compare(digits, METHODS, out=out, **OPTIONS)
    assert (len(networks), len(probes), len(reads), len(workers)) == (2, 1, 1, 0)
    assert {path: path.stat().st_mtime_ns for path in out.rglob("run.json")} == written
    for before, after in zip(first, second, strict=True):
        assert (before.method, before.seed) == (after.method, after.seed)
        assert before.metrics == after.metrics
        assert before.client_tables == after.client_tables
        assert torch.equal(vector_of(before), vector_of(after))


def test_only_unfinished_runs_are_trained(finished, monkeypatch):
    out, first = finished
    workers = count_calls(monkeypatch, ForkedProcesses, "submit")
    second = us.compare(digits, f"{METHODS},ida", out=out, **OPTIONS)
    assert len(workers) == 2
    assert [run.metrics for run in second][: len(first)] == [run.metrics for run in first]


def test_changed_data_and_networks_are_noticed(finished):
    def changed(seed):
        data = digits(seed)
        data.common.x[0, 0, 0, 0] += 0.5
        return data

    out, _ = finished
    with pytest.raises(UnskewError, match="cannot resume, data was"):
        us.compare(changed, METHODS, out=out, **OPTIONS)
    with pytest.raises(UnskewError, match="cannot resume, layout was"):
        us.compare(digits, METHODS, out=out, model="logistic", **OPTIONS)


def test_a_damaged_last_checkpoint_is_replaced_by_the_one_before_it(finished):
    out, first = finished
    for path in out.rglob("stage0-round000003/server.safetensors"):
        path.write_bytes(b"damaged")
    second = us.compare(digits, METHODS, out=out, **OPTIONS)
    for before, after in zip(first, second, strict=True):
        assert torch.equal(vector_of(before), vector_of(after))


def test_a_federation_that_is_changed_does_not_change_the_next_one(tmp_path):
    seen = []

    def scaled(seed):
        data = digits(seed)
        seen.append(data.common.x.copy())
        data.common.x[:] *= 0.5
        return data

    us.compare(scaled, "fedavg", out=tmp_path, **OPTIONS)
    assert len(seen) >= 2
    assert all(np.array_equal(each, seen[0]) for each in seen)


def test_a_table_is_read_once_for_all_seeds(tmp_path, monkeypatch):
    rows = [f"{i % 2},{i % 3},{i % 5}" for i in range(60)]
    (tmp_path / "table.csv").write_text("\n".join(["label,a,b", *rows]) + "\n")
    reads = count_calls(monkeypatch, tables, "read_table")

    def table(seed):
        path = tmp_path / "table.csv"
        return us.Federation.from_table(path, label="label", holdout=0.5, seed=seed)

    us.compare(table, "fedavg", **OPTIONS)
    assert len(reads) == 1
    table(0)
    assert len(reads) == 2


def test_runs_that_are_only_read_are_left_out_of_the_time_estimate(finished, monkeypatch):
    skipped = count_calls(monkeypatch, ProgressDisplay, "skip")
    us.compare(digits, METHODS, out=finished[0], **OPTIONS | {"seeds": 3})
    assert [numbers for _, *numbers in skipped] == [[6, 18]]
