"""Worker processes end when their parent process ends, for whatever reason."""

import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest
import torch
from torch import nn

from unskew.data.federation import Federation
from unskew.engine.client import ClientContext
from unskew.engine.cohort import ClientTask
from unskew.engine.process_pool import ProcessPool
from unskew.engine.settings import Settings
from unskew.methods import Method
from unskew.models.functional import FunctionalModel

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


def pool_of_two() -> ProcessPool:
    federation = Federation.from_arrays([[0.0], [1.0]], [0, 1], [0, 1])
    network = FunctionalModel(nn.Linear(1, 2))
    return ProcessPool(
        ClientContext(Method(), network, federation, Settings(), torch.device("cpu")), 2, 2
    )


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def all_end(processes: list[int]) -> bool:
    deadline = time.monotonic() + 60
    while any(is_running(process) for process in processes) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not any(is_running(process) for process in processes)


def test_workers_of_a_killed_process_end():
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        pool = pool_of_two()
        os.write(write, json.dumps([worker._process.pid for worker in pool._workers]).encode())
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    workers = json.loads(os.read(read, 1000))
    assert len(workers) == 2
    assert all_end(workers)


def test_workers_leave_ctrl_c_to_their_parent_process():
    pool = pool_of_two()
    workers = [worker._process.pid for worker in pool._workers]
    model = {"model": torch.zeros(4)}
    pool.train(0, [ClientTask(k, model, {}) for k in range(2)])  # so that both have started
    for worker in workers:
        os.kill(worker, signal.SIGINT)
    time.sleep(0.1)
    assert all(is_running(worker) for worker in workers)
    pool.close()
    assert all_end(workers)
