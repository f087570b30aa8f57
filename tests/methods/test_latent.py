import numpy as np
import pytest
import torch
from torch import nn

import unskew as us
from toys import federation_of, small_federation
from unskew.densities.vae_codes import codes, distance_to_prior
from unskew.densities.wasserstein import distance_to_normal
from unskew.errors import UnskewError
from unskew.experiments.studies.synthesis import (
    ClassCodes,
    class_codes,
    classification_score,
    synthesise,
)
from unskew.methods import make_method
from unskew.models import make
from unskew.models.functional import FunctionalModel
from unskew.models.layout import flatten

SMALL = "encoder=8,vae_rounds=2"
TASK = {"model": "vae:hidden=8,beta=1", "rounds": 3, "optimizer": "adam", "lr": 1e-3}


@pytest.fixture
def federation():
    return small_federation(unit=True)


def vector_of(run):
    return nn.utils.parameters_to_vector(run.model.parameters())


def test_no_discrepancy_is_fedavg_bit_for_bit(federation):
    plain = us.train(federation, "fedavg", **TASK)
    latent = us.train(federation, "latent:alpha=0,b=0", **TASK)
    assert torch.equal(vector_of(plain), vector_of(latent))


def test_a_large_b_makes_weights_uniform(federation):
    run = us.train(federation, "latent:alpha=0.5,b=1e9", **TASK)
    weights = run.weights[-1]
    assert weights == pytest.approx([0.25] * 4, abs=1e-6)


def test_weights_follow_the_formula(federation):
    run = us.train(federation, "latent:alpha=0.5,b=0", **TASK)
    table = [t for t in run.client_tables if t["kind"] == "round" and t["stage"] == "task"][-1]
    d = np.array(table["diagnostics"]["discrepancies"])
    p = np.array(table["samples"]) / sum(table["samples"])
    raw = np.maximum(0, p - 0.5 * d / d.sum())
    assert table["weight"] == pytest.approx(raw / raw.sum(), abs=1e-6)
    stages = [row["stage"] for row in run.metrics]
    assert stages == ["vae"] * 3 + ["task"] * 3


def test_distances_are_measured_once_with_the_vae_of_the_stage(federation):
    run = us.train(federation, "latent", **TASK)
    tables = [t for t in run.client_tables if t["kind"] == "round" and t["stage"] == "task"]
    first, *later = (table["diagnostics"]["discrepancies"] for table in tables)
    assert all(each == first for each in later)


def test_the_vae_is_sent_once_and_a_distance_each_round(federation):
    run = us.train(federation, f"latent:{SMALL}", model="logistic", rounds=3)
    traffic = [row["traffic"] for row in run.metrics if row["stage"] == "task"]
    vae = FunctionalModel(make("vae:hidden=8", (5,), 3)).layout.size
    head = 5 * 3 + 3
    assert [t["parameters_down"] for t in traffic] == [4 * (head + vae), 4 * head, 4 * head]
    assert {t["parameters_up"] for t in traffic} == {4 * (head + 1)}


def test_repeated_measurements_use_the_current_model(federation):
    run = us.train(federation, "latent:every=2", **{**TASK, "rounds": 6})
    tables = [t for t in run.client_tables if t["kind"] == "round"]
    seen = [tuple(table["diagnostics"]["discrepancies"]) for table in tables]
    assert {row["stage"] for row in run.metrics} == {"task"}
    assert seen[0] == seen[1] == (0.0,) * 4  # no distance is known yet: FedAvg
    assert seen[2] == seen[3] != seen[0]
    assert seen[4] == seen[5] != seen[2]


def test_with_partial_participation_new_clients_measure_at_once(federation):
    """From the third round on all participants have a distance, whenever they first took part."""
    run = us.train(federation, "latent:every=2", **{**TASK, "rounds": 10, "cohort": 2})
    tables = [t for t in run.client_tables if t["kind"] == "round"]
    cohorts = [tuple(table["client"]) for table in tables]
    assert len(set(cohorts)) > 2
    known = [any(table["diagnostics"]["discrepancies"]) for table in tables]
    assert known == [False, False] + [True] * 8


def test_a_client_without_samples_has_no_distance():
    data = small_federation()
    clients = [data.train.client(k) for k in range(len(data))]
    nothing = np.empty((0, 5), np.float32), np.empty(0, np.int64)
    run = us.train(federation_of(*clients, nothing), f"latent:{SMALL}", model="logistic", rounds=2)
    assert run.metrics[-1]["rejected"] == {"4": "it has no samples to train on"}


