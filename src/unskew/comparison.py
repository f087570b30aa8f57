"""Comparing methods: the same data, network and seeds for each."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from unskew.data.federation import Federation
from unskew.engine.train import train
from unskew.errors import UnskewError
from unskew.methods.base import Method
from unskew.methods.table import make_method, name_of
from unskew.progress import watching_many
from unskew.runs.runs import Runs
from unskew.spelling import split_list

Federations = Federation | Callable[[int], Federation]


def compare(
    federation: Federations,
    methods: str | Sequence[str | Method],
    *,
    seeds: int | Sequence[int] = 3,
    model: str | nn.Module | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    progress: bool | None = None,
    **settings: Any,
) -> Runs:
    """Train every method with every seed and return the runs.

    ``federation`` is one federation for all seeds, or a function that deals one out by seed.
    ``methods`` is a list, or one text such as ``"fedavg,fedprox:mu=0.01"``. With ``out`` each run
    gets a folder ``METHOD/seedN`` below it. ``settings`` are those of :func:`unskew.train`.
    """
    if "seed" in settings:
        raise UnskewError("seed: a comparison has several; give seeds, a number or a list")
    chosen = [make_method(method) for method in _listed(methods)]
    names = [name_of(method) for method in chosen]
    if len(set(names)) != len(names):
        raise UnskewError(f"methods: each may stand once (got {', '.join(names)})")
    numbers = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
    if not numbers or len(set(numbers)) < len(numbers):
        raise UnskewError(f"seeds must be at least one, each once (got {seeds})")
    runs = []
    with watching_many(progress, len(numbers) * len(chosen)) as watcher:
        for seed in numbers:
            data = federation if isinstance(federation, Federation) else federation(seed)
            for method, name in zip(chosen, names, strict=True):
                run = train(
                    data,
                    method,
                    model=model,
                    out=None if out is None else run_folder(Path(out), name, seed),
                    resume=resume,
                    progress=watcher(f"{name}, seed {seed}"),
                    seed=seed,
                    **settings,
                )
                runs.append(run)
    return Runs(sorted(runs, key=lambda run: names.index(run.method)))


def run_folder(out: Path, method: str, seed: int) -> Path:
    """Return the folder of one run of a comparison."""
    return out / re.sub(r"[^A-Za-z0-9.=+_-]+", "-", method) / f"seed{seed}"


def _listed(methods: str | Sequence[str | Method]) -> Sequence[str | Method]:
    listed = split_list(methods) if isinstance(methods, str) else methods
    if not listed:
        raise UnskewError("methods: name at least one, for instance fedavg")
    return listed
