"""Parameter counts, computed by hand or taken from the papers."""

from itertools import pairwise

import pytest

from unskew.models import make


def count(spec, shape, classes, **options):
    return sum(tensor.numel() for tensor in make(spec, shape, classes, **options).parameters())


def resnet(depths, norm_values=2):
    """Count the parameters of a ResNet for colour images and ten classes by its definition."""
    total, inputs = 3 * 64 * 9 + norm_values * 64, 64
    for stage, (width, depth) in enumerate(zip((64, 128, 256, 512), depths, strict=True)):
        for block in range(depth):
            total += inputs * width * 9 + width * width * 9 + 2 * norm_values * width
            if stage and not block:
                total += inputs * width + norm_values * width
            inputs = width
    return total + 512 * 10 + 10


SIMPLE = [
    ("logistic", (1, 8, 8), 10, 64 * 10 + 10),
    ("logistic", (30,), 2, 30 * 2 + 2),
    ("mlp", (1, 8, 8), 10, 64 * 200 + 200 + 200 * 10 + 10),
    ("mlp:hidden=200-200", (1, 28, 28), 10, 199_210),
    ("mlp:hidden=64-32", (5,), 3, (5 * 64 + 64) + (64 * 32 + 32) + (32 * 3 + 3)),
    ("mlp:hidden=8,norm=layer", (5,), 3, 5 * 8 + 2 * 8 + (8 * 3 + 3)),
    ("lenet5", (1, 28, 28), 10, 61_706),
    ("lenet5", (3, 32, 32), 10, 62_006),
    ("lenet5:norm=batch", (1, 28, 28), 10, 61_706 + 6 + 16),
]


@pytest.mark.parametrize(("spec", "shape", "classes", "expected"), SIMPLE)
def test_small_networks(spec, shape, classes, expected):
    assert count(spec, shape, classes) == expected


@pytest.mark.parametrize(
    ("spec", "shape", "classes", "expected"),
    [
        ("feddisk-cnn", (1, 28, 28), 10, 11_178),
        ("feddisk-cnn:channels=32", (1, 32, 32), 2, 39_442),
        ("feddisk-cnn:channels=128", (1, 28, 28), 62, 447_406),
        ("feddisk-cnn:channels=128", (1, 32, 32), 62, 465_838),
        # Padded by 2, both convolutions keep the size: 28 -> 14 -> 7.
        ("feddisk-cnn:padding=2", (1, 28, 28), 10, 416 + 6416 + 64 + (784 * 16 + 16) + 170),
        ("feddisk-cnn:norm=none,hidden=8", (1, 28, 28), 10, 416 + 6416 + (256 * 8 + 8) + 90),
    ],
)
def test_feddisk_table_ii(spec, shape, classes, expected):
    assert count(spec, shape, classes) == expected


def test_resnets():
    assert count("resnet18", (3, 32, 32), 10) == 11_173_962 == resnet((2, 2, 2, 2))
    assert count("resnet34", (3, 32, 32), 10) == 21_282_122 == resnet((3, 4, 6, 3))
    # Without normalisation each convolution has a bias instead of scale and shift.
    assert count("resnet18:norm=none", (3, 32, 32), 10) == resnet((2, 2, 2, 2), norm_values=1)


def test_group_norm_has_the_affine_shapes_of_batch_norm():
    assert count("resnet18:norm=group", (3, 32, 32), 10) == 11_173_962


def test_vgg11():
    widths = (3, 64, 128, 256, 256, 512, 512, 512, 512)
    convolutions = sum(9 * a * b + b for a, b in pairwise(widths))
    assert count("vgg11", (3, 32, 32), 10) == convolutions + 512 * 10 + 10 == 9_225_610


def test_densenet121():
    # The original has 7,978,856 with 1000 classes, a 7x7 stem and a norm after the stem.
    original = 7_978_856
    head = 1024 * 990 + 990
    stem = 3 * 64 * (49 - 9) + 2 * 64
    assert count("densenet121", (3, 32, 32), 10) == original - head - stem


def test_mobilenetv2():
    # The original has 3,504,872 with 1000 classes; only strides differ here.
    assert count("mobilenetv2", (3, 32, 32), 10) == 3_504_872 - (1280 * 990 + 990)


def test_bilstm():
    direction = 5 * 4 * 7 + 7 * 4 * 7 + 4 * 7
    expected = 11 * 5 + 2 * direction + (14 * 3 + 3)
    assert count("bilstm:embedding=5,hidden=7", (20,), 3, vocabulary=11) == expected
