"""Run a peer in each of its layouts, each in a new process.

Peers read the numbers of threads, devices and workers when they are imported, so two layouts cannot
share a process. A layout that fails or takes too long is left out, with a message on stderr.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.workloads import TimeRounds, arguments, report

CHOSEN = "PEER_LAYOUT"
REQUESTED = "PEER_LAYOUTS"
"""Names a variable with the layouts to run, separated by semicolons; without it, all are run."""
LONGEST = 300.0
"""Seconds after which a layout counts as failed."""
PATIENCE = 15.0
"""Seconds that a layout has to exit after SIGTERM."""
CHECKOUT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Layout:
    """How a process of a peer is started."""

    environment: Mapping[str, str] = field(default_factory=dict)
    launcher: tuple[str, ...] = ()
    """Arguments between ``python`` and ``-m program``, such as ``-m torch.distributed.run``."""


def main(program: str, layouts: Mapping[str, Layout], time_rounds: TimeRounds) -> None:
    """Report the rounds of every layout, or run the one that the environment names."""
    work, rounds = arguments()
    if CHOSEN in os.environ:
        seconds = time_rounds(work, rounds)
        # Only the first of several workers of torchrun reports.
        if os.environ.get("RANK", "0") == "0":
            report(seconds)
        return
    # On SIGTERM, exit by an exception, so that the running layout is stopped too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    found: dict[str, Sequence[float]] = {}
    requested = os.environ[REQUESTED].split(";") if REQUESTED in os.environ else layouts
    for name in filter(layouts.__contains__, requested):
        found |= _run_layout(program, name, layouts[name])
    report(found)


def _run_layout(program: str, name: str, layout: Layout) -> dict[str, Sequence[float]]:
    command = [sys.executable, *layout.launcher, "-m", program, *sys.argv[1:]]
    paths = [str(CHECKOUT), str(CHECKOUT / "src"), os.environ.get("PYTHONPATH", "")]
    environment = {
        **os.environ,
        **layout.environment,
        CHOSEN: name,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
    }
    with subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            output, errors = process.communicate(timeout=LONGEST)
            seconds: dict[str, Sequence[float]] = json.loads(output.splitlines()[-1])
        except subprocess.TimeoutExpired:
            _fail(name, f"took longer than {LONGEST:.0f} s")
        except (IndexError, ValueError):
            _fail(name, f"no report; last line of stderr: {errors.strip().split(chr(10))[-1]}")
        else:
            return seconds
        finally:
            _end(process)
    return {}


def _end(process: "subprocess.Popen[str]") -> None:
    """Stop what is left of a layout: SIGTERM first, so that torchrun can stop its workers."""
    for signal_number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal_number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE)


def _fail(name: str, reason: str) -> None:
    print(f"{name} is left out: {reason}", file=sys.stderr)
