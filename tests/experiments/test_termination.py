"""SIGTERM ends a script by the signal, after its runs have written their checkpoints."""

import json
import signal
import subprocess
import sys
import threading
import time

import pytest

from unskew.experiments.termination import checkpoints_on_sigterm

SCRIPT = """
import unskew as us

federation = us.load("digits", "iid", 4)
options = {{"model": "logistic", "rounds": 10**6, "evaluate_every": 0, "checkpoint_seconds": 3600}}
print("start", flush=True)
{call}
print("not reached")
"""
CALLS = {
    "train": 'us.train(federation, out="out/fedavg/seed0", progress=False, **options)',
    "compare": 'us.compare(federation, "fedavg", seeds=1, jobs=1, out="out", **options)',
    "workers": 'us.compare(federation, "fedavg,mean", seeds=1, jobs=2, out="out", **options)',
}


def last_round(log):
    lines = log.read_text().splitlines() if log.exists() else []
    return json.loads(lines[-1])["round"] if lines and lines[-1].endswith("}") else 0


@pytest.mark.long
@pytest.mark.parametrize("call", CALLS)
def test_no_finished_round_is_lost(tmp_path, unmeasured, call):
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT.format(call=CALLS[call])],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    methods = ("fedavg", "mean") if call == "workers" else ("fedavg",)
    logs = [tmp_path / "out" / name / "seed0" / "metrics.jsonl" for name in methods]
    try:
        deadline = time.monotonic() + 600
        while min(map(last_round, logs)) < 3:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.terminate()
        printed, errors = process.communicate(timeout=600)
    finally:
        process.kill()
    assert process.returncode == -signal.SIGTERM
    assert printed == "start\n"
    assert "Traceback" not in errors
    for log in logs:
        saved = json.loads((log.parent / "checkpoints" / "manifest.json").read_text())
        # The signal may arrive after a round was logged and before it counts as complete.
        assert int(max(saved)[-6:]) >= last_round(log) - 1


def test_the_default_action_is_restored():
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        with checkpoints_on_sigterm():
            outer = signal.getsignal(signal.SIGTERM)
            assert outer is not signal.SIG_DFL
            with checkpoints_on_sigterm():
                assert signal.getsignal(signal.SIGTERM) is outer
            assert signal.getsignal(signal.SIGTERM) is outer
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("handler", [signal.SIG_IGN, lambda number, frame: None])
def test_a_handler_of_the_program_is_left_alone(handler):
    before = signal.signal(signal.SIGTERM, handler)
    try:
        with checkpoints_on_sigterm():
            assert signal.getsignal(signal.SIGTERM) is handler
        assert signal.getsignal(signal.SIGTERM) is handler
    finally:
        signal.signal(signal.SIGTERM, before)


def test_nothing_happens_in_another_thread():
    before, seen = signal.signal(signal.SIGTERM, signal.SIG_DFL), []

    def run():
        with checkpoints_on_sigterm():
            seen.append(signal.getsignal(signal.SIGTERM))

    try:
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert seen == [signal.SIG_DFL]
