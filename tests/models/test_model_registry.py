"""Spec strings, defaults, and errors for samples that a network cannot take."""

import subprocess
import sys

import pytest

from unskew.errors import UnskewError
from unskew.models import MODELS, default_for, make
from unskew.utils.specs import build, spec_of

NAMES = {
    "logistic": "any",
    "linear": "any",
    "mlp": "any",
    "lenet5": "image",
    "feddisk-cnn": "image",
    "vgg11": "image",
    "resnet18": "image",
    "resnet34": "image",
    "densenet121": "image",
    "mobilenetv2": "image",
    "bilstm": "text",
    "made": "any",
    "vae": "any",
}


def test_the_table_describes_every_network():
    assert {name: spec.takes for name, spec in MODELS.items()} == NAMES
    for spec in MODELS.values():
        assert spec.summary
        assert "\n" not in spec.summary


@pytest.mark.parametrize("text", ["mlp:hidden=64-32,norm=none", "resnet18:norm=none", "mlp"])
def test_spec_strings_round_trip(text):
    spec = build(MODELS, text, "model")
    again = build(MODELS, spec_of(spec, text.partition(":")[0]), "model")
    assert again == spec


def test_none_is_a_norm():
    assert build(MODELS, "resnet18:norm=none", "model").norm == "none"


def test_a_single_width_may_be_a_number():
    assert MODELS["mlp"](hidden=64) == MODELS["mlp"](hidden="64")


@pytest.mark.parametrize(
    ("spec", "shape", "vocabulary", "message"),
    [
        ("resnet81", (3, 32, 32), None, "did you mean 'resnet18'"),
        ("resnet18", (30,), None, "takes images .* use mlp or logistic"),
        ("vgg11", (1, 28, 28), None, "at least 32x32 and the samples are 28x28; use lenet5"),
        ("lenet5", (1, 8, 8), None, "at least 12x12 and the samples are 8x8; use mlp"),
        ("feddisk-cnn", (1, 28, 15), None, "at least 16x16 and the samples are 28x15"),
        ("feddisk-cnn:padding=1", (1, 9, 9), None, "at least 10x10"),
        ("densenet121", (3, 7, 32), None, "at least 8x8"),
        ("bilstm", (20,), None, "takes text .* and the samples are numbers"),
        ("mlp", (20,), 100, "takes numbers and the samples are text; use bilstm"),
        ("made", (20,), 100, "takes numbers and the samples are text; there is no density of"),
        ("made:order=up", (4,), None, "order must be 'natural' or 'random'"),
        ("vae", (20,), 100, "the samples are text; there is no reconstruction of tokens"),
        ("vae:sd=0", (4,), None, "sd must be greater than 0"),
        ("vae:beta=inf", (4,), None, "beta must be a finite number"),
        ("vae:latent=0", (4,), None, "latent must be greater than or equal to 1"),
        ("resnet18:norm=instance", (3, 32, 32), None, "norm must be 'batch', 'group'"),
        ("mlp:hidden=64-", (5,), None, "hidden must be the widths .* 64-32"),
        ("mlp:hidden=0", (5,), None, "hidden must be the widths"),
        ("feddisk-cnn:padding=3", (1, 28, 28), None, "padding must be less than or equal to 2"),
        ("bilstm:pooling=last", (20,), 100, "pooling must be 'mean' or 'max'"),
    ],
)
def test_errors_are_one_line(spec, shape, vocabulary, message):
    with pytest.raises(UnskewError, match=message) as caught:
        make(spec, shape, 10, vocabulary=vocabulary)
    assert "\n" not in str(caught.value)


def test_only_made_and_vae_are_not_classifiers():
    aims = {name: spec.aim for name, spec in MODELS.items() if spec.aim != "classes"}
    assert aims == {"made": "density", "vae": "reconstruction"}


def test_a_network_needs_at_least_one_class():
    with pytest.raises(UnskewError, match="classes must be at least 1"):
        make("mlp", (5,), 0)


def test_a_network_for_text_needs_a_vocabulary():
    with pytest.raises(UnskewError, match="vocabulary"):
        MODELS["bilstm"]().build((20,), 2)


@pytest.mark.parametrize(
    ("shape", "classes", "vocabulary", "expected"),
    [
        ((1, 8, 8), 10, None, "mlp"),
        ((30,), 2, None, "mlp"),
        ((1, 28, 28), 10, None, "lenet5"),
        ((1, 28, 28), 62, None, "lenet5"),
        ((3, 32, 32), 10, None, "lenet5"),
        ((3, 32, 32), 100, None, "resnet18"),
        ((1, 128, 128), 2, None, "resnet18"),
        ((25,), 2, 5000, "bilstm"),
    ],
)
def test_defaults_can_be_built(shape, classes, vocabulary, expected):
    assert default_for(shape, classes, vocabulary) == expected
    assert make(expected, shape, classes, vocabulary=vocabulary).head.out_features == classes


def test_importing_the_package_does_not_import_torch():
    code = "import sys, unskew.models; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_unknown_names_raise_attribute_errors():
    import unskew.models

    assert set(dir(unskew.models)) == {"MODELS", "default_for", "make"}
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        unskew.models.nothing  # noqa: B018
