"""Parallel runs: the same bits as sequential ones, every error, and no process left behind."""

import multiprocessing
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import Executor, Future
from dataclasses import replace
from multiprocessing.connection import Connection

import pytest
import torch
from torch import nn

import unskew as us
from unskew.engine import progress_bars
from unskew.engine.progress import ProgressDisplay
from unskew.engine.settings import Settings
from unskew.errors import UnskewError
from unskew.experiments.processes import ForkedProcesses, can_run_in_parallel, cores
from unskew.experiments.scheduler import Job, RunRequest, RunScheduler, run_jobs
from unskew.methods import ClientSide, ServerSide, make_method
from unskew.models.functional import FunctionalModel
from unskew.models.layout import flatten
from unskew.runs.run import Run

pytestmark = pytest.mark.skipif(not can_run_in_parallel(None), reason="parallel runs need fork")

OPTIONS = {"seeds": 2, "model": "logistic", "rounds": 2, "batch_size": 8}


def run_in_processes(labels, work, display, parallelism):
    jobs = [Job(label, lambda index=index: work(index)) for index, label in enumerate(labels)]
    return run_jobs(jobs, display, ForkedProcesses(), parallelism)


def without_time(run):
    return [{k: v for k, v in row.items() if k != "seconds"} for row in run.metrics]


def test_parallel_runs_have_the_same_bits(federation):
    sequential = us.compare(federation, "fedavg,mean", jobs=1, **OPTIONS)
    parallel = us.compare(federation, "fedavg,mean", jobs=3, **OPTIONS)
    for one, two in zip(sequential, parallel, strict=True):
        assert (one.method, one.seed) == (two.method, two.seed)
        assert without_time(one) == without_time(two)
        layout = FunctionalModel(one.model).layout
        assert torch.equal(flatten(one.model, layout), flatten(two.model, layout))


def test_parallel_runs_can_be_resumed_sequentially(federation, tmp_path):
    us.compare(federation, "fedavg", jobs=2, out=tmp_path, **{**OPTIONS, "rounds": 1})
    runs = us.compare(federation, "fedavg,mean", jobs=1, out=tmp_path, **OPTIONS)
    whole = us.compare(federation, "fedavg,mean", jobs=1, **OPTIONS)
    assert [without_time(run) for run in runs] == [without_time(run) for run in whole]


class Broken(ClientSide):
    def prepare(self, client, start, payload, state):
        raise RuntimeError("out of luck")


def test_an_error_is_raised_and_ends_the_other_runs(federation):
    with pytest.raises(UnskewError, match="prepare of 'broken' raised RuntimeError: out of luck"):
        us.compare(federation, [Broken(), "fedavg"], jobs=2, **{**OPTIONS, "rounds": 100_000})
    assert not multiprocessing.active_children()


class RaisingKeyError(ServerSide):
    def receive(self, server, uploads):
        return {}["nothing"]


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_error_on_a_worker_carries_its_traceback(federation, jobs):
    options = {**OPTIONS, "runner": "processes", "workers": 2}
    with pytest.raises(UnskewError) as caught:
        us.compare(federation, [Broken(), "fedavg"], jobs=jobs, **options)
    assert "test_jobs.py" in "".join(caught.value.__notes__)


@pytest.mark.parametrize("method", [Broken(), RaisingKeyError()])
def test_an_error_in_a_method_carries_its_traceback(federation, method):
    with pytest.raises(UnskewError) as caught:
        us.compare(federation, [method, "fedavg"], jobs=2, **OPTIONS)
    assert "test_jobs.py" in "".join(caught.value.__notes__)


def test_jobs_run_in_parallel_and_return_in_order():
    b_finished = multiprocessing.get_context("fork").Event()

    def job(index):
        def execute(on_round):
            on_round(1, {})
            if index == 0:
                b_finished.wait(600)
            return Run(f"method {index}", str(os.getpid()), "digits", index, 1)

        return execute

    seen = []

    class RecordingDisplay(ProgressDisplay):
        def start(self, label, rounds=None):
            seen.append(f"start {label}")
            return lambda round_, metrics: seen.append(f"{label}: {round_}")

        def finish(self, label):
            seen.append(f"finish {label}")
            if label == "b":
                b_finished.set()

    runs = run_in_processes(["a", "b", "c"], job, RecordingDisplay(None, 3, 1), 2)
    assert [run.seed for run in runs] == [0, 1, 2]
    assert len({run.network for run in runs} | {str(os.getpid())}) == 4
    assert seen[:2] == ["start a", "start b"]
    assert seen.index("finish b") < seen.index("finish a")
    assert {"a: 1", "b: 1", "c: 1"} < set(seen)


