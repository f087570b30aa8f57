"""Real clusters on this machine give the local table bit for bit, whoever is killed."""

import json
import re
import shutil
import subprocess
import threading
from pathlib import Path

import pytest
import torch

import unskew as us
from processes import SRC, wait_until
from terminal import PROGRAM
from toys import vector_of
from unskew.models import make
from unskew.runs.read import read_runs

pytestmark = pytest.mark.long

PART = """
import os
import signal
from pathlib import Path

from unskew.methods import ServerSide


class KilledOnce(ServerSide):
    def receive(self, server, uploads):
        marker = Path(__file__).with_name("killed")
        if not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().receive(server, uploads)
"""
MAKEFILE = (SRC.parent / "Makefile").read_text()
DEMO = re.search(r"^METHODS \?= (\S+)$", MAKEFILE, re.MULTILINE)[1]
"""The methods that `make demo` compares."""
OPTIONS = {"seeds": 2, "rounds": 3, "epochs": 2, "lr": 0.1, "progress": False}


def digits(seed):
    return us.load("digits", "dirichlet:alpha=0.1", 20, seed)


def without_time(run):
    return [{k: v for k, v in row.items() if k != "seconds"} for row in run.metrics]


RAY = pytest.param("ray_cluster", marks=pytest.mark.extras("ray"))
DASK = pytest.param("dask_cluster", marks=pytest.mark.extras("distributed"))
SLURM = pytest.param("slurm_cluster", marks=pytest.mark.extras("submitit"))


@pytest.mark.parametrize("cluster", [RAY, DASK, SLURM])
def test_the_table_of_the_demo_is_the_local_one_although_a_worker_is_killed(
    cluster, request, tmp_path
):
    on = request.getfixturevalue(cluster)
    part = tmp_path / "my.py"
    part.write_text(PART)
    options = OPTIONS | {"model": lambda: make("mlp", (1, 8, 8), 10), "checkpoint_seconds": 0.0}
    methods = f"{DEMO},{part}:KilledOnce"
    (tmp_path / "killed").touch()
    here = us.compare(digits, methods, jobs=1, out=tmp_path / "here", **options)
    (tmp_path / "killed").unlink()
    away = us.compare(digits, methods, on=on, out=tmp_path / "away", **options)
    assert (tmp_path / "killed").exists()
    assert str(away.table_with_verdict()) == str(here.table_with_verdict())
    for table in ("table.csv", "table.md", "table.tex"):
        assert (tmp_path / "away" / table).read_bytes() == (tmp_path / "here" / table).read_bytes()
    for one, two in zip(away, here, strict=True):
        assert without_time(one) == without_time(two)
        assert torch.equal(vector_of(one), vector_of(two))
    assert not (tmp_path / "away" / ".unskew-cluster").exists()
    text = (tmp_path / "away" / "fedavg" / "seed0" / "run.json").read_text()
    assert json.loads(text)["cpus"] == here[0].metadata["cpus"]
    shutil.rmtree(tmp_path / "away" / "fedavg" / "seed0")
    again = us.compare(digits, methods, on=on, out=tmp_path / "away", **options)
    assert str(again.table_with_verdict()) == str(here.table_with_verdict())


SLOW = """
import os
import time
from pathlib import Path

from unskew.methods import ServerSide


class Slow(ServerSide):
    def receive(self, server, uploads):
        time.sleep(0.1)
        Path("restarts").write_text(os.environ.get("SLURM_RESTART_COUNT", "0"))
        return super().receive(server, uploads)
"""
COMPARE = (
    *("--data", "digits", "--clients", "4", "--samples", "200", "--skew", "dirichlet:alpha=1"),
    *("--model", "logistic", "--rounds", "60", "--seeds", "2", "--evaluate-every", "20"),
    *("--set", "checkpoint_seconds=0.5"),
)


