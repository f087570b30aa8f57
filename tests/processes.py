"""What tests need that start other processes."""

import socket
import time
from pathlib import Path

SRC = Path(__file__).parents[1] / "src"


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def wait_until(condition, what, seconds=120):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what} takes longer than {seconds} s"
        time.sleep(0.1)
