"""A run that is killed at any moment can be resumed, and ends with the same bits."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import unskew as us
from toys import small_federation, vector_of
from unskew.errors import UnskewError
from unskew.methods import Finished

OPTIONS = {"model": "mlp:hidden=8", "batch_size": 8, "lr": 0.1, "cohort": 2, "seed": 3}


class WithState(us.ClientSide, us.ServerSide):
    """A method with state on server and clients, which must both be restored."""

    def finish(self, client, start, trained, state):
        seen = state.get("seen", torch.zeros(())) + trained.vector.sum()
        return Finished(extras={"seen": seen}, state={"seen": seen})

    def conclude(self, before, after, uploads, diagnostics):
        momentum = after.state.get("momentum", torch.zeros_like(after.vector))
        momentum = 0.5 * momentum + after.vector * (1 + 1e-3 * sum(uploads.extras["seen"]))
        vector = 0.9 * after.vector + 0.01 * momentum
        return type(after)(vector, {"momentum": momentum}), {}


def without_seconds(metrics):
    return [{k: v for k, v in row.items() if k != "seconds"} for row in metrics]


@pytest.mark.parametrize("method", ["fedavg", WithState()])
def test_a_resumed_run_equals_an_uninterrupted_run(federation, tmp_path, method):
    whole = us.train(federation, method, rounds=6, out=tmp_path / "whole", **OPTIONS)
    us.train(federation, method, rounds=3, out=tmp_path / "half", **OPTIONS)
    resumed = us.train(federation, method, rounds=6, out=tmp_path / "half", resume=True, **OPTIONS)
    assert torch.equal(vector_of(whole), vector_of(resumed))
    assert without_seconds(whole.metrics) == without_seconds(resumed.metrics)
    assert whole.client_tables == resumed.client_tables
    assert whole.cost == resumed.cost


def test_rounds_after_the_last_checkpoint_are_run_once_more(federation, tmp_path):
    out = tmp_path / "run"
    whole = us.train(federation, rounds=5, out=tmp_path / "whole", **OPTIONS)
    us.train(federation, rounds=3, out=out, **OPTIONS)
    with (out / "metrics.jsonl").open("a") as file:  # a round that no checkpoint covers
        file.write(json.dumps({"stage": "task", "round": 4, "bogus": True}) + "\n")
        file.write('{"stage": "ta')
    resumed = us.train(federation, rounds=5, out=out, resume=True, **OPTIONS)
    assert without_seconds(resumed.metrics) == without_seconds(whole.metrics)
    assert torch.equal(vector_of(whole), vector_of(resumed))


def test_a_damaged_newest_checkpoint_falls_back_to_the_one_before(federation, tmp_path):
    out = tmp_path / "run"
    whole = us.train(federation, rounds=5, **OPTIONS)
    us.train(federation, rounds=4, out=out, checkpoint_seconds=0, **OPTIONS)
    newest = sorted((out / "checkpoints").glob("stage*"))[-1]
    (newest / "server.safetensors").write_bytes(b"rubbish")
    resumed = us.train(federation, rounds=5, out=out, resume=True, **OPTIONS)
    assert torch.equal(vector_of(whole), vector_of(resumed))


def test_resuming_an_empty_folder_starts_from_the_beginning(federation, tmp_path):
    run = us.train(federation, rounds=2, out=tmp_path / "new", resume=True, **OPTIONS)
    assert run.rounds == 2


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"lr": 0.2}, "settings.lr"),
        ({"seed": 4}, "settings.seed"),
        ({"method": "mean"}, "method"),
        ({"model": "mlp:hidden=9"}, "layout"),
    ],
)
def test_resuming_another_run_is_rejected_and_the_error_names_the_field(
    federation, tmp_path, change, field
):
    out = tmp_path / "run"
    us.train(federation, rounds=1, out=out, **OPTIONS)
    changed = OPTIONS | change
    method = changed.pop("method", "fedavg")
    with pytest.raises(UnskewError, match=f"cannot resume, {field} was"):
        us.train(federation, method, rounds=2, out=out, resume=True, **changed)


def test_resuming_with_other_data_is_rejected(federation, tmp_path):
    us.train(federation, rounds=1, out=tmp_path / "run", **OPTIONS)
    other = small_federation(seed=1)
    with pytest.raises(UnskewError, match=r"data was '\w+' and is now '\w+' \(different samples, "):
        us.train(other, rounds=2, out=tmp_path / "run", resume=True, **OPTIONS)


def test_a_run_is_not_resumed_with_fewer_rounds_than_it_has(federation, tmp_path):
    out = tmp_path / "run"
    us.train(federation, rounds=3, out=out, **OPTIONS)
    before = (out / "run.json").read_bytes()
    with pytest.raises(UnskewError, match=r"has 3 already \(requested 2\); request 3 or more"):
        us.train(federation, rounds=2, out=out, resume=True, **OPTIONS)
    assert (out / "run.json").read_bytes() == before
    assert us.train(federation, rounds=3, out=out, resume=True, **OPTIONS).rounds == 3


def test_a_folder_with_a_run_is_not_overwritten(federation, tmp_path):
    us.train(federation, rounds=1, out=tmp_path / "run", **OPTIONS)
    before = (tmp_path / "run" / "metrics.jsonl").read_text()
    with pytest.raises(UnskewError, match="there is a run already"):
        us.train(federation, rounds=1, out=tmp_path / "run", **OPTIONS)
    assert (tmp_path / "run" / "metrics.jsonl").read_text() == before


SCRIPT = """
import os
import sys
import torch
import unskew as us
torch.set_num_threads(1)
os.fsync = lambda descriptor: None  # a killed process loses nothing that the kernel has received
fed = us.load("digits", **{data})
us.train(fed, **{training}, out=sys.argv[1], resume=True)
"""
DATA = {"skew": "dirichlet:alpha=0.3", "clients": 12, "seed": 1}
TRAINING = {
    "method": "fedprox:mu=0.1", "model": "mlp:hidden=16", "rounds": 60, "cohort": 6,
    "batch_size": 16, "lr": 0.1, "evaluate_every": 5, "checkpoint_seconds": 0,
}  # fmt: skip
PATIENCE = 600
"""Seconds after which a process hangs, even on a busy machine that measures coverage."""


@pytest.mark.long
@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGINT])
def test_killed_runs_resume_bit_for_bit(tmp_path, signal_number):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.format(data=DATA, training=TRAINING))
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    digits = us.load("digits", **DATA)
    us.train(digits, **TRAINING, out=whole)
    kills = 0
    for after in (5, 30):
        process = subprocess.Popen(
            [sys.executable, script, killed], stderr=subprocess.DEVNULL, env=dict(os.environ)
        )
        _wait_for_rounds(process, killed, after)
        if process.poll() is None:
            process.send_signal(signal_number)
            try:
                process.wait(timeout=PATIENCE)
            finally:
                process.kill()
            kills += 1
    us.train(digits, **TRAINING, out=killed, resume=True)
    assert kills == 2
    assert _final_vector(whole).equal(_final_vector(killed))
    assert _metrics(whole) == _metrics(killed)


def _wait_for_rounds(process, folder: Path, rounds: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while process.poll() is None and time.monotonic() < deadline:
        path = folder / "metrics.jsonl"
        if path.exists() and path.read_text().count("\n") >= rounds:
            return
        time.sleep(0.002)


def _final_vector(folder: Path) -> torch.Tensor:
    newest = sorted((folder / "checkpoints").glob("stage*"))[-1]
    return load_file(newest / "server.safetensors")["now:vector"]


def _metrics(folder: Path):
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return without_seconds(rows)