class LateReports(Executor):
    """Reports the round of a run when the next one is submitted, after its result."""

    def __init__(self):
        self.late = []

    def submit(self, fn, report):
        for each in self.late:
            each(1, {})
        self.late = [report]
        future = Future()
        future.set_result(fn(report))
        return future


@pytest.mark.parametrize("surface", ["terminal", "notebook"])
def test_rounds_that_are_reported_after_the_result_do_not_matter(surface, monkeypatch, capsys):
    monkeypatch.setattr(progress_bars, "_notebook_output", lambda: print)
    runs = [Run(f"method {index}", "", "digits", index, 1) for index in range(3)]
    jobs = [Job(run.method, lambda run=run: lambda on_round: run) for run in runs]
    with progress_bars.open_bars(surface) as bars:
        assert run_jobs(jobs, ProgressDisplay(bars, 3, 1), LateReports(), 1) == runs
    assert "3/3" in "".join(capsys.readouterr())


class Unpicklable(Exception):
    def __init__(self, one, two):
        super().__init__(f"{one} {two}")


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (ValueError("bad"), ValueError),
        (Unpicklable("cannot", "unpickle"), RuntimeError),
        (UnskewError("lr: too small"), UnskewError),
    ],
)
def test_errors_are_sent_to_the_parent_process(raised, expected):
    def execute(on_round):
        raise raised

    with pytest.raises(expected, match=str(raised)) as caught:
        run_in_processes(["a"], lambda index: execute, ProgressDisplay(None, 1, 1), 1)
    noted = "".join(getattr(caught.value, "__notes__", []))
    assert ("in execute" in noted) == (expected is ValueError)


def test_a_worker_that_dies_is_an_error():
    with pytest.raises(UnskewError, match=r"a worker process ended unexpectedly \(exit code 7\)"):
        run_in_processes(
            ["a"], lambda index: lambda on_round: os._exit(7), ProgressDisplay(None, 1, 1), 1
        )


def test_a_worker_can_be_forked_while_the_pipe_of_another_is_being_closed(monkeypatch):
    close, is_closing, was_forked = Connection._close, threading.Event(), threading.Event()

    def close_slowly(connection):
        close(connection)
        if threading.current_thread() is not threading.main_thread():
            is_closing.set()
            was_forked.wait(0.2)

    monkeypatch.setattr(Connection, "_close", close_slowly)
    executor = ForkedProcesses()
    first = executor.submit(lambda report: 1, print)
    is_closing.wait()
    second = executor.submit(lambda report: 2, print)
    was_forked.set()
    assert (first.result(), second.result()) == (1, 2)


def test_an_interrupt_leaves_checkpoints(federation, tmp_path):
    def stop(round_, metrics):
        if round_ > 2:
            raise KeyboardInterrupt

    class InterruptingDisplay(ProgressDisplay):
        def start(self, label, rounds=None):
            return stop

    def job(index):
        return lambda on_round: us.train(
            federation, model="logistic", rounds=100_000, out=tmp_path / "run", progress=on_round
        )

    with pytest.raises(KeyboardInterrupt):
        run_in_processes(["a"], job, InterruptingDisplay(None, 1, 1), 1)
    assert not multiprocessing.active_children()
    (saved,) = (tmp_path / "run" / "checkpoints").glob("stage*")
    assert int(saved.name[-6:]) > 2


ENDLESS = """
import sys
import unskew as us
federation = us.load("digits", clients=3)
us.compare(federation, "fedavg,mean", seeds=1, jobs=2, out=sys.argv[1], model="logistic",
           rounds=1_000_000, evaluate_every=0)
"""


