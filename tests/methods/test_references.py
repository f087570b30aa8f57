"""Local and central training: the lower and upper references for federated learning."""

import numpy as np
import pytest
import torch

import unskew as us
from toys import federation_of, small_federation, vector_of
from unskew.errors import UnskewError
from unskew.models import make
from unskew.models.functional import FunctionalModel
from unskew.models.layout import flatten

OPTIONS = {"model": "mlp:hidden=6", "rounds": 3, "batch_size": 8, "lr": 0.1}
RUNNERS = pytest.mark.parametrize("runner", ["loop", "vectorised"])


# Local.


@RUNNERS
def test_local_training_is_each_client_alone(federation, runner):
    run = us.train(federation, "local", runner=runner, **OPTIONS)
    personal = run.client_tables[-1]
    x, y = federation.train.client(0)
    one = federation_of((x, y), test=[federation.test.client(0)])
    alone = us.train(one, "fedavg", runner=runner, **OPTIONS)
    assert personal["loss"][0] == pytest.approx(alone.last("local", "loss"), rel=1e-5)


@RUNNERS
def test_local_training_sends_nothing_and_changes_no_global_model(federation, runner):
    run = us.train(federation, "local", runner=runner, **OPTIONS)
    assert run.cost.to_dict() == {
        "parameters_up": 0, "parameters_down": 0, "bytes_up": 0, "bytes_down": 0, "rounds": 3,
    }  # fmt: skip
    start = make("mlp:hidden=6", (5,), 3)
    assert torch.equal(vector_of(run), flatten(start, FunctionalModel(start).layout))


def test_a_client_s_model_does_not_depend_on_the_others(federation):
    clients = [federation.train.client(k) for k in range(3)]
    tests = [federation.test.client(k) for k in range(3)]
    losses = []
    for others in ([1, 2], [2, 1]):
        order = [0, *others]
        run = us.train(
            federation_of(*[clients[k] for k in order], test=[tests[k] for k in order]),
            "local", **OPTIONS,
        )  # fmt: skip
        losses.append(run.client_tables[-1]["loss"])
    assert losses[0][0] == pytest.approx(losses[1][0], rel=1e-5)


# Central.


@RUNNERS
def test_central_training_is_fedavg_of_one_client_bit_for_bit(federation, runner):
    pooled = federation_of((federation.train.x, federation.train.y))
    one = us.train(pooled, "fedavg", runner=runner, **OPTIONS)
    central = us.train(federation, "central", runner=runner, **OPTIONS)
    assert torch.equal(vector_of(one), vector_of(central))


def test_one_full_step_of_all_clients_is_a_central_step(federation):
    options = OPTIONS | {"batch_size": 1000, "epochs": 1}
    together = us.train(federation, "fedavg", **options)
    central = us.train(federation, "central", **options)
    torch.testing.assert_close(vector_of(together), vector_of(central), rtol=1e-5, atol=1e-6)


def test_central_training_sends_the_data_once(federation):
    """Five features of four bytes and a label of eight, for each of the samples."""
    run = us.train(federation, "central", participation=0.5, **OPTIONS)
    samples = federation.train.samples
    assert run.cost.parameters_up == samples * (5 + 1)
    assert run.cost.bytes_up == samples * (5 * 4 + federation.train.y.itemsize)
    assert run.cost.parameters_down == run.cost.bytes_down == 0
    assert [row["traffic"]["bytes_up"] > 0 for row in run.metrics] == [True, False, False]


def test_images_are_counted_in_their_stored_bytes():
    x = np.zeros((6, 1, 2, 2), np.uint8)
    federation = us.Federation.from_arrays(x, [0, 1, 0, 1, 0, 1], [0, 0, 0, 1, 1, 1])
    run = us.train(federation, "central", model="logistic", rounds=1)
    assert run.cost.bytes_up == 6 * (4 + federation.train.y.itemsize)


def test_clients_keep_their_test_samples(federation):
    run = us.train(federation, "central", **OPTIONS)
    (local,) = [t for t in run.client_tables if t["kind"] == "local" and t["round"] == 3]
    assert local["client"] == [0, 1, 2, 3]
    assert run.last("personal") == run.last("local")


def test_the_data_is_not_sent_again_after_a_resume(federation, tmp_path):
    whole = us.train(federation, "central", **OPTIONS)
    us.train(federation, "central", out=tmp_path, **OPTIONS | {"rounds": 1})
    resumed = us.train(federation, "central", out=tmp_path, resume=True, **OPTIONS)
    assert whole.cost == resumed.cost
    assert torch.equal(vector_of(whole), vector_of(resumed))


def test_a_quorum_of_two_is_impossible_for_one(federation):
    with pytest.raises(UnskewError, match="quorum must be at most the clients of a round, 1"):
        us.train(federation, "central", quorum=2, **OPTIONS)


def test_a_quorum_that_no_group_can_make_is_impossible(federation):
    method = f"fedcluster:groups={len(federation)}"
    with pytest.raises(UnskewError, match="quorum must be at most the clients of a round, 1"):
        us.train(federation, method, quorum=2, **OPTIONS)


def test_central_beats_fedavg_beats_nothing():
    """Labels are skewed to the extreme: each client has one class."""
    data = small_federation(sizes=(300,), holdout=0)
    x, y = data.train.client(0)
    federation = federation_of(*[(x[y == c], y[y == c]) for c in range(3)], common=(x, y))
    options = {"model": "mlp:hidden=16", "rounds": 5, "batch_size": 8, "epochs": 3, "lr": 0.1}
    central = us.train(federation, "central", **options)
    assert central.accuracy > us.train(federation, "fedavg", **options).accuracy
