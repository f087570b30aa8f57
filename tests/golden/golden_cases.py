"""What must not change by accident: each case computes plain values, which a file holds.

Numbers of trained models are compared to four digits, because kinds of CPU round differently; what
is counted or hashed is compared exactly.
"""

import hashlib
import json
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

import unskew as us
from every_method import SPECS, train_quickly
from hospitals import hospital_rows
from terminal import PROGRAM
from toys import small_federation
from unskew.errors import UnskewWarning
from unskew.partition.registry import PARTITIONERS

COMMAND = [
    *("compare", "--data", "digits", "--skew", "dirichlet:alpha=0.5", "--clients", "6"),
    *("--rounds", "4", "--epochs", "1", "--lr", "0.1", "--model", "mlp:hidden=8", "--json"),
]
SEVEN = (20, 13, 9, 14, 8, 11, 17)


def partitions() -> Any:
    """Return the clients' sizes and a hash of their samples for every partitioner."""
    found = {}
    for name in PARTITIONERS:
        if name == "natural":
            continue
        fed = us.load("digits", skew=name, clients=8, seed=1)
        labels = hashlib.sha256(fed.train.y.astype("<i8").tobytes()).hexdigest()[:16]
        found[name] = {"sizes": fed.train.sizes.tolist(), "labels": labels}
    return found


def table_transforms() -> Any:
    """Return the transformation of the hospitals' table for every way to prepare it."""
    found = {}
    for prepare in ("federated", "federated:scale=robust,min_cell=5", "pooled", "local"):
        fed = us.Federation.from_table(
            hospital_rows(200), label="outcome", client="hospital", prepare=prepare, seed=3
        )
        assert fed.preprocessing is not None
        found[prepare] = fed.preprocessing.to_json()
    return found


def tuned_comparison() -> Any:
    """Return what a tuned comparison prints for programs."""
    options = ["--methods", "fedavg,fedprox,ditto", "--seeds", "2", "--tune"]
    return _printed(*COMMAND, *options, "--tune-lr", "0.02,0.2", "--tune-budget", "12")


def decided_comparison() -> Any:
    """Return what a comparison prints that adds seeds until methods are decided."""
    options = ["--methods", "fedavg,mean,median", "--seeds", "2", "--decide", "--max-seeds", "4"]
    return _printed(*COMMAND, *options)


def keys_of_a_run() -> Any:
    """Return the keys of the files of a run."""
    with TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        us.train(small_federation(), "ida", rounds=2, out=out, progress=False)
        rows = (out / "metrics.jsonl").read_text().splitlines()
        return {
            "run.json": _keys(json.loads((out / "run.json").read_text())),
            "metrics.jsonl": [_keys(json.loads(row)) for row in rows],
        }


def worker_pool() -> Any:
    """Return the rounds of LeNet-5 on the worker pool."""
    digits = load_digits()
    x = np.kron(digits.images[:, None] / 16, np.ones((2, 2))).astype(np.float32)
    federation = us.Federation.from_arrays(x, digits.target, np.arange(len(x)) % 6, holdout=0.2)
    options = {"rounds": 2, "lr": 0.05, "batch_size": 64, "seed": 3, "progress": False}
    run = us.train(federation, model="lenet5", runner="processes", **options)
    return _rounds(run)


def every_method() -> Any:
    """Return the rounds of a vectorised network for every method."""
    federation, found = small_federation(SEVEN, unit=True), {}
    # 30 steps of FedFusion's VAE would magnify how a kind of CPU rounds.
    for spec in [*SPECS, "fedfusion:steps=1"]:
        if spec == "fedfusion":
            continue
        options = {"rounds": 2, "seed": 3, "runner": "vectorised", "progress": False}
        found[spec] = _rounds(train_quickly(federation, spec, **options))
    return found


def flower_round() -> Any:
    """Return a round on Flower nodes, in this process."""
    sys.path.append(str(Path(__file__).parents[1] / "flower"))
    import grids

    options = {"rounds": 1, "seed": 3, "lr": 0.1, "batch_size": 8, "evaluate_every": 1}
    return _rounds(grids.run_on_grid(small_federation(SEVEN), "scaffold", **options).run)


def feddisk_stages() -> Any:
    """Return the rounds of all stages of FedDisk."""
    spec = "feddisk:density_rounds=3,local_rounds=2,ratio_rounds=2,hidden=8,ratio_hidden=8"
    federation = us.load("digits", skew="noise:level=0.5", clients=4, seed=1)
    options = {"rounds": 2, "seed": 3, "model": "mlp:hidden=8", "progress": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnskewWarning)
        return _rounds(us.train(federation, spec, lr=0.1, **options))


CASES: dict[str, Callable[[], Any]] = {
    case.__name__: case
    for case in (
        *(partitions, table_transforms, tuned_comparison, decided_comparison, keys_of_a_run),
        *(worker_pool, every_method, flower_round, feddisk_stages),
    )
}


def _printed(*arguments: str) -> Any:
    done = subprocess.run([*PROGRAM, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return _without_times(json.loads(done.stdout))


def _without_times(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_times(each) for each in value]
    if isinstance(value, dict):
        return {k: _without_times(each) for k, each in value.items() if "seconds" not in k}
    return value


def _rounds(run: us.Run) -> Any:
    """Return of every round what does not depend on the clock, and the size of the model."""
    kept = ("stage", "round", "train_loss", "global", "local", "personal", "traffic", "rejected")
    rows = [{key: row[key] for key in kept if key in row} for row in run.metrics]
    tensors = run.model.state_dict().values()
    size = sum(float(tensor.double().abs().sum()) for tensor in tensors)
    return {"rounds": rows, "size": size}


def _keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _keys(value[key]) for key in sorted(value)}
    return type(value).__name__


def unlike(golden: Any, now: Any, where: str = "") -> list[str]:
    """Return the places at which two values differ, numbers in their first four digits."""
    if isinstance(golden, dict) and isinstance(now, dict):
        found = [f"{where}: has no {key}" for key in golden.keys() - now.keys()]
        found += [f"{where}: has a new {key}" for key in now.keys() - golden.keys()]
        shared = golden.keys() & now.keys()
        return found + [
            d for key in shared for d in unlike(golden[key], now[key], f"{where}/{key}")
        ]
    if isinstance(golden, list) and isinstance(now, list) and len(golden) == len(now):
        pairs = enumerate(zip(golden, now, strict=True))
        return [d for i, (a, b) in pairs for d in unlike(a, b, f"{where}/{i}")]
    if isinstance(golden, float) and isinstance(now, int | float):
        return [] if np.isclose(golden, now, rtol=1e-3, atol=1e-6) else [f"{where}: {golden} {now}"]
    return [] if golden == now else [f"{where}: {golden!r} {now!r}"]
