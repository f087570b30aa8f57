"""Networks with goals other than classification, and stages that end early."""

import numpy as np
import pytest
import torch
from torch import nn

import unskew as us
from toys import small_federation
from unskew.composition.values import Stage
from unskew.errors import UnskewError
from unskew.methods import make_method
from unskew.models.goals import Goal


class RandomTarget(Goal):
    """The squared distance of a linear map of the sample from a random number."""

    noise_per_sample = 2

    def losses(self, network, weights, buffers, batch):
        output = network(weights, buffers, batch.x)
        return (output[..., 0] - batch.noise.sum(-1)) ** 2

    def metrics(self, network, weights, buffers, batch):
        losses = self.losses(network, weights, buffers, batch)
        return {"loss": losses, "noise": batch.noise[..., 0]}


class Regressor(nn.Module):
    goal = RandomTarget()

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 1)

    def forward(self, x):
        return self.layer(x)


@pytest.fixture
def federation():
    return small_federation()


def run(federation, **settings):
    torch.manual_seed(0)
    return us.train(federation, model=Regressor(), rounds=3, batch_size=8, **settings)


def test_random_numbers_are_the_same_in_every_runner(federation):
    loop, processes, vectorised = (
        run(federation, runner=runner, workers=2) for runner in ("loop", "processes", "vectorised")
    )
    assert loop.metrics[-1]["train_loss"] == processes.metrics[-1]["train_loss"]
    assert vectorised.metrics[-1]["train_loss"] == pytest.approx(loop.metrics[-1]["train_loss"])
    for one, other in zip(loop.model.parameters(), vectorised.model.parameters(), strict=True):
        assert torch.allclose(one, other, atol=1e-6)


def test_a_network_without_accuracy_is_evaluated_by_its_loss(federation):
    finished = run(federation)
    assert np.isnan(finished.accuracy)
    assert finished.metric.name == "loss"
    assert "loss=" in repr(finished)
    last = finished.metrics[-1]
    assert set(last["global"]) == {"loss", "noise"}
    assert last["local"]["max"] >= last["local"]["loss"] >= last["local"]["min"]
    assert "%" not in str(finished.table())


def test_every_model_is_measured_with_the_same_random_numbers(federation):
    first, second = (run(federation, seed=seed).metrics[-1]["global"] for seed in (0, 1))
    assert first["noise"] == second["noise"]
    assert first["loss"] != second["loss"]


def test_a_comparison_by_loss_counts_the_cost_to_a_loss_that_all_reach(federation):
    torch.manual_seed(0)
    runs = us.compare(
        federation, "fedavg,mean", model=Regressor(), rounds=3, batch_size=8, seeds=[0]
    )
    target = runs.default_target()
    assert all(min(run.curve("global", "loss")[1]) <= target for run in runs)
    assert runs.table().columns[1] == "loss"
    assert all(summary.reached == 1 for summary in runs.summaries())


def test_methods_that_need_accuracies_reject_other_networks(federation):
    with pytest.raises(UnskewError, match="intrac needs accuracies"):
        us.train(federation, "intrac", model=Regressor(), rounds=1)


class StopsAtThree(us.ServerSide, us.Setup):
    def receive(self, server, uploads):
        return {"count": server.state.get("count", torch.zeros(())) + 1}

    def is_done(self, server):
        return float(server.state.get("count", 0)) >= 3


class Staged(us.Setup):
    def stages(self, stages):
        method, settings = make_method(StopsAtThree()), {"steps": 2, "cohort": 2}
        return (Stage("warm", method, rounds=50, settings=settings), *stages)


def test_a_stage_ends_when_its_method_is_done(federation, tmp_path):
    settings = {"model": "logistic", "rounds": 2, "epochs": 1, "participation": 1.0}
    finished = us.train(federation, Staged(), out=tmp_path / "a", **settings)
    assert [row["stage"] for row in finished.metrics] == ["warm"] * 3 + ["task"] * 2
    resumed = us.train(federation, Staged(), out=tmp_path / "a", resume=True, **settings)
    assert len(resumed.metrics) == 5


def test_a_stage_has_separate_settings_and_random_numbers(federation):
    finished = us.train(federation, Staged(), model="logistic", rounds=3, epochs=1)
    tables = {
        stage: [table for table in finished.client_tables if table.get("stage") == stage]
        for stage in ("warm", "task")
    }
    assert [table["steps"] for table in tables["warm"]] == [[2, 2]] * 3
    assert {len(table["client"]) for table in tables["task"]} == {4}
    other = us.train(federation, Staged(), model="logistic", rounds=3, steps=2, cohort=2)
    cohorts = {
        stage: [t["client"] for t in other.client_tables if t.get("stage") == stage]
        for stage in ("warm", "task")
    }
    assert cohorts["warm"] == [table["client"] for table in tables["warm"]]
    assert cohorts["warm"] != cohorts["task"]
