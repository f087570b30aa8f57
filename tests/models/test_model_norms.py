"""The choice of normalisation, which is the same in every network."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from unskew.models import MODELS, make
from unskew.models.norms import groups, image_norm, vector_norm
from unskew.utils import specs

NORMED = sorted(name for name, spec in MODELS.items() if hasattr(spec(), "norm"))
BATCH = nn.modules.batchnorm._BatchNorm


def structure_of(spec):
    """Return a network without weights, which is enough to see its layers."""
    with torch.device("meta"):
        return specs.build(MODELS, spec, "model").build((3, 32, 32), 10)


def norms(net):
    kinds = (BATCH, nn.GroupNorm, nn.LayerNorm)
    return [part for part in net.modules() if isinstance(part, kinds)]


@pytest.mark.parametrize(
    ("channels", "min_size", "expected"),
    [
        (64, 2, 32),
        (128, 2, 32),
        (16, 2, 8),
        (6, 2, 3),
        (24, 2, 12),
        (144, 2, 24),
        (7, 2, 1),
        (1, 2, 1),
        (200, 8, 25),
        (64, 8, 8),
        (8, 8, 1),
        (5, 8, 1),
    ],
)
def test_groups_by_hand(channels, min_size, expected):
    assert groups(channels, min_size) == expected


@given(st.integers(1, 2000), st.integers(1, 64))
def test_groups_are_the_largest_divisor_that_fits(channels, min_size):
    def fits(count):
        return channels % count == 0 and count <= 32 and channels // count >= min_size

    candidates = [count for count in range(1, channels + 1) if fits(count)]
    assert groups(channels, min_size) == max(candidates, default=1)


@pytest.mark.parametrize("norm", ["group", "layer", "none"])
@pytest.mark.parametrize("name", NORMED)
def test_other_norms_replace_all_batch_norms(name, norm):
    net = structure_of(f"{name}:norm={norm}")
    found = norms(net)
    assert not any(isinstance(part, BATCH) for part in found)
    assert bool(found) == (norm != "none")
    assert list(net.buffers()) == []


@pytest.mark.parametrize("name", NORMED)
def test_batch_norm_is_used_if_requested(name):
    found = norms(structure_of(f"{name}:norm=batch"))
    assert found
    assert all(isinstance(part, BATCH) for part in found)


@pytest.mark.parametrize("norm", ["group", "layer"])
@pytest.mark.parametrize("name", ["mlp", "lenet5", "feddisk-cnn", "resnet18", "mobilenetv2"])
def test_training_and_evaluation_agree_without_batch_norm(name, norm):
    net = make(f"{name}:norm={norm}", (1, 28, 28), 4)
    x = torch.randn(3, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert torch.equal(net.train()(x), net.eval()(x))


def test_training_and_evaluation_differ_with_batch_norm():
    net = make("feddisk-cnn", (1, 28, 28), 4)
    x = torch.randn(3, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert not torch.allclose(net.train()(x), net.eval()(x))


def test_layer_norm_normalises_the_whole_sample():
    image = torch.randn(2, 6, 3, 3, generator=torch.Generator().manual_seed(0))
    vector = torch.randn(2, 6, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        normed = image_norm("layer", 6)(image)[0], vector_norm("layer", 6)(vector)[0]
    for sample in normed:
        assert sample.mean() == pytest.approx(0, abs=1e-6)
        assert sample.var(correction=0) == pytest.approx(1, abs=1e-3)


def test_group_norm_of_a_vector_keeps_magnitudes():
    """Groups of two values could only become -1 and 1."""
    values = torch.tensor([[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]])
    assert vector_norm("group", 8)(values).unique().numel() == 8
