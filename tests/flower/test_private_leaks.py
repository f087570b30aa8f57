"""What a server that asks for anything learns from private rounds besides their noisy models."""

import pytest
import torch
from private_method import DELTA, PrivateTask

import unskew as us
from toys import small_federation
from unskew.composition.parts import ClientSide
from unskew.composition.values import Finished
from unskew.engine import private_steps
from unskew.errors import UnskewError
from unskew.methods.feddisk.method import FedDisk
from unskew.privacy import Privacy

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


def test_what_leaves_beside_the_model_is_the_same_for_other_records(tmp_path):
    grid, exchange = first_exchange(tmp_path)
    sent = []
    for n in range(20):  # the batch, a single record, is another one each time
        content = hostile.repeat(grid, exchange, run=f"r{n}", **ONE_RECORD)
        assert list(content["arrays"]) == ["model"]
        sent.append(str(dict(content["metrics"])))
    assert len(set(sent)) == 1
    assert "'loss': nan" in sent[0]
    assert "accuracy" not in sent[0]


@pytest.mark.parametrize("runner", ["loop", "vectorised"])
def test_a_simulation_records_no_training_loss_of_private_stages(runner):
    run = us.train(
        small_federation(unit=True), PrivateTask(), model="logistic", runner=runner, **OPTIONS
    )
    assert [row["train_loss"] for row in run.metrics] == [None]
    assert {loss for table in run.client_tables for loss in table.get("train_loss", [])} == {None}


class SendsMean(ClientSide, PrivateTask):
    """Sends what no method declares."""

    def finish(self, client, start, trained, state):
        return Finished({"mean": client.x.mean(0)})


@pytest.mark.parametrize("runner", ["loop", "vectorised"])
def test_a_private_stage_sends_nothing_but_the_model(runner):
    federation = small_federation(unit=True)
    options = {"model": "logistic", "runner": runner, **OPTIONS}
    with pytest.raises(UnskewError, match=r"privacy: '[^']*mean' would be sent besides the model"):
        us.train(federation, SendsMean(), **options)


@pytest.mark.parametrize("method", ["intrac", "qffl", "feddisco", "fedrep", "scaffold"])
def test_methods_that_send_more_or_train_twice_cannot_be_private(method):
    with pytest.raises(UnskewError, match=r"privacy: .*; remove the method or the privacy budget"):
        us.train(small_federation(unit=True), PrivateTask() + method, model="mlp", **OPTIONS)


def test_a_private_density_sends_no_validation_loss():
    quick = {"density_rounds": 8, "ratio_rounds": 1, "hidden": "4"}
    options = {"model": "logistic", **OPTIONS}
    federation = small_federation(unit=True)
    private = us.train(federation, FedDisk(privacy=Privacy(2, 1e-3), **quick), **options)
    density = [row for row in private.metrics if row["stage"] == "density"]
    assert len(density) == 8
    assert {row["diagnostics"]["validation_loss"] for row in density} == {None}
    plain = us.train(federation, FedDisk(validation=0.15, **quick), **options)
    sent = [run.metrics[0]["traffic"]["parameters_up"] for run in (private, plain)]
    assert sent[1] - sent[0] == 2 * len(federation)