@pytest.mark.long
@pytest.mark.usefixtures("unmeasured")
def test_runs_end_quietly_when_their_parent_is_killed(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", ENDLESS, tmp_path], stderr=subprocess.PIPE, text=True
    )
    logs = [tmp_path / method / "seed0" / "metrics.jsonl" for method in ("fedavg", "mean")]
    deadline = time.monotonic() + 600
    try:
        while not all(log.is_file() and log.stat().st_size for log in logs):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        process.kill()
    _, errors = process.communicate(timeout=600)  # workers hold the pipe open until they end
    assert errors == ""
    assert all((log.parent / "checkpoints").is_dir() for log in logs)


def lambda_network():
    """Return a network that pickle rejects: its class is local and it holds a lambda."""

    class Local(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(5, 3)
            self.activation = lambda x: x.tanh()

        def forward(self, x):
            return self.activation(self.linear(x))

    return Local


@pytest.mark.parametrize("kind", ["lambda", "module"])
def test_networks_that_pickle_rejects_run_in_parallel_with_the_same_bits(federation, kind):
    network, processes = lambda_network(), multiprocessing.get_context("fork").SimpleQueue()

    def build():
        processes.put(os.getpid())
        return network()

    model = build if kind == "lambda" else network()
    sequential = us.compare(federation, "fedavg,mean", jobs=1, **{**OPTIONS, "model": model})
    while not processes.empty():
        assert processes.get() == os.getpid()
    parallel = us.compare(federation, "fedavg,mean", jobs=2, **{**OPTIONS, "model": model})
    for one, two in zip(sequential, parallel, strict=True):
        assert without_time(one) == without_time(two)
        assert type(two.model) is network
        layout = FunctionalModel(one.model).layout
        assert torch.equal(flatten(one.model, layout), flatten(two.model, layout))
    if kind == "lambda":
        used = set()
        while not processes.empty():
            used.add(processes.get())
        assert len(used - {os.getpid()}) == len(parallel)  # one worker process per run


def test_a_module_that_cannot_be_pickled_is_trained_in_this_process(federation):
    class WithLock(nn.Linear):
        def __init__(self):
            super().__init__(5, 3)
            self.lock = threading.Lock()

        def __deepcopy__(self, memo):
            return WithLock()

    assert not can_run_in_parallel(WithLock())
    runs = us.compare(federation, "fedavg", jobs=2, **{**OPTIONS, "model": WithLock})
    assert isinstance(runs[0].model, WithLock)


@pytest.mark.parametrize(
    ("available", "options"),
    [
        pytest.param({0}, {}, id="one core"),
        pytest.param({0, 1}, {}, id="two cores"),
        pytest.param({0, 1}, {"device": "cpu"}, id="two cores and a GPU that is not used"),
    ],
)
def test_runs_use_all_cores_by_default(federation, monkeypatch, available, options):
    processes = multiprocessing.get_context("fork").SimpleQueue()
    monkeypatch.setattr("torch.cuda.is_available", lambda: "device" in options)

    def build():
        processes.put(os.getpid())
        return nn.Linear(5, 3)

    monkeypatch.setattr("os.sched_getaffinity", lambda process: available)
    us.compare(federation, "fedavg,mean", **OPTIONS | {"model": build, "seeds": 1} | options)
    used = set()
    while not processes.empty():
        used.add(processes.get())
    assert len(used - {os.getpid()}) == (2 if len(available) == 2 else 0)


def test_runs_on_a_gpu_are_executed_one_after_the_other(federation, monkeypatch):
    """Whatever ``jobs`` says: a study asks for one run per core."""
    requests = [
        RunRequest("run", make_method(name), lambda: federation, Settings(device="cuda"))
        for name in ("fedavg", "mean")
    ]
    scheduler = RunScheduler(None, False, 2, ProgressDisplay(None, 2, 1))
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert scheduler._parallelism(requests) == 1
    on_cpu = [replace(each, settings=Settings(device="cpu")) for each in requests]
    assert scheduler._parallelism(on_cpu) == 2


def test_there_is_at_least_one_core():
    assert cores() >= 1


class UnreadableRun:
    def __reduce__(self):
        return int, ("no number",)


def test_a_result_that_cannot_be_unpickled_is_an_error():
    with pytest.raises(ValueError, match="no number"):
        run_in_processes(
            ["a"], lambda index: lambda on_round: UnreadableRun(), ProgressDisplay(None, 1, 1), 1
        )
