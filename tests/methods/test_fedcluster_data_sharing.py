"""FedCluster selects the clients of a round, data sharing adds training samples."""

import numpy as np
import pytest
import torch

import unskew as us
from toys import small_federation, vector_of
from unskew.engine.cohort import draw_cohort
from unskew.engine.settings import Settings
from unskew.methods import make_method
from unskew.methods.data_sharing import DataSharing
from unskew.methods.fedcluster import FedCluster

OPTIONS = {"model": "mlp:hidden=8", "rounds": 4, "batch_size": 8, "lr": 0.1}
LOGISTIC = 5 * 3 + 3


def participants(run) -> list:
    return [table["client"] for table in run.client_tables if table["kind"] == "round"]


@pytest.mark.parametrize("special", ["fedcluster:groups=1", "data-sharing:beta=0"])
@pytest.mark.parametrize("cohort", [4, 2])
def test_special_cases_are_fedavg_bit_for_bit(federation, special, cohort):
    options = OPTIONS | {"cohort": cohort}
    first, second = (us.train(federation, method, **options) for method in (special, "fedavg"))
    assert torch.equal(vector_of(first), vector_of(second))
    assert first.cost == second.cost


@pytest.mark.parametrize("method", ["fedcluster:groups=2", "data-sharing:beta=0.2,alpha=0.5"])
def test_vectorised_equals_the_loop(federation, method):
    runs = [us.train(federation, method, runner=r, **OPTIONS) for r in ("loop", "vectorised")]
    torch.testing.assert_close(vector_of(runs[0]), vector_of(runs[1]), rtol=1e-5, atol=1e-5)


# FedCluster.


@pytest.mark.parametrize("order", ["shuffled", "fixed"])
def test_every_client_takes_part_once_per_cycle(order):
    method = make_method(FedCluster(groups=3, order=order))
    cycles = [[method.candidates(8, 3 * c + turn, 0) for turn in range(3)] for c in range(6)]
    for cycle in cycles:
        assert sorted(k for group in cycle for k in group) == list(range(8))
        assert sorted(map(len, cycle)) == [2, 3, 3]
        assert sorted(cycle) == sorted(cycles[0])  # the groups stay
    assert all(cycle == cycles[0] for cycle in cycles) == (order == "fixed")


def test_as_many_groups_as_clients_is_sequential_training(federation):
    """Each client alone, on the model of the client before: by hand with one client per run."""
    options = OPTIONS | {"rounds": 4, "model": "logistic"}
    run = us.train(federation, "fedcluster:groups=9,order=fixed", **options)
    assert sorted(participants(run)) == [[0], [1], [2], [3]]
    np.testing.assert_array_equal(np.nansum(run.weights, axis=1), np.ones(4))
    assert run.cost.parameters_up == 4 * LOGISTIC


def test_participation_is_within_the_group():
    settings = Settings(participation=0.5)
    drawn = draw_cohort(settings, 20, 0, among=[1, 5, 7, 11])
    assert len(drawn) == 2
    assert set(drawn) <= {1, 5, 7, 11}
    assert draw_cohort(Settings(cohort=9), 20, 0, among=[3, 4]) == [3, 4]


# Data sharing.


def test_shared_samples_follow_each_client_s_own_and_cover_all_classes():
    federation = small_federation(sizes=(60, 40, 20), holdout=0)
    shared, held = make_method(DataSharing(beta=0.1)).shared_samples(federation, 0)
    assert shared.train.sizes.tolist() == [60 + 12, 40 + 12, 20 + 12]
    extra = []
    for k in range(3):
        x, y = shared.train.client(k)
        own = federation.train.sizes[k]
        np.testing.assert_array_equal(x[:own], federation.train.client(k)[0])
        np.testing.assert_array_equal(y[:own], federation.train.client(k)[1])
        extra.append((x[own:], y[own:]))
        np.testing.assert_array_equal(extra[k][0], held["data-sharing/x"].numpy())
        np.testing.assert_array_equal(extra[k][1], held["data-sharing/y"].numpy())
    assert np.bincount(extra[0][1]).tolist() == [4, 4, 4]
    rows = {tuple(row) for row in federation.train.x.tolist()}
    assert all(tuple(row) in rows for row in extra[0][0].tolist())
    assert shared.common is federation.common


def test_a_part_of_the_shared_set_differs_between_clients():
    federation = small_federation(sizes=(60, 40, 20), holdout=0)
    method = make_method(DataSharing(beta=0.2, alpha=0.5))
    shared, _ = method.shared_samples(federation, 0)
    assert (shared.train.sizes - federation.train.sizes).tolist() == [12, 12, 12]
    parts = [shared.train.client(k)[0][-12:] for k in (0, 1)]
    assert not np.array_equal(*parts)


def test_shared_samples_are_sent_once_and_counted(federation):
    run = us.train(federation, "data-sharing:beta=0.25", model="logistic", rounds=3, cohort=2)
    number = round(0.25 * federation.train.samples)
    met = {k for clients in participants(run) for k in clients}
    assert len(met) > 2
    values = number * (5 + 1)
    assert run.cost.parameters_down == 3 * 2 * LOGISTIC + len(met) * values
    size = number * (5 * 4 + federation.train.y.itemsize)
    assert run.cost.bytes_down == 3 * 2 * LOGISTIC * 4 + len(met) * size
    assert run.cost.parameters_up == 3 * 2 * LOGISTIC


def test_sharing_helps_clients_of_one_class():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], 60)
    x = (rng.normal(size=(180, 4)) + 2 * np.eye(3, 4)[y]).astype(np.float32)
    common = (rng.normal(size=(180, 4)) + 2 * np.eye(3, 4)[y], y)
    federation = us.Federation.from_arrays(x, y, y, common=common)
    options = {"model": "logistic", "rounds": 5, "epochs": 5, "lr": 0.5, "cohort": 1}
    plain, shared = (
        us.train(federation, m, **options) for m in ("fedavg", "data-sharing:beta=0.2")
    )
    assert shared.accuracy > plain.accuracy + 0.1
