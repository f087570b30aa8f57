"""``unskew flower up`` leaves nothing behind, however it ends."""

import os
import signal
import subprocess

import pytest

pytest.importorskip("flwr")

from deployments import A_RUN, make_app, until

from terminal import PROGRAM
from unskew.flower.loopback.families import descendants, end, living

pytestmark = pytest.mark.long

UP = [*PROGRAM, "flower", "up"]


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_a_try_that_is_stopped_leaves_no_process(tmp_path, sign):
    app = make_app(tmp_path / "app", "fedavg")
    typed = subprocess.Popen(
        [*UP, str(app), "--nodes", "2"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    logs = app / "runs" / "1" / "logs"
    nodes = [logs / "node-0.log", logs / "node-1.log"]
    until(lambda: all(log.is_file() and log.stat().st_size for log in nodes), "nodes start")
    family = descendants(typed.pid)
    assert len(family) >= 5  # the command, a SuperLink and what it started, two nodes
    os.kill(typed.pid, sign)
    try:
        _, errors = typed.communicate(timeout=120)
    finally:
        left = living(family)
        end(left, typed.poll)
    assert left == []
    assert typed.returncode == 130
    assert errors == "stopped; what has a folder goes on with --resume\n"


def test_a_whole_try_with_tls_holds_parity(tmp_path):
    app = make_app(tmp_path / "app", "ida")
    done = subprocess.run(
        [*UP, str(app), "--nodes", "2", "--tls", "--rounds", "1", "--check-parity"],
        capture_output=True, text=True, timeout=A_RUN, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "numbers are the same to the bit" in done.stdout
    assert (app / "runs" / "1" / "logs" / "superlink.log").is_file()
