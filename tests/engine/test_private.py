"""Stages that keep a privacy budget, in every runner."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import unskew as us
from toys import federation_of, small_federation
from unskew.engine.private_steps import PrivateStage
from unskew.errors import UnskewError
from unskew.methods import Setup
from unskew.methods.feddisk.method import FedDisk
from unskew.privacy import Privacy

pytest.importorskip("opacus")


class PrivateTask(Setup):
    privacy = Privacy(epsilon=3, delta=1e-3)

    def stages(self, stages):
        return (*stages[:-1], replace(stages[-1], privacy=self.privacy))


@pytest.fixture
def federation():
    return small_federation(unit=True)


def vector_of(run):
    return torch.nn.utils.parameters_to_vector(run.model.parameters())


OPTIONS = {"model": "mlp:hidden=6", "rounds": 2, "batch_size": 8}


def test_every_runner_takes_the_same_private_steps(federation):
    loop, processes, vectorised = (
        us.train(federation, PrivateTask(), runner=runner, workers=2, **OPTIONS)
        for runner in ("loop", "processes", "vectorised")
    )
    assert torch.equal(vector_of(loop), vector_of(processes))
    assert torch.allclose(vector_of(loop), vector_of(vectorised), atol=1e-5)
    assert not torch.allclose(vector_of(loop), vector_of(us.train(federation, **OPTIONS)))


class WithoutAccounting(PrivateStage):
    """Does not account for the budget."""

    def spent(self, rounds):
        return {}


@pytest.mark.parametrize("runner", ["loop", "vectorised"])
def test_without_noise_and_clipping_private_steps_equal_plain_steps(monkeypatch, runner):
    # Full batches only: private steps divide by the batch size, plain ones by the samples.
    stage = WithoutAccounting(Privacy(1, 0.1, clip=1e6), "task", 0.0, (), 1)
    monkeypatch.setattr(PrivateStage, "of", lambda *_: stage)
    rng = np.random.default_rng(0)
    data = federation_of(*((rng.random((16, 5)), rng.integers(0, 3, 16)) for _ in range(3)))
    plain, private = (
        us.train(data, method, runner=runner, **OPTIONS) for method in ("fedavg", PrivateTask())
    )
    assert torch.allclose(vector_of(plain), vector_of(private), atol=1e-6)


def test_the_spent_epsilon_grows_up_to_the_budget(federation):
    run = us.train(federation, PrivateTask(), **OPTIONS)
    spent = [row["privacy"]["epsilon"] for row in run.metrics]
    assert 0 < spent[0] < spent[1] <= 3
    assert spent[1] > 2.9
    assert all(row["privacy"]["delta"] == 1e-3 for row in run.metrics)


def test_networks_that_mix_samples_are_rejected(federation):
    with pytest.raises(UnskewError, match="BatchNorm mixes"):
        us.train(federation, PrivateTask(), model="mlp:hidden=6,norm=batch", rounds=1)


@pytest.mark.filterwarnings("ignore::unskew.errors.UnskewWarning")
def test_only_the_density_that_is_sent_is_private(federation):
    quick = {"density_rounds": 2, "ratio_rounds": 1, "hidden": "4"}
    method = FedDisk(privacy={"epsilon": 2, "delta": 1e-3}, **quick)
    run = us.train(federation, method, model="logistic", rounds=1)
    by_stage = {row["stage"]: "privacy" in row for row in run.metrics}
    assert by_stage == {"density": True, "ratio": False, "task": False}
    last = [row for row in run.metrics if row["stage"] == "density"][-1]
    assert last["privacy"]["epsilon"] <= 2
    spec = "feddisk:privacy=2/1e-3,density_rounds=2,ratio_rounds=1,hidden=4"
    from_spec = us.train(federation, spec, model="logistic", rounds=1)
    assert torch.equal(vector_of(run), vector_of(from_spec))
