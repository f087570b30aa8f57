"""The environment of a federation on this machine: variables, programs and free ports."""

import os
import shutil
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

from unskew.errors import UnskewError

HOST = "127.0.0.1"

_QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    # Without it, Flower installs the app's dependencies, including torch, at the start of each run.
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "PYTHONUNBUFFERED": "1",
}


def environment() -> dict[str, str]:
    """Return this process's environment with Flower made quiet and this interpreter first."""
    programs = str(Path(sys.executable).parent)
    path = os.pathsep.join([programs, os.environ.get("PATH", os.defpath)])
    return {**os.environ, **_QUIET, "PATH": path}


def program(name: str) -> str:
    """Return the path of a Flower program, preferring this interpreter's installation."""
    found = shutil.which(name, path=environment()["PATH"])
    if found is None:
        raise UnskewError(f'{name}: program not found; pip install "unskew[flower]"')
    return found


def free_ports(count: int) -> list[int]:
    """Return ``count`` ports that are free at the moment."""
    sockets = [socket.create_server((HOST, 0)) for _ in range(count)]
    try:
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def is_listening(port: int) -> bool:
    """Return whether a program accepts connections on a port."""
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex((HOST, port)) == 0


def wait_until(condition: Callable[[], bool], seconds: float, pause: float = 0.1) -> bool:
    """Wait until a condition holds; return False if it does not within ``seconds``."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
    return True
