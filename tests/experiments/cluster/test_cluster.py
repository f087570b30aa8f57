"""Runs on a cluster, with threads of this process as its workers."""

import json
import shutil
import threading
import time
import weakref
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
import torch
from torch import nn

import unskew as us
from toys import vector_of
from unskew.engine.progress import ProgressDisplay
from unskew.errors import UnskewError
from unskew.experiments.cluster import call, executor, shared_folder
from unskew.experiments.cluster.executor import Cluster, check_result
from unskew.experiments.cluster.places import _Borrowed, find_place
from unskew.experiments.cluster.shared_folder import shared_folder_in
from unskew.experiments.studies.library import open_study
from unskew.experiments.studies.study_scheduler import run_study_cases
from unskew.methods import ClientSide, ServerSide
from unskew.runs import cpu, folder
from unskew.runs.lock import FolderLock
from unskew.runs.read import read_runs

needs_submitit = pytest.mark.extras("submitit")
needs_distributed = pytest.mark.extras("distributed")
OPTIONS = {"seeds": 2, "model": "logistic", "rounds": 2, "batch_size": 8, "progress": False}


@pytest.fixture
def workers():
    with ThreadPoolExecutor(2) as pool:
        yield pool


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(call, "_SECONDS_BETWEEN_LOOKS", 0.01)
    monkeypatch.setattr(executor, "_SECONDS_BETWEEN_LOOKS", 0.01)
    monkeypatch.setattr(executor, "_PATIENCE", 0.1)


def without_time(run):
    return [{k: v for k, v in row.items() if k != "seconds"} for row in run.metrics]


def assert_same(one, two):
    assert str(one.table_with_verdict()) == str(two.table_with_verdict())
    for left, right in zip(one, two, strict=True):
        assert (left.method, left.seed) == (right.method, right.seed)
        assert without_time(left) == without_time(right)
        assert torch.equal(vector_of(left), vector_of(right))


def test_a_cluster_gives_the_same_bits(federation, tmp_path, workers):
    here = us.compare(federation, "fedavg,scaffold", jobs=1, out=tmp_path / "here", **OPTIONS)
    away = us.compare(federation, "fedavg,scaffold", on=workers, out=tmp_path / "away", **OPTIONS)
    assert_same(here, away)
    metadata = [
        json.loads((tmp_path / each / "fedavg" / "seed1" / "run.json").read_text())
        for each in ("here", "away")
    ]
    assert metadata[1]["configuration"].pop("workers") == 1
    del metadata[0]["configuration"]["workers"]
    assert metadata[0] == metadata[1]
    assert not (tmp_path / "away" / shared_folder.SHARED).exists()


def test_tuning_and_decisions_use_the_cluster(federation, tmp_path, workers, monkeypatch):
    sent, submit = [], Cluster.submit
    monkeypatch.setattr(
        Cluster, "submit", lambda self, fn, *args: sent.append(fn) or submit(self, fn, *args)
    )
    options = OPTIONS | {"tune": {"lr": [0.05, 0.1], "budget": 8, "rounds": 2}}
    options |= {"decide": {"max_seeds": 3}}
    here = us.compare(federation, "fedavg,fedprox", jobs=1, out=tmp_path / "here", **options)
    away = us.compare(federation, "fedavg,fedprox", on=workers, out=tmp_path / "away", **options)
    assert_same(here, away)
    # Per method four settings, two of them further, one with a second seed; the runs of all waves.
    assert len(sent) == 2 * (4 + 2 + 1) + len(away)


@pytest.mark.long
def test_a_study_uses_the_cluster(tmp_path, workers):
    study = open_study("ida-table1", "smoke", 1)
    here = run_study_cases(study, tmp_path / "here", progress=False)
    away = run_study_cases(study, tmp_path / "away", on=workers, progress=False)
    for case in here.runs:
        assert_same(here.runs[case], away.runs[case])


