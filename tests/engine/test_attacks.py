"""Attackers are drawn from the seed, and carry out their attack."""

import numpy as np
import pytest
import torch

import unskew as us
from toys import small_federation
from unskew.engine.attacks import make_attack
from unskew.errors import UnskewError
from unskew.models.functional import FunctionalModel
from unskew.models.layout import flatten

OPTIONS = {"model": "logistic", "rounds": 2, "lr": 0.1, "batch_size": 8}


def test_attackers_are_seeded_and_as_many_as_requested():
    attack = make_attack("scale:clients=3")
    assert attack.attackers(10, seed=1) == attack.attackers(10, seed=1)
    assert len(attack.attackers(10, seed=1)) == 3
    assert len({attack.attackers(50, seed) for seed in range(5)}) > 1


def test_shuffled_labels_stay_with_their_client():
    federation = small_federation()
    attack = make_attack("labels:clients=2")
    attacked = attack.on_data(federation, seed=0)
    attackers = attack.attackers(len(federation), 0)
    for k in range(len(federation)):
        before, after = federation.train.client(k)[1], attacked.train.client(k)[1]
        assert np.array_equal(np.sort(before), np.sort(after))
        assert np.array_equal(before, after) == (k not in attackers)
    assert np.array_equal(attacked.test.y, federation.test.y)


@pytest.mark.parametrize("runner", ["vectorised", "processes"])
def test_a_scaled_upload_moves_the_mean_and_not_the_median(runner):
    federation = small_federation(sizes=(20, 20, 20, 20, 20))

    def final(method, **more):
        run = us.train(federation, method, runner=runner, workers=2, **OPTIONS, **more)
        return flatten(run.model, FunctionalModel(run.model).layout)

    attack = {"attack": "scale:clients=1,factor=-1000"}
    assert (final("mean", **attack) - final("mean")).abs().max() > 10
    assert (final("median", **attack) - final("median")).abs().max() < 1


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("scales", "did you mean 'scale'"),
        ("scale:clients=0", "clients must be greater than or equal to 1"),
        ("scale:clients=4", "clients must be fewer than all 4"),
        ("scale:factor=inf", "factor must be a finite number"),
    ],
)
def test_impossible_attacks_are_rejected(spec, message):
    with pytest.raises(UnskewError, match=message):
        us.train(small_federation(), "mean", attack=spec, **OPTIONS)


def test_frozen_parameters_of_a_module_stay_frozen():
    module = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.ReLU(), torch.nn.Linear(4, 3))
    module[0].weight.requires_grad_(False)
    for runner in ("vectorised", "loop"):
        run = us.train(small_federation(), runner=runner, **(OPTIONS | {"model": module}))
        torch.testing.assert_close(run.model[0].weight, module[0].weight)
        assert not torch.allclose(run.model[2].weight, module[2].weight)
