"""What a server that asks for anything learns from private rounds besides their noisy models."""

import pytest
import torch
from private_method import DELTA, PrivateTask

from toys import small_federation
from unskew.engine import private_steps

pytest.importorskip("opacus")
hostile = pytest.importorskip("hostile")
grids = pytest.importorskip("grids")

OPTIONS = {"rounds": 1, "lr": 0.1, "batch_size": 8, "evaluate_every": 0}
ONE_RECORD = {"noise": 50.0, "settings": {"batch_size": 1, "steps": 1, "epochs": None, "seed": 7}}
"""A request that trains on one record, which the run's seed selects in a simulation."""


def first_exchange(folder, noise="secret", method=None):
    """The grid of an honest run, and the first node's exchange in it."""
    federation, method = small_federation((20, 20, 20, 20), holdout=0), method or PrivateTask()
    app = grids.client_app(
        grids.MODEL, federation, method, state=folder, noise=noise, budget=f"100/{DELTA}"
    )
    grid, exchanges = hostile.trained_exchanges(federation, method, folder, app=app, **OPTIONS)
    return grid, next(each for each in exchanges if each[0] == "0")


@pytest.mark.parametrize("noise", ["secret", "seeded"])
def test_a_server_that_chooses_the_seed_does_not_choose_the_records(tmp_path, monkeypatch, noise):
    grid, exchange = first_exchange(tmp_path, noise)
    # Without noise, a model shows which record it was trained on.
    monkeypatch.setattr(private_steps, "private_noise", lambda *args: torch.zeros(args[-1]))
    replies = [hostile.repeat(grid, exchange, run=f"r{n}", **ONE_RECORD) for n in range(40)]
    assert {hostile.reason_in(reply) for reply in replies} == {None}
    models = {reply["arrays"]["model"].numpy().tobytes() for reply in replies}
    if noise == "seeded":
        assert len(models) == 1
    else:
        assert len(models) > 10
