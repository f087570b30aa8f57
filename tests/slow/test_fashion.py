"""Studies that need real data and minutes: `unskew data fetch fashion`, then `pytest -m slow`."""

import pytest

import unskew as us

pytestmark = pytest.mark.slow


def test_fedavg_on_iid_fashion_reaches_central_training_within_a_point():
    """Ten iid clients against one that holds everything, the same passes over the data."""
    options = {"model": "lenet5", "rounds": 20, "epochs": 1, "lr": 0.1, "evaluate_every": 20}
    federated = us.train(us.load("fashion", "iid", clients=10, holdout=0), batch_size=32, **options)
    central = us.train(us.load("fashion", "iid", clients=1, holdout=0), batch_size=32, **options)
    assert federated.accuracy > central.accuracy - 0.01, (federated.accuracy, central.accuracy)
    assert central.accuracy > 0.88
