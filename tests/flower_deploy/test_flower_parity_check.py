"""How the final weights of two runs are compared."""

import pytest
import torch

import unskew as us
from unskew.errors import UnskewError
from unskew.flower.loopback.apps import read_app_config
from unskew.flower.loopback.parity import check_parity, compare_tensors, final_tensors
from unskew.flower.scaffolding import write_app

ONE = {"/vector": torch.tensor([1.0, float("nan"), 3.0]), "/step": torch.tensor([4])}


def shifted(by: float) -> dict[str, torch.Tensor]:
    return {**ONE, "/vector": ONE["/vector"] + torch.tensor([0.0, 0.0, by])}


def test_identical_tensors_pass():
    found = compare_tensors(ONE, {name: tensor.clone() for name, tensor in ONE.items()})
    assert found.holds
    assert found.largest_difference == 0
    assert str(found) == "parity: all 4 numbers are bit-identical to a single process"


def test_a_rounding_difference_is_allowed_and_reported():
    found = compare_tensors(ONE, shifted(2.4e-7))
    assert found.holds
    assert 0 < found.largest_difference < 1e-6
    assert "(allowed: 1e-06)" in str(found)


@pytest.mark.parametrize(
    "other",
    [
        shifted(1e-3),
        shifted(float("inf")),
        shifted(float("nan")),
        {"/vector": ONE["/vector"]},
        {**ONE, "/step": torch.tensor([5])},
        {**ONE, "/vector": torch.ones(4)},
    ],
)
def test_different_tensors_fail(other):
    found = compare_tensors(ONE, other)
    assert not found.holds
    assert found.largest_difference > 0
    assert "NOT allowed" in str(found)


@pytest.mark.parametrize(("seed", "same"), [(0, True), (1, False)])
def test_a_run_is_repeated_with_the_apps_settings(tmp_path, seed, same):
    app = tmp_path / "app"
    write_app(app, method="scaffold", data="digits", model="mlp:hidden=4", clients=2, rounds=2)
    config = {**read_app_config(app), "train.rounds": 1}
    federation = us.load("digits", "iid", 2, 0)
    settings = {"rounds": 1, "epochs": 1, "lr": 0.1, "runner": "loop", "seed": seed}
    us.train(federation, "scaffold", model="mlp:hidden=4", out=tmp_path / "run", **settings)
    assert set(final_tensors(tmp_path / "run")) == {"/vector", "/scaffold/control"}
    assert check_parity(app, config, tmp_path / "run").holds is same


def test_a_run_without_a_checkpoint_is_rejected(tmp_path):
    with pytest.raises(UnskewError, match="it has no checkpoint to compare"):
        final_tensors(tmp_path)
