"""Clients are described by their normalisation layers, for any network."""

import pytest
import torch
from torch import nn

from unskew.aggregation.norm_statistics import norm_statistics, project, standardise
from unskew.aggregation.uploads import Uploads
from unskew.errors import UnskewError
from unskew.models import make
from unskew.models.layout import Layout, flatten


def uploads_of(module, clients=3):
    layout = Layout.of(module)
    noise = torch.Generator().manual_seed(0)
    rows = flatten(module, layout).expand(clients, -1)
    return Uploads.of(rows + 0.1 * torch.rand(rows.shape, generator=noise), layout=layout)


def test_batchnorm_gives_mean_deviation_scale_and_shift():
    module = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Linear(2, 2))
    norm = module[1]
    norm.running_mean.copy_(torch.tensor([1.0, 2.0]))
    norm.running_var.copy_(torch.tensor([4.0, 9.0]))
    with torch.no_grad():
        norm.weight.copy_(torch.tensor([5.0, 6.0]))
        norm.bias.copy_(torch.tensor([7.0, 8.0]))
    layout = Layout.of(module)
    rows = norm_statistics(Uploads.of(flatten(module, layout)[None], layout=layout))
    assert rows.tolist() == [[5, 6, 7, 8, 1, 2, 2, 3]]  # parameters first; variances as deviations


@pytest.mark.parametrize(("norm", "columns"), [("batch", 4), ("group", 2), ("layer", 2)])
def test_every_norm_layer_of_a_resnet_is_used(norm, columns):
    with torch.device("meta"):
        module = make(f"resnet18:norm={norm}", (3, 32, 32), 10)
    module = module.to_empty(device="cpu")
    layout = Layout.of(module)
    stack = torch.zeros(2, layout.size)
    assert norm_statistics(Uploads.of(stack, layout=layout)).shape == (2, columns * 4800)


def test_networks_without_norms_are_described_by_the_moments_of_their_tensors():
    module = nn.Linear(2, 2)
    with torch.no_grad():
        module.weight.copy_(torch.tensor([[1.0, 2.0], [3.0, 6.0]]))
        module.bias.copy_(torch.tensor([1.0, 1.0]))
    layout = Layout.of(module)
    rows = norm_statistics(Uploads.of(flatten(module, layout)[None], layout=layout))
    assert rows.tolist() == [[3, 3.5**0.5, 1, 0]]


def test_empty_tensors_are_skipped_and_empty_models_rejected():
    half = nn.Linear(3, 2)
    half.register_parameter("nothing", nn.Parameter(torch.empty(0)))
    assert norm_statistics(uploads_of(half)).shape == (3, 4)
    with pytest.raises(UnskewError, match="no parameters"):
        norm_statistics(Uploads.of(torch.empty(3, 0)))


def test_columns_are_standardised_and_constant_columns_become_zero():
    rows = torch.tensor([[1.0, 5.0, 0.1], [3.0, 5.0, 0.1], [5.0, 5.0, 0.1 * (1 + 1e-8)]]).double()
    third = (3 / 2) ** 0.5
    expected = torch.tensor([[-third, 0, 0], [0, 0, 0], [third, 0, 0]]).double()
    torch.testing.assert_close(standardise(rows), expected)


@pytest.mark.parametrize("scale", [1e-38, 1.0, 1e38])
def test_scale_does_not_matter(scale):
    rows = torch.randn(5, 7, generator=torch.Generator().manual_seed(0)) * 0.1
    torch.testing.assert_close(
        standardise(rows * scale), standardise(rows), atol=1e-4, rtol=0, check_dtype=False
    )
    module = uploads_of(nn.Linear(4, 3))
    huge = norm_statistics(Uploads.of(module.stack * scale, layout=module.layout))
    assert bool(torch.isfinite(standardise(huge)).all())


def test_projection_keeps_distances_and_leaves_short_rows_alone():
    rows = torch.randn(6, 5000, generator=torch.Generator().manual_seed(0)).double()
    short = project(rows, 256, seed=0)
    assert short.shape == (6, 256)
    pairs = torch.triu_indices(6, 6, 1)

    def mean_square(x):
        return (x[pairs[0]] - x[pairs[1]]).square().mean(1)

    # The relative error of a squared distance has a deviation of sqrt(2/256) = 0.088.
    torch.testing.assert_close(mean_square(short), mean_square(rows), rtol=0.4, atol=0)
    assert torch.equal(short, project(rows, 256, seed=0))
    assert not torch.equal(short, project(rows, 256, seed=1))
    assert project(rows, 5000, seed=0) is rows


@pytest.mark.parametrize(("norm", "numbers"), [(nn.BatchNorm1d(8), 32), (nn.LayerNorm(8), 16)])
def test_normalisation_layers_in_the_head_describe_clients_too(norm, numbers):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Linear(4, 8)
            self.head = nn.Sequential(norm, nn.Linear(8, 2))

    layout = Layout.of(Net())
    stack = torch.rand(3, layout.size)
    assert norm_statistics(Uploads.of(stack, layout=layout)).shape == (3, numbers)
