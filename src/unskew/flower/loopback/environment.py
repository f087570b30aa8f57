"""Where a federation on this machine lives: free ports, and what its programs find around them."""

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
    # Else each run begins with an installation of the app's dependencies, torch among them.
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "PYTHONUNBUFFERED": "1",
}


def environment() -> dict[str, str]:
    """Return this process's environment, made quiet, with this interpreter's programs first."""
    programs = str(Path(sys.executable).parent)
    path = os.pathsep.join([programs, os.environ.get("PATH", os.defpath)])
    return {**os.environ, **_QUIET, "PATH": path}


def program(name: str) -> str:
    """Return the path of one of Flower's programs, rather of this interpreter's installation."""
    found = shutil.which(name, path=environment()["PATH"])
    if found is None:
        raise UnskewError(f'{name}: there is no such program; pip install "unskew[flower]"')
    return found


def free_ports(count: int) -> list[int]:
    """Return so many ports that nobody listens on at the moment."""
    sockets = [socket.create_server((HOST, 0)) for _ in range(count)]
    try:
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def listens(port: int) -> bool:
    """Tell whether somebody answers on a port."""
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex((HOST, port)) == 0


def wait_until(is_so: Callable[[], bool], seconds: float, pause: float = 0.1) -> bool:
    """Wait until something is so, or the time is over; tell which."""
    until = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > until:
            return False
        time.sleep(pause)
    return True