def test_repeated_measurements_need_codes(federation):
    with pytest.raises(UnskewError, match="every measures"):
        us.train(federation, "latent:every=2", model="logistic", rounds=1)


def test_resumed_runs_are_the_same(federation, tmp_path):
    whole = us.train(federation, "latent", **TASK)
    us.train(federation, "latent", out=tmp_path, **{**TASK, "rounds": 3})
    again = us.train(federation, "latent", out=tmp_path, resume=True, **TASK)
    assert torch.equal(vector_of(whole), vector_of(again))


def test_codes_are_the_same_wherever_they_are_drawn():
    network = FunctionalModel(make("vae:hidden=8", (5,), 3))
    vector = flatten(network.module, network.layout)
    x = torch.rand(20, 5)
    first, again = (codes(network, vector, x, 3, 0, 2) for _ in range(2))
    assert torch.equal(first, again)
    assert first.shape == (40, 2)
    assert not torch.equal(first, codes(network, vector, x, 4, 0, 2))
    expected = distance_to_normal(first.numpy()).mean()
    assert distance_to_prior(network, vector, x, 3, 0, 2) == pytest.approx(float(expected))


def test_an_unused_dimension_is_near_the_prior():
    # An encoder of zeros: means 0 and deviations 1 whatever the sample.
    network = FunctionalModel(make("vae:hidden=8", (5,), 3))
    vector = torch.zeros(network.layout.size)
    assert distance_to_prior(network, vector, torch.rand(4000, 5), 0, 0) < 0.05


def test_class_codes_add_up_over_clients():
    vae = make("vae:hidden=8", (5,), 3)
    x, y = torch.rand(12, 5), torch.arange(12) % 3
    parts = class_codes(vae, x[:5], y[:5], 3) + class_codes(vae, x[5:], y[5:], 3)
    whole = class_codes(vae, x, y, 3)
    for one, other in zip(
        (parts.counts, parts.sums, parts.products),
        (whole.counts, whole.sums, whole.products),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


def test_synthetic_samples_follow_their_class():
    vae = make("vae:hidden=8,mean=0.5,sd=0.5", (5,), 2)
    mean = torch.tensor([[-3.0, 0.0], [3.0, 1.0]], dtype=torch.float64)
    eye = 0.01 * torch.eye(2, dtype=torch.float64)
    counts = torch.tensor([30.0, 10.0], dtype=torch.float64)
    products = counts[:, None, None] * (mean[:, :, None] * mean[:, None, :] + eye)
    x, y = synthesise(vae, ClassCodes(counts, counts[:, None] * mean, products), 2000)
    assert float(x.min()) >= 0
    assert float(x.max()) <= 1
    assert float((y == 0).double().mean()) == pytest.approx(0.75, abs=0.05)
    center = (vae.decode(mean.float()) * 0.5 + 0.5).clamp(0, 1)
    for k in (0, 1):
        assert torch.allclose(x[y == k].mean(0), center[k], atol=0.05)


def test_a_classifier_learns_from_synthetic_digits():
    digits = us.load("digits", clients=5, holdout=0)
    run = us.train(
        digits,
        model="vae:hidden=64,latent=8,beta=0.1",
        rounds=15,
        epochs=4,
        optimizer="adam",
        lr=3e-3,
        evaluate_every=0,
    )
    found = classification_score(digits, run.model, samples=2000, model="logistic", rounds=10)
    assert found > 0.6
    with pytest.raises(UnskewError, match="trained VAE"):
        classification_score(digits, make("logistic", (1, 8, 8), 10))


def test_a_client_far_from_the_prior_gets_less_weight():
    rng = np.random.default_rng(0)
    common, strange = rng.random((3, 60, 6)) * 0.3, 1 - rng.random((60, 6)) * 0.1
    clients = [(np.asarray(x, np.float32), [0, 1, 2] * 20) for x in (*common, strange)]
    data = federation_of(*clients)
    run = us.train(
        data, "latent:alpha=0.9", model="vae:hidden=16,beta=1", rounds=8, epochs=3,
        optimizer="adam", lr=3e-3,
    )  # fmt: skip
    weights = run.weights[-1]
    assert weights[3] < min(weights[:3])


def test_the_epochs_of_the_vae_are_those_of_its_stage():
    assert make_method("latent:vae_epochs=2").stages()[0].settings["epochs"] == 2