@pytest.mark.parametrize("cluster", [RAY, DASK, SLURM])
def test_the_same_command_resumes_one_that_was_killed(
    cluster, request, tmp_path, unmeasured, monkeypatch
):
    on = request.getfixturevalue(cluster)
    if cluster == "ray_cluster":  # an existing cluster can also be named by this variable
        on, _, address = on.partition(":")
        monkeypatch.setenv("RAY_ADDRESS", address)
    (tmp_path / "my.py").write_text(SLOW)
    away, here = tmp_path / "away", tmp_path / "here"
    command = ["compare", *COMPARE, "--methods", "my.py:Slow,scaffold", "--out"]

    killed = subprocess.Popen([*PROGRAM, *command, away, "--on", on], cwd=tmp_path)
    try:
        slow = away / "my.py-Slow" / "seed0"
        wait_until(lambda: saved_rounds(slow) > 5 or killed.poll() is not None, "a run", 300)
    finally:
        killed.kill()
        killed.wait()
    saved = saved_rounds(slow)
    before = (slow / "metrics.jsonl").read_bytes().splitlines()[:saved]
    assert 5 < saved < 60
    assert not (away / "report.html").exists()

    printed = {
        out: output_of(*command, out, *more, cwd=tmp_path).replace(str(out), "out")
        for out, more in ((away, ("--on", on)), (here, ()))
    }
    assert printed[away] == printed[here]
    for one, two in zip(read_runs([away]), read_runs([here]), strict=True):
        assert without_time(one) == without_time(two)
    for run in ("scaffold/seed0", "scaffold/seed1", "my.py-Slow/seed0", "my.py-Slow/seed1"):
        last = [checkpoints(out / run)["stage0-round000060"] for out in (away, here)]
        for file in ("server.safetensors", "clients.safetensors"):
            assert last[0][file] == last[1][file]
    # The rounds before the checkpoint have their old times, so they were not repeated.
    assert (slow / "metrics.jsonl").read_bytes().splitlines()[:saved] == before
    assert not (away / ".unskew-cluster").exists()


SEARCH = (
    *("compare", "--data", "digits", "--clients", "4", "--samples", "200", "--model", "logistic"),
    *("--methods", "fedavg,fedprox", "--rounds", "4", "--seeds", "2"),
    *("--decide", "--max-seeds", "3"),
    *("--tune", "--tune-lr", "0.05,0.1", "--tune-budget", "8", "--tune-rounds", "2"),
)
STUDY = ("study", "run", "ida-table1", "--scale", "smoke", "--seeds", "1")


@pytest.mark.extras("distributed", "optuna")
@pytest.mark.parametrize("command", [SEARCH, STUDY], ids=["search", "study"])
def test_searches_and_studies_print_what_they_print_here(
    command, dask_cluster, tmp_path, unmeasured
):
    printed = [
        output_of(*command, "--out", where / "out", *more, cwd=tmp_path).replace(str(where), "")
        for where, more in ((tmp_path / "here", ()), (tmp_path / "away", ("--on", dask_cluster)))
    ]
    assert printed[0] == printed[1]
    assert not (tmp_path / "away" / "out" / ".unskew-cluster").exists()


@pytest.mark.extras("submitit")
def test_a_slurm_job_that_must_stop_is_requeued_and_resumes(slurm_cluster, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.py").write_text(SLOW)
    log = tmp_path / "away" / "my.py-Slow" / "seed0" / "metrics.jsonl"
    before = []

    def stop_the_job():
        wait_until(lambda: log.exists() and log.read_bytes().count(b"\n") > 5, "a run")
        before.extend(log.read_bytes().splitlines()[:5])
        # The signal that Slurm sends to a job before its time is up.
        subprocess.run(["scancel", "--me", "--signal=USR2"], check=True)

    # No checkpoint is written in the meantime, only one at the signal.
    options = OPTIONS | {"seeds": 1, "rounds": 30, "checkpoint_seconds": 3600}
    options |= {"model": "logistic", "epochs": 1, "evaluate_every": 10}
    stopper = threading.Thread(target=stop_the_job, daemon=True)
    stopper.start()
    methods = "fedavg,my.py:Slow"
    away = us.compare(digits, methods, on=slurm_cluster, out=tmp_path / "away", **options)
    stopper.join()
    assert (tmp_path / "restarts").read_text() == "1"
    assert log.read_bytes().splitlines()[:5] == before
    here = us.compare(digits, methods, jobs=1, **options)
    assert str(away.table_with_verdict()) == str(here.table_with_verdict())


def output_of(*arguments: object, cwd: Path) -> str:
    """Return what a command prints."""
    done = subprocess.run(
        [*PROGRAM, *map(str, arguments)], cwd=cwd, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def saved_rounds(run: Path) -> int:
    """Return the round of a run's last checkpoint, or 0."""
    saved = checkpoints(run)
    return int(max(saved)[-6:]) if saved else 0


def checkpoints(run: Path) -> dict[str, dict[str, str]]:
    """Return the hashes of the files of a run's checkpoints."""
    manifest = run / "checkpoints" / "manifest.json"
    return json.loads(manifest.read_text()) if manifest.exists() else {}