def test_a_single_run_uses_the_cluster(federation, tmp_path, workers):
    options = {"model": "logistic", "rounds": 2, "progress": False}
    here = us.train(federation, **options)
    away = us.train(federation, on=workers, out=tmp_path / "run", **options)
    assert without_time(here) == without_time(away)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_lambdas_and_local_classes_are_sent(federation, tmp_path, workers):
    class Local(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.activation = nn.Linear(5, 3), lambda x: x.tanh()

        def forward(self, x):
            return self.activation(self.linear(x))

    options = OPTIONS | {"model": Local}
    here = us.compare(federation, "fedavg", jobs=1, **options)
    away = us.compare(federation, "fedavg", on=workers, out=tmp_path, **options)
    assert_same(here, away)


def test_data_is_loaded_once_although_runs_end_in_another_order(tmp_path, workers):
    loaded = []

    def federation_of(seed):
        loaded.append(seed)
        return us.load("digits", "iid", 2, seed, samples=40)

    us.compare(federation_of, "fedavg", on=workers, out=tmp_path, **OPTIONS | {"seeds": 4})
    assert loaded == [0, 1, 2, 3]


def test_progress_is_read_from_the_folders(federation, tmp_path, workers, monkeypatch):
    seen, start = [], ProgressDisplay.start

    def recording(self, label, rounds=None):
        on_round = start(self, label, rounds)
        return lambda number, row: seen.append((label, number)) or on_round(number, row)

    monkeypatch.setattr(ProgressDisplay, "start", recording)
    us.compare(
        federation, [Slow()], on=workers, out=tmp_path, **OPTIONS | {"seeds": 1, "rounds": 5}
    )
    assert [number for _, number in seen][:3] == [1, 2, 3]


class Slow(ServerSide):
    def receive(self, server, uploads):
        time.sleep(0.1)
        return super().receive(server, uploads)


class Broken(ClientSide):
    def prepare(self, client, start, payload, state):
        raise RuntimeError("out of luck")


def test_an_error_is_raised_with_its_traceback(federation, tmp_path, workers):
    with pytest.raises(
        UnskewError, match="prepare of 'broken' raised RuntimeError: out of luck"
    ) as caught:
        us.compare(federation, [Broken(), "fedavg"], on=workers, out=tmp_path, **OPTIONS)
    assert "test_cluster.py" in "".join(caught.value.__notes__)


def test_an_interrupt_stops_runs_with_a_checkpoint(federation, tmp_path, workers, monkeypatch):
    def interrupt(number, row):
        if number > 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(ProgressDisplay, "start", lambda *args: interrupt)
    options = OPTIONS | {"seeds": 1, "rounds": 10_000, "checkpoint_seconds": 3600}
    with pytest.raises(KeyboardInterrupt):
        us.compare(federation, ["fedavg", "mean"], on=workers, out=tmp_path, **options)
    log = tmp_path / "fedavg" / "seed0" / "metrics.jsonl"
    saved = json.loads((log.parent / "checkpoints" / "manifest.json").read_text())
    assert 2 < int(max(saved)[-6:]) == len(log.read_text().splitlines()) < 10_000
    assert not (tmp_path / "mean").exists()  # it had not begun
    assert [path.name for path in (tmp_path / shared_folder.SHARED).iterdir()] == ["data"]


def test_the_same_command_resumes_what_was_stopped(federation, tmp_path, workers):
    whole = us.compare(federation, "fedavg,mean", jobs=1, **OPTIONS)
    us.compare(federation, "fedavg", on=workers, out=tmp_path, **OPTIONS | {"rounds": 1})
    resumed = us.compare(federation, "fedavg,mean", on=workers, out=tmp_path, **OPTIONS)
    assert_same(whole, resumed)


def test_a_worker_waits_for_one_that_still_executes_the_run(federation, tmp_path, workers):
    folder = tmp_path / "fedavg" / "seed0"
    folder.mkdir(parents=True)
    lock = FolderLock(folder)
    threading.Timer(1, lock.release).start()
    away = us.compare(federation, "fedavg", on=workers, out=tmp_path, **OPTIONS)
    assert_same(us.compare(federation, "fedavg", jobs=1, **OPTIONS), away)


def test_a_command_that_was_killed_is_replaced(tmp_path):
    with shared_folder_in(tmp_path) as first:
        with shared_folder_in(tmp_path):
            assert first.command.is_dir()  # it holds its lock, so it is alive
        killed = first.path / "command-0"
        killed.mkdir()
        with shared_folder_in(tmp_path):
            assert not killed.exists()
    assert not first.path.exists()


def test_storage_that_is_not_shared_is_an_error(federation, tmp_path):
    class UnsharedStorage(ThreadPoolExecutor):
        def submit(self, fn, *args):
            future = super().submit(fn, *args)
            future.result()
            shutil.rmtree(tmp_path / "fedavg")
            return future

    with (
        UnsharedStorage(1) as pool,
        pytest.raises(UnskewError, match="on storage that all machines sh"),
    ):
        us.compare(federation, "fedavg", on=pool, out=tmp_path, **OPTIONS)


def test_no_future_is_freed_while_the_cluster_is_left(federation, tmp_path, monkeypatch):
    """Ray ends the process of the command if another thread frees one meanwhile."""
    leaving, freed = threading.Event(), []

    class Recording(ThreadPoolExecutor):
        def submit(self, fn, *args):
            future = super().submit(fn, *args)
            weakref.finalize(future, lambda: freed.append(leaving.is_set()))
            return future

    def leave(self, wait=True, *, cancel_futures=False):
        leaving.set()
        time.sleep(0.6)
        leaving.clear()

    monkeypatch.setattr(executor, "_SECONDS_BETWEEN_LOOKS", 0.3)
    monkeypatch.setattr(_Borrowed, "shutdown", leave)
    with Recording(2) as pool:
        us.compare(federation, "fedavg,mean", on=pool, out=tmp_path, **OPTIONS)
    assert freed == [False] * 4


def test_what_a_cluster_raises_is_one_line(tmp_path):
    future = Future()
    future.set_exception(OSError("the worker is gone\nsecond line"))
    with pytest.raises(UnskewError, match=r"^on: a worker failed: OSError: the worker is gone$"):
        check_result(future, tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"on": "rai"}, "on: 'rai' is not known; did you mean 'ray'?"),
        ({"on": "local:4"}, "on: local takes no options (got '4')"),
        ({"on": 4}, "on must be a text such as ray, or an Executor (got 4)"),
        ({"on": "thread pool"}, "on: a cluster needs out (--out), a folder on storage"),
        ({"on": "thread pool", "out": True, "precision": "auto"}, "precision: auto depends on"),
        ({"on": "thread pool", "out": True, "engine": "flower-ray"}, "engine: flower-ray has its"),
    ],
)
def test_errors_name_the_field(federation, tmp_path, workers, options, message):
    options = {k: {"thread pool": workers, True: tmp_path}.get(v, v) for k, v in options.items()}
    with pytest.raises(UnskewError) as caught:
        us.compare(federation, "fedavg", **OPTIONS, **options)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("on", "message"),
    [
        pytest.param("slurm:cpu", "on: write the options of slurm", marks=needs_submitit),
        pytest.param("slurm:time=soon", "on: time: write minutes, 2h", marks=needs_submitit),
        pytest.param("slurm:pack=0", "on: pack is the number of runs", marks=needs_submitit),
        pytest.param("dask", "on: dask needs the address of its", marks=needs_distributed),
    ],
)
def test_options_of_clusters_are_checked(on, message, monkeypatch):
    monkeypatch.delenv("DASK_SCHEDULER_ADDRESS", raising=False)
    with pytest.raises(UnskewError, match=f"^{message}"):
        find_place(on, None, [])


def test_kinds_of_cpu_are_recorded_and_named_where_they_differ(federation, tmp_path, monkeypatch):
    options = OPTIONS | {"jobs": 1, "out": tmp_path}
    first = us.compare(federation, "fedavg", **options)
    assert first[0].metadata["cpus"] == [cpu.cpu_kind()]
    assert "CPU" not in str(first.table())
    monkeypatch.setattr(folder, "cpu_kind", lambda: "another CPU")
    monkeypatch.setattr("unskew.engine.setup.cpu_kind", lambda: "another CPU")
    read = us.compare(federation, "fedavg", **options)
    assert read[0].metadata["cpus"] == [cpu.cpu_kind()]  # reading a run executes no round
    both = us.compare(federation, "fedavg,mean", **options | {"rounds": 3})
    assert both[0].metadata["cpus"] == [cpu.cpu_kind(), "another CPU"]
    assert both[2].metadata["cpus"] == ["another CPU"]
    note = f"2 runs on {cpu.cpu_kind()}, 4 runs on another CPU"
    assert note in str(both.table())
    assert note in (tmp_path / "report.html").read_text()
    assert read_runs([tmp_path])[0].metadata["cpus"] == [cpu.cpu_kind(), "another CPU"]
