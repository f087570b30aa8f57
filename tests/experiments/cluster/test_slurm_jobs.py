"""How calls become jobs of Slurm; Slurm itself is not needed."""

import threading
import time
from contextlib import contextmanager
from subprocess import CompletedProcess
from types import SimpleNamespace

import pytest

import unskew as us
from unskew.errors import UnskewError

pytestmark = pytest.mark.extras("submitit")


@pytest.mark.parametrize(
    ("time", "seconds"), [("90", 5400), ("2h", 7200), ("1:30:00", 5400), ("5:30", 330)]
)
def test_the_time_of_slurm_jobs(time, seconds):
    from unskew.experiments.cluster.slurm_cluster import _seconds

    assert _seconds(time) == seconds


def test_a_requeued_slurm_job_makes_only_the_calls_that_are_not_done(tmp_path):
    from submitit.core.utils import DelayedSubmission

    from unskew.experiments.cluster.slurm_cluster import _Pack

    calls, outcomes, saved = tmp_path / "calls", tmp_path / "outcomes", tmp_path / "job.pickle"
    outcomes.mkdir()

    def call(name):
        with calls.open("a") as file:
            file.write(f"{name}\n")
        if calls.read_text().split() == ["first", "second"]:
            raise SystemExit  # as submitit does when a job has been requeued
        return {"end": [0, 1]}

    names = ["first", "second", "third"]
    pack = _Pack([(outcomes / f"{name}.json", (call, (name,))) for name in names])
    with pytest.raises(SystemExit):
        pack()
    assert [path.stem for path in outcomes.iterdir()] == ["first"]
    pack.checkpoint().dump(saved)
    DelayedSubmission.load(saved).result()
    assert calls.read_text().split() == ["first", "second", "second", "third"]
    assert sorted(path.stem for path in outcomes.iterdir()) == names


class FakeSlurm:
    """Executes jobs in threads, and records the sizes of the packs of each array."""

    def __init__(self, folder, max_num_timeout):
        self.parameters, self.arrays, self.refuses = {}, [], False

    def update_parameters(self, **parameters):
        self.parameters |= parameters

    @contextmanager
    def batch(self):
        self.arrays.append([])
        yield

    def submit(self, pack):
        if self.refuses:
            raise RuntimeError("sbatch: error: invalid partition")
        self.arrays[-1].append(len(pack._calls))
        threading.Thread(target=pack, daemon=True).start()
        return SimpleNamespace(job_id="1", paths=None)


@pytest.fixture
def slurm(monkeypatch):
    from unskew.experiments.cluster import slurm_cluster

    fakes, squeue = [], CompletedProcess([], 0, stdout="1")
    monkeypatch.setattr(
        slurm_cluster.submitit, "SlurmExecutor",
        lambda *args, **options: fakes.append(FakeSlurm(*args, **options)) or fakes[-1],
    )  # fmt: skip
    monkeypatch.setattr(slurm_cluster.subprocess, "run", lambda *args, **options: squeue)
    monkeypatch.setattr(slurm_cluster, "_SECONDS_BETWEEN_LOOKS", 0.01)
    return fakes


def open_executor(options, folder, jobs=None):
    from unskew.experiments.cluster.slurm_cluster import open_workers

    return open_workers(options, jobs, 2, 0)(SimpleNamespace(command=folder))


@pytest.mark.parametrize(
    ("jobs", "arrays"), [(None, [[4, 2]]), (3, [[2, 2, 2]])], ids=["pack", "jobs"]
)
def test_runs_are_packed_however_long_their_data_takes_to_load(tmp_path, slurm, jobs, arrays):
    def load(seed):
        time.sleep(0.1)  # ten times as long as between two looks
        return us.load("digits", "iid", 2, seed, samples=40)

    options = {"model": "logistic", "rounds": 1, "seeds": 3, "progress": False, "jobs": jobs}
    us.compare(load, "fedavg,mean", on="slurm:pack=4", out=tmp_path / "away", **options)
    assert slurm[0].arrays == arrays


def test_srun_gets_the_cores_too(tmp_path, slurm):
    open_executor("time=2h,mem=4G", tmp_path).shutdown()
    assert slurm[0].parameters["cpus_per_task"] == 2
    assert slurm[0].parameters["srun_args"] == ["--cpus-per-task=2"]
    assert slurm[0].parameters["time"] == 120
    assert slurm[0].parameters["additional_parameters"] == {"mem": "4G"}


def test_a_refusal_of_sbatch_is_the_error_of_every_call(tmp_path, slurm):
    executor = open_executor("", tmp_path)
    slurm[0].refuses = True
    futures = [executor.submit(dict) for _ in range(3)]
    executor.flush()
    for future in futures:
        with pytest.raises(UnskewError, match=r"^on: Slurm refuses the jobs: sbatch: error: inv"):
            future.result(10)
    executor.shutdown()


def test_no_call_waits_for_a_slurm_that_cannot_be_asked(tmp_path, slurm, monkeypatch):
    from unskew.experiments.cluster import slurm_cluster

    is_asked = threading.Event()

    def squeue_is_missing(*args, **options):
        is_asked.wait(10)
        raise FileNotFoundError("squeue")

    monkeypatch.setattr(slurm_cluster.subprocess, "run", squeue_is_missing)
    executor = open_executor("", tmp_path)
    waiting = executor.submit(dict)
    is_asked.set()
    with pytest.raises(UnskewError, match=r"^on: Slurm cannot be asked: FileNotFoundError: squ"):
        waiting.result(10)
    with pytest.raises(UnskewError, match="on: Slurm cannot be asked"):
        executor.submit(dict)
    executor.shutdown()


def test_nothing_is_submitted_after_the_end(tmp_path, slurm):
    executor = open_executor("", tmp_path)
    executor.shutdown()
    with pytest.raises(UnskewError, match="on: the command has left Slurm"):
        executor.submit(dict)
