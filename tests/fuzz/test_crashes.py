"""A run that is killed at its n-th file event resumes bit for bit and leaves nothing behind.

The events are the calls by which a run changes its folder. A forked process kills itself just
before one of them, again and again, each time at a later one, until the run is complete.
"""

import json
import multiprocessing
import os
import signal
import sys

import pytest
from safetensors.torch import load_file

import unskew as us

_EVENTS = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link")


def train(federation, out, last=0):
    if last:
        _kill_at(str(out), last)
    us.train(federation, "scaffold", model="logistic", rounds=4, cohort=2, runner="loop", out=out,
             resume=True, checkpoint_seconds=0, progress=False)  # fmt: skip


def _kill_at(folder, last):
    """Kill this process when it is about to change a folder for the ``last``-th time."""
    count = 0

    def hook(event, arguments):
        nonlocal count
        mode = arguments[1] if event == "open" else None
        opened = isinstance(mode, str) and any(mark in mode for mark in "wax+")
        if (event in _EVENTS or opened) and any(_is_in(folder, each) for each in arguments):
            count += 1
            if count == last:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def _is_in(folder, argument):
    return isinstance(argument, str | os.PathLike) and str(argument).startswith(folder)


def rows(folder):
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in lines]


@pytest.mark.long
@pytest.mark.parametrize("every", [1, 2, 3, 5, 8, 13])
def test_a_run_killed_at_every_nth_file_event_is_resumed(federation, tmp_path, every):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    train(federation, whole)
    kills = 0
    for last in range(every, 200, every):
        process = multiprocessing.get_context("fork").Process(
            target=train, args=(federation, killed, last)
        )
        process.start()
        process.join(120)
        if process.exitcode == 0:
            break
        assert process.exitcode == -signal.SIGKILL
        kills += 1
    assert kills > 1
    train(federation, killed)
    final = "checkpoints/stage0-round000004/server.safetensors"
    first, second = load_file(whole / final), load_file(killed / final)
    assert all(first[name].equal(second[name]) for name in first)
    assert rows(whole) == rows(killed)
    assert not [path for path in killed.rglob("*") if path.name.startswith(".")]
