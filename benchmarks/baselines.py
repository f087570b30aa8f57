"""The implementations that need no peer installed: unskew, a plain loop, and a lower limit."""

import copy
import multiprocessing
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import unskew as us
from benchmarks.tutorial_networks import tutorial_network
from benchmarks.workloads import Workload
from unskew.models import make

CORES = multiprocessing.cpu_count()


def unskew_rounds(work: Workload, precision: str = "float32") -> list[float]:
    """Return the seconds of unskew's rounds, as the run records them."""
    x, y = work.data()
    owner = np.repeat(np.arange(work.clients), work.samples)
    federation = us.Federation.from_arrays(x, y, owner, classes=10)
    warm_up = min(5, work.rounds)  # steps of every shape are traced by then
    run = us.train(
        federation,
        "fedavg",
        model=work.model,
        rounds=work.rounds + warm_up,
        cohort=work.cohort,
        epochs=1,
        batch_size=work.batch,
        lr=work.lr,
        evaluate_every=0,
        precision=precision,
    )
    return [row["seconds"] for row in run.metrics[warm_up:]]


def plain_rounds(work: Workload, rounds: int) -> list[float]:
    """Time a loop as in most research code: deepcopy, DataLoader, averaging of state dicts."""
    x, y = (torch.from_numpy(array) for array in work.data())
    model = tutorial_network(work.model, work.shape)
    seconds = []
    for round_ in range(rounds + 1):
        started = time.perf_counter()
        cohort = np.random.default_rng(round_).choice(work.clients, work.cohort, replace=False)
        states = []
        for k in cohort:
            rows = slice(k * work.samples, (k + 1) * work.samples)
            local = copy.deepcopy(model)
            optimizer = torch.optim.SGD(local.parameters(), lr=work.lr)
            loader = DataLoader(TensorDataset(x[rows], y[rows]), work.batch, shuffle=True)
            for inputs, labels in loader:
                optimizer.zero_grad()
                F.cross_entropy(local(inputs), labels).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
            states.append(local.state_dict())
        model.load_state_dict(
            {key: sum(state[key] for state in states) / len(states) for key in states[0]}
        )
        seconds.append(time.perf_counter() - started)
    return seconds[1:]


class Limit:
    """The same steps in the tightest loop on every core: nothing is sent or averaged.

    One process per core with one thread each, samples stored in channels-last order, and gradients
    applied in place.
    """

    def __init__(self, work: Workload, precision: str = "float32") -> None:
        context = multiprocessing.get_context("fork")
        self._pipes: list[Connection[Any, Any]] = []
        self._processes = []
        for core in range(CORES):
            ours, theirs = context.Pipe()
            share = len(range(core, work.cohort, CORES))
            process = context.Process(
                target=_steps, args=(theirs, work, share, precision), daemon=True
            )
            process.start()
            self._pipes.append(ours)
            self._processes.append(process)
            ours.recv()

    def rounds(self, rounds: int) -> list[float]:
        """Return the seconds of each round."""
        return list(self._timed(rounds + 1))[1:]

    def close(self) -> None:
        """End the processes."""
        for pipe in self._pipes:
            pipe.send(False)
        for process in self._processes:
            process.join()

    def _timed(self, rounds: int) -> Iterator[float]:
        for _ in range(rounds):
            started = time.perf_counter()
            for pipe in self._pipes:
                pipe.send(True)
            for pipe in self._pipes:
                pipe.recv()
            yield time.perf_counter() - started


def _steps(pipe: "Connection[Any, Any]", work: Workload, clients: int, precision: str) -> None:
    torch.set_num_threads(1)
    model: nn.Module = make(work.model, work.shape, 10)
    x, y = (torch.from_numpy(array) for array in work.data())
    x, y = x[: clients * work.samples], y[: clients * work.samples]
    if x.ndim == 4:
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        x = torch.empty_like(x, memory_format=torch.channels_last).copy_(x)
    parameters = list(model.parameters())
    raw = [parameter.data for parameter in parameters]
    pipe.send("ready")
    while pipe.recv():
        for k in range(clients):
            order = torch.randperm(work.samples) + k * work.samples
            for start in range(0, work.samples, work.batch):
                rows = order[start : start + work.batch]
                with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
                    output = model(x[rows])
                loss = F.cross_entropy(output.float(), y[rows])
                gradients = torch.autograd.grad(loss, parameters)
                torch._foreach_add_(raw, gradients, alpha=-work.lr)
        pipe.send("done")
