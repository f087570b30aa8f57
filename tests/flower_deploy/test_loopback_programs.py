"""Programs in the background are stopped with all their descendants, whatever happens."""

import os
import signal
import sys
import time

import pytest

pytest.importorskip("psutil")

import psutil

from unskew.errors import UnskewError
from unskew.flower.loopback.environment import free_ports, is_listening, wait_until
from unskew.flower.loopback.process_tree import alive, descendants, terminate
from unskew.flower.loopback.programs import Programs

SLEEPER = "import time; print('asleep', flush=True); time.sleep(600)"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + SLEEPER
HEADLESS = (  # its first thread has ended, as happens briefly when a threaded program exits
    "import ctypes, threading, time\n"
    "threading.Thread(target=time.sleep, args=(600,)).start()\n"
    "print('asleep', flush=True)\n"
    "ctypes.CDLL(None).pthread_exit(None)"
)
PARENT = (
    "import subprocess, sys\n"
    "child = subprocess.Popen([sys.executable, '-c', {child!r}], start_new_session=True)\n"
    "child.wait()"
)


def is_alive(pid: int) -> bool:
    return bool(descendants(pid))


@pytest.fixture
def programs(tmp_path):
    with Programs(tmp_path / "logs", os.environ) as started:
        yield started


def start(programs, name: str, text: str):
    """Start a program and wait until it, or its child, prints that it sleeps."""
    program = programs.start(name, [sys.executable, "-c", text])
    assert wait_until(lambda: "asleep" in program.text(), 20)
    return program


def test_children_in_new_sessions_are_stopped(programs):
    program = start(programs, "parent", PARENT.format(child=SLEEPER))
    processes = descendants(program.pid)
    assert len(processes) == 2
    program.stop()
    assert alive(processes) == []
    assert programs.processes == []


def test_a_program_that_ignores_sigterm_is_killed(programs):
    program = start(programs, "stubborn", STUBBORN)
    began = time.monotonic()
    terminate(program.processes, grace=0.3)
    assert not is_alive(program.pid)
    assert 0.3 <= time.monotonic() - began < 5


@pytest.mark.skipif(
    sys.platform != "linux", reason="only on Linux do threads outlive the first one"
)
@pytest.mark.usefixtures("unmeasured")
def test_a_program_is_alive_until_its_last_thread_ends(programs):
    program = start(programs, "headless", HEADLESS)
    assert is_alive(program.pid)
    program.stop()
    assert program._process.returncode == -signal.SIGTERM  # recorded by stop


def test_a_zombie_that_its_parent_does_not_reap_is_not_alive(programs):
    child = "import subprocess, sys; child = subprocess.Popen([sys.executable, '-c', '']); "
    program = start(programs, "careless", child + SLEEPER)
    (zombie,) = psutil.Process(program.pid).children()
    assert wait_until(lambda: alive([zombie]) == [], 20)
    assert zombie.is_running()  # it is still in the process table
    assert [process.pid for process in program.processes] == [program.pid]


def test_a_second_interrupt_kills_at_once_and_is_raised(programs, monkeypatch):
    program = start(programs, "stubborn", STUBBORN)

    def interrupt(seconds: float) -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", interrupt)
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        programs.stop_all()
    assert time.monotonic() - began < 4
    assert program._process.returncode == -signal.SIGKILL
    assert programs.processes == []


def test_children_are_found_after_their_parent_was_killed(programs):
    program = start(programs, "parent", PARENT.format(child=SLEEPER))
    program.signal(signal.SIGKILL)
    assert wait_until(lambda: not program.is_running, 10)
    assert program.exit_code == -signal.SIGKILL
    assert len(programs.processes) == 1
    programs.stop_all()
    assert programs.processes == []


@pytest.mark.parametrize("reason", [KeyboardInterrupt, RuntimeError])
def test_an_error_leaves_no_process(tmp_path, reason):
    processes = []

    def fail() -> None:
        with Programs(tmp_path / "logs", os.environ) as programs:
            processes.extend(start(programs, "parent", PARENT.format(child=SLEEPER)).processes)
            raise reason

    with pytest.raises(reason):
        fail()
    assert len(processes) == 2
    assert alive(processes) == []


def test_a_process_that_reuses_an_id_is_not_touched(programs):
    program = start(programs, "sleeper", SLEEPER)
    earlier = psutil.Process(program.pid)
    earlier._ident = (program.pid, earlier.create_time() - 60)  # as if it had started earlier
    assert alive([earlier]) == []
    terminate([earlier], grace=0.1)
    assert program.is_running


def test_a_program_that_exits_is_reported_with_its_last_lines(programs):
    program = programs.start(
        "weak", [sys.executable, "-c", "print('no port'); raise SystemExit(3)"]
    )
    assert wait_until(lambda: not program.is_running, 20)
    with pytest.raises(
        UnskewError, match=r"weak exited with code 3; the end of .*weak\.log:"
    ) as raised:
        programs.check("weak")
    assert "    no port" in str(raised.value)


def test_a_stopped_program_can_be_restarted_and_its_log_continues(programs):
    first = start(programs, "sleeper", SLEEPER)
    with pytest.raises(UnskewError, match="sleeper is already running"):
        programs.start("sleeper", [sys.executable, "-c", SLEEPER])
    first.stop()
    second = programs.start("sleeper", [sys.executable, "-c", SLEEPER])
    assert wait_until(lambda: "asleep" in second.text(), 20)
    assert second.text().count("asleep") == 1  # without the output of the first one
    assert second.log.read_text().count("asleep") == 2
    assert programs["sleeper"] is second


def test_free_ports_differ_and_are_unused():
    ports = free_ports(5)
    assert len(set(ports)) == 5
    assert not any(map(is_listening, ports))


def test_waiting_is_bounded():
    began = time.monotonic()
    assert not wait_until(lambda: False, 0.2)
    assert 0.2 <= time.monotonic() - began < 5
