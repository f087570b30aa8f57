"""What needs real data and minutes: `unskew data fetch fashion`, then `pytest -m real_data`."""

import pytest

import unskew as us

pytestmark = pytest.mark.real_data


def test_fedavg_on_iid_fashion_reaches_central_training_within_a_point():
    """Ten iid clients, five local epochs per round, against twenty epochs on all data at once."""
    options = {"model": "lenet5", "lr": 0.1, "batch_size": 32, "evaluate_every": 4}
    ten = us.load("fashion", "iid", clients=10, holdout=0)
    federated = us.train(ten, rounds=12, epochs=5, **options)
    central = us.train(us.load("fashion", "iid", clients=1, holdout=0), rounds=20, **options)
    assert central.accuracy > 0.88
    assert federated.accuracy > central.accuracy - 0.01, (federated.accuracy, central.accuracy)
