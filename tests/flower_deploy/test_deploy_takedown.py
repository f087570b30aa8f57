"""``unskew flower up`` leaves no process running, however it ends."""

import os
import signal
import subprocess

import pytest

pytest.importorskip("flwr")

from deployments import RUN_TIMEOUT, make_app, until

from terminal import PROGRAM
from unskew.flower.loopback.process_tree import alive, descendants, terminate

pytestmark = pytest.mark.long

UP = [*PROGRAM, "flower", "up"]


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_command_leaves_no_process(tmp_path, sign):
    app = make_app(tmp_path / "app", "fedavg")
    command = subprocess.Popen(
        [*UP, str(app), "--nodes", "2"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    logs = app / "runs" / "1" / "logs"
    nodes = [logs / "node-0.log", logs / "node-1.log"]
    until(lambda: all(log.is_file() and log.stat().st_size for log in nodes), "nodes start")
    processes = descendants(command.pid)
    assert len(processes) >= 5  # the command, a SuperLink and what it started, two nodes
    os.kill(command.pid, sign)
    try:
        _, errors = command.communicate(timeout=120)
    finally:
        left = alive(processes)
        terminate(left)
    assert left == []
    assert command.returncode == 130
    assert errors == "stopped; continue runs that have a folder with --resume\n"


def test_a_run_with_tls_passes_the_parity_check(tmp_path):
    app = make_app(tmp_path / "app", "ida")
    done = subprocess.run(
        [*UP, str(app), "--nodes", "2", "--tls", "--rounds", "1", "--check-parity"],
        capture_output=True, text=True, timeout=RUN_TIMEOUT, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "numbers are bit-identical to a single process" in done.stdout
    assert (app / "runs" / "1" / "logs" / "superlink.log").is_file()
