"""Runs that tests of reports share: made by hand, and trained on a small federation."""

import shutil
from functools import cache

import torch

import unskew as us
from toys import small_federation
from unskew.composition.values import SAMPLE_WEIGHTS
from unskew.runs.run import Run
from unskew.runs.runs import Runs
from unskew.runs.sample_weights import weights_table

NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
"""The browser of this machine, if any."""

FEDERATION = small_federation((40, 25, 20, 13, 10, 7))


def made_run(
    method="fedavg", seed=0, data="digits", accuracies=(0.3, 0.5), local=True, metric="accuracy"
):
    run = Run(method, "mlp", data, seed, 4)
    traffic = {"parameters_up": 1, "parameters_down": 1, "bytes_up": 4, "bytes_down": 4}
    for i, value in enumerate(accuracies, 1):
        row = {"stage": "task", "round": i, "train_loss": 1 / i, "traffic": traffic}
        if value is not None:
            row["global"] = {"loss": 1.0, metric: value}
        if local:
            loss = 1.0 + len(method) / 1e6  # no two methods are identical
            row["local"] = row["personal"] = {"loss": loss, metric: 0.4, "min": 0.2, "max": 0.6}
        run.metrics.append(row)
    return run


SAMPLES = {0: [0.5, 0.5, 0.5, 2.5], 3: [1.0, 1.0]}
"""The weights of two clients' samples."""


def clustered_run():
    """Two rounds of four clients with clusters, and two clients with sample weights."""
    run = made_run("ifca")
    for round_, clusters in ((1, [0, 1, 1]), (2, [1, 8, None])):
        table = {"kind": "round", "stage": "task", "round": round_, "client": [0, 2, 3]}
        run.client_tables.append(
            {**table, "weight": [0.5, 0.25, None], "diagnostics": {"cluster": clusters}}
        )
    run.sample_weights = weights_table(
        {k: {f"feddisk/{SAMPLE_WEIGHTS}": torch.tensor(values)} for k, values in SAMPLES.items()}
    )
    run.client_tables.append(
        {"kind": "local", "round": 2, "client": [0, 1], "accuracy": [0.2, 0.6]}
    )
    return run


RUNS = Runs([made_run(method, seed) for method in ("fedavg", "mean") for seed in (0, 1)])


@cache
def trained_runs() -> Runs:
    return us.compare(
        FEDERATION, "fedavg,mean", seeds=2, model="logistic", rounds=2, cohort=3, batch_size=8
    )
