import numpy as np
import pytest
import torch

from unskew.errors import UnskewError
from unskew.models.unit_interval import check_unit_interval


@pytest.mark.parametrize(
    "x",
    [
        np.array([0, 255], np.uint8),
        torch.tensor([0, 255], dtype=torch.uint8),
        np.array([0.0, 0.5, 1.0], np.float32),
        torch.tensor([0.0, 1.0], requires_grad=True),
        np.empty((0, 4), np.float32),
    ],
)
def test_features_from_0_to_1_and_bytes_are_accepted(x):
    check_unit_interval(x, "x")


@pytest.mark.parametrize("bad", [-1e-3, 1.001, np.inf, np.nan])
@pytest.mark.parametrize("kind", [np.float32, torch.tensor])
def test_the_error_names_the_features_and_the_range(bad, kind):
    x = kind([0.5, bad]) if kind is torch.tensor else np.array([0.5, bad], kind)
    with pytest.raises(UnskewError, match=r"train must lie between 0 and 1 .*scale") as caught:
        check_unit_interval(x, "train")
    assert "\n" not in str(caught.value)
