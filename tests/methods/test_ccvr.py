"""CCVR: training stays FedAvg's, pooled statistics are those of all samples, and heads improve."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import unskew as us
from marks import long_after
from toys import federation_of, vector_of
from unskew.composition.values import Client, Start
from unskew.methods.ccvr import CCVR, pooled
from unskew.models import make
from unskew.models.functional import FunctionalModel
from unskew.models.layout import flatten
from unskew.runs.read import read_run
from unskew.utils.threads import threads

OPTIONS = {"model": "mlp:hidden=6", "rounds": 3, "batch_size": 8, "lr": 0.1}


@pytest.mark.parametrize("runner", ["loop", "vectorised"])
def test_without_steps_it_is_the_model_of_the_round_before_bit_for_bit(federation, runner):
    """Clients measure the model they receive, so that is the one whose head is calibrated."""
    options = OPTIONS | {"runner": runner}
    plain = us.train(federation, "fedavg", **options | {"rounds": 2})
    assert torch.equal(vector_of(plain), vector_of(us.train(federation, "ccvr:steps=0", **options)))


def test_only_the_head_is_calibrated(federation):
    plain = us.train(federation, "fedavg", **OPTIONS | {"rounds": 2}).model.state_dict()
    calibrated = us.train(federation, "ccvr", **OPTIONS).model.state_dict()
    for name, tensor in plain.items():
        assert torch.equal(tensor, calibrated[name]) == (not name.startswith("head"))


@given(st.integers(0, 99), st.lists(st.integers(0, 6), min_size=2, max_size=4))
def test_pooled_statistics_are_those_of_all_samples(seed, sizes):
    rng = np.random.default_rng(seed)
    clients = [rng.normal(rng.normal(), 1, size=(n, 3)) for n in sizes]
    means = [c.mean(0) if len(c) else np.zeros(3) for c in clients]
    scatters = [(c - m).T @ (c - m) for c, m in zip(clients, means, strict=True)]
    counts = torch.tensor(sizes)[:, None].double()
    present, mean, covariance = pooled(
        counts, torch.tensor(np.stack(means))[:, None], torch.tensor(np.stack(scatters))[:, None]
    )
    everything = np.concatenate(clients)
    assert bool(present) == bool(len(everything))
    if len(everything) > 1:
        np.testing.assert_allclose(mean[0], everything.mean(0))
        np.testing.assert_allclose(covariance[0], np.cov(everything.T), atol=1e-9)


def client_of(x, y, classes=3):
    network = FunctionalModel(make("mlp:hidden=4", (5,), classes, seed=0))
    return Client(0, torch.as_tensor(x).float(), torch.as_tensor(y), network, classes)


def test_clients_send_the_statistics_of_the_received_model():
    rng = np.random.default_rng(0)
    client = client_of(rng.normal(size=(9, 5)), np.array([0, 0, 0, 0, 2, 2, 2, 2, 2]))
    vector = flatten(client.network.module, client.network.layout)
    sent = CCVR().finish(client, Start(vector, vector), None, {}).extras
    with torch.no_grad():
        features = client.network.module.body(client.x)
    for label, rows in ((0, features[:4]), (2, features[4:])):
        torch.testing.assert_close(sent["means"][label], rows.mean(0))
        torch.testing.assert_close(sent["scatters"][label], (len(rows) - 1) * torch.cov(rows.T))
    assert not bool(sent["means"][1].any())
    assert not bool(sent["scatters"][1].any())


def test_virtual_features_have_the_pooled_moments():
    present = torch.tensor([True, False])
    covariance = torch.tensor([[2.0, 1], [1, 3]]).double()
    means = torch.tensor([[5.0, -1], [9, 9]]).double()
    covariances = torch.stack([covariance, torch.zeros(2, 2).double()])
    features, y = CCVR(samples=20_000)._virtual(present, means, covariances, 0)
    assert features.shape == (20_000, 2)
    assert set(y.tolist()) == {0}
    torch.testing.assert_close(features.mean(0), means[0].float(), atol=0.05, rtol=0)
    torch.testing.assert_close(torch.cov(features.T), covariance.float(), atol=0.1, rtol=0)


def test_numbers_that_are_no_covariance_do_not_fail():
    means = torch.zeros(1, 2).double()
    covariances = torch.tensor([[[1.0, 5], [5, 1]]]).double()
    features, _ = CCVR()._virtual(torch.tensor([True]), means, covariances, 0)
    assert bool(torch.isfinite(features).all())


def skewed():
    """Two classes of images that differ in one feature; each client has nearly one class."""
    rng = np.random.default_rng(0)
    clients = []
    for k in range(4):
        y = (rng.random(40) < (0.95 if k % 2 else 0.05)).astype(int)
        clients.append((rng.normal(size=(40, 5)) + 1.5 * y[:, None], y))
    y = np.arange(400) % 2
    common = (rng.normal(size=(400, 5)) + 1.5 * y[:, None], y)
    return federation_of(*clients, common=common, classes=2)


def test_a_head_that_one_client_has_spoilt_is_calibrated():
    """One client per round pulls the head to its class; the calibrated head knows both."""
    options = {"model": "mlp:hidden=8", "rounds": 8, "lr": 0.5, "cohort": 2, "epochs": 4}
    plain, calibrated = (us.train(skewed(), m, **options) for m in ("fedavg", "ccvr"))
    assert calibrated.last("global") > plain.last("global") - 0.02
    assert calibrated.last("global", "loss") < plain.last("global", "loss")


def test_classes_that_no_client_has_keep_their_weights():
    rng = np.random.default_rng(0)
    federation = federation_of(*[(rng.normal(size=(8, 5)), np.arange(8) % 2) for _ in range(3)])
    options = OPTIONS | {"rounds": 1}
    plain = us.train(federation, "ccvr:steps=0", **options).model.head
    calibrated = us.train(federation, "ccvr", **options).model.head
    assert torch.equal(plain.weight[2], calibrated.weight[2])
    assert not torch.equal(plain.weight[:2], calibrated.weight[:2])


def test_the_head_is_trained_only_in_rounds_that_are_evaluated(federation, monkeypatch):
    calls = []
    train = CCVR._trained_head
    monkeypatch.setattr(CCVR, "_trained_head", lambda *args: calls.append(1) or train(*args))
    options = OPTIONS | {"rounds": 5}
    every = us.train(federation, "ccvr", **options)
    assert len(calls) == 5  # although the model is asked for on two levels, and at the end
    calls.clear()
    rare = us.train(federation, "ccvr", **options, evaluate_every=4)
    assert len(calls) == 2  # rounds 4 and 5
    calls.clear()
    never = us.train(federation, "ccvr", **options, evaluate_every=0)
    assert len(calls) == 1  # the model of the run
    assert torch.equal(vector_of(every), vector_of(rare))
    assert torch.equal(vector_of(every), vector_of(never))
    assert [row["global"] for row in every.metrics[3:]] == [r["global"] for r in rare.metrics[3:]]


def test_a_resumed_run_has_the_same_head(federation, tmp_path):
    """Its state holds the statistics and not the head, which is trained again, with any threads."""
    whole = us.train(federation, "ccvr", **OPTIONS, out=tmp_path / "whole")
    us.train(federation, "ccvr", **OPTIONS | {"rounds": 2}, out=tmp_path / "resumed")
    resumed = us.train(federation, "ccvr", **OPTIONS, out=tmp_path / "resumed", resume=True)
    with threads(torch.get_num_threads() + 1):
        finished = us.train(federation, "ccvr", **OPTIONS, out=tmp_path / "whole", resume=True)
    assert whole.metrics[-1]["global"] == resumed.metrics[-1]["global"]
    for run in (resumed, finished):
        assert torch.equal(vector_of(whole), vector_of(run))
    stored = read_run(tmp_path / "whole").predictor.module
    assert torch.equal(stored.head.weight, whole.model.head.weight)


@pytest.mark.parametrize("method", long_after(1, ["ccvr+fedprox+ida", "ccvr"]))
def test_runners_agree(federation, method):
    runs = [us.train(federation, method, runner=r, **OPTIONS) for r in ("loop", "vectorised")]
    torch.testing.assert_close(*map(vector_of, runs), rtol=1e-3, atol=1e-4)
