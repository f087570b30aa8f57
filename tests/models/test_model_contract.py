"""Properties of every classifier: shapes, body and head, gradients, seeds."""

import pytest
import torch
from torch import nn

from marks import long_but
from unskew.models import MODELS, make

TOKENS = 50
CLASSIFIERS = [name for name, spec in MODELS.items() if spec.aim == "classes"]
IMAGE = sorted(name for name, spec in MODELS.items() if spec.takes == "image")
NORMED = sorted(name for name, spec in MODELS.items() if hasattr(spec(), "norm"))
VARIED = [name for name in NORMED if name != "resnet34"]  # it is a deeper resnet18
DEEP = ("densenet121", "mobilenetv2", "resnet")


def deep_ones_are_long(specs):
    """Mark the networks that take long to build."""
    specs = list(specs)
    return long_but([spec for spec in specs if not spec.startswith(DEEP)], specs)


def samples(name, shape, rows=2, seed=0):
    generator = torch.Generator().manual_seed(seed)
    if MODELS[name.partition(":")[0]].takes == "text":
        return torch.randint(1, TOKENS, (rows, *shape), generator=generator)
    return torch.randn(rows, *shape, generator=generator)


def network(spec, shape, classes=5, **options):
    if spec.startswith("bilstm"):
        options["vocabulary"] = TOKENS
    return make(spec, shape, classes, **options)


def any_shape(name):
    return (12,) if MODELS[name].takes == "text" else (3, 32, 32)


CASES = [(name, (3, 32, 32)) for name in IMAGE]
CASES += [(name, (1, 28, 28)) for name in IMAGE if name != "vgg11"]
CASES += [(name, (1, 40, 33)) for name in ("lenet5", "feddisk-cnn", "vgg11", "resnet18")]
CASES += [("densenet121", (2, 8, 8)), ("mobilenetv2", (1, 8, 8)), ("resnet18", (1, 8, 8))]
CASES += [
    ("lenet5", (1, 12, 12)),
    ("feddisk-cnn", (1, 16, 16)),
    ("feddisk-cnn:padding=2", (1, 4, 4)),
]
CASES += [("feddisk-cnn:padding=1", (1, 10, 10))]
CASES += [(name, shape) for name in ("mlp", "logistic") for shape in ((7,), (1, 8, 8), (2, 3))]
CASES += [("bilstm", (9,)), ("bilstm:pooling=max", (1,))]


SHALLOW = [case for case in CASES if not case[0].startswith(DEEP)]


@pytest.mark.parametrize("case", long_but(SHALLOW, CASES))
def test_logits_are_the_head_of_the_features(case):
    spec, shape = case
    net = network(spec, shape).eval()
    x = samples(spec, shape)
    with torch.no_grad():
        features, logits = net.features(x), net(x)
        assert features.shape == (2, net.head.in_features)
        assert logits.shape == (2, 5)
        assert torch.equal(logits, net.head(features))
        assert torch.isfinite(logits).all()


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_head_is_the_last_linear_layer(name):
    vocabulary = TOKENS if MODELS[name].takes == "text" else None
    with torch.device("meta"):  # layers without weights
        net = MODELS[name]().build(any_shape(name), 5, vocabulary)
    linear = [part for part in net.modules() if isinstance(part, nn.Linear)]
    assert linear[-1] is net.head


NORM_VARIANTS = [f"{name}:norm={norm}" for name in VARIED for norm in ("group", "none")]


@pytest.mark.parametrize("spec", deep_ones_are_long([*CLASSIFIERS, *NORM_VARIANTS]))
def test_gradient_reaches_every_parameter(spec):
    shape = any_shape(spec.partition(":")[0])
    net = network(spec, shape, classes=3)
    rows = 4
    loss = nn.functional.cross_entropy(net(samples(spec, shape, rows)), torch.arange(rows) % 3)
    loss.backward()
    dead = [name for name, tensor in net.named_parameters() if not tensor.grad.any()]
    assert dead == []


@pytest.mark.parametrize(
    "spec", deep_ones_are_long(f"{n}:norm={k}" for n in NORMED for k in ("batch", "none"))
)
def test_the_logits_of_new_networks_neither_vanish_nor_explode(spec):
    shape = (3, 32, 32)
    with torch.no_grad():
        deviation = network(spec, shape)(samples(spec, shape, 4)).std()
    assert 0.02 < deviation < 3


@pytest.mark.parametrize("name", deep_ones_are_long(CLASSIFIERS))
def test_same_seed_same_bits(name):
    torch.manual_seed(1)
    first = network(name, any_shape(name), seed=3).state_dict()
    torch.manual_seed(2)
    again = network(name, any_shape(name), seed=3).state_dict()
    other = network(name, any_shape(name), seed=4).state_dict()
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert not torch.equal(first["head.weight"], other["head.weight"])


def test_the_global_generator_is_not_changed():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    make("mlp", (4,), 2, seed=9)
    assert torch.equal(torch.rand(3), expected)


def test_relu_after_the_pooling_equals_relu_before_it():
    net = make("lenet5", (1, 28, 28), 10)
    body, x = net.body, torch.randn(2, 1, 28, 28)
    pool = nn.functional.max_pool2d
    with torch.no_grad():
        hidden = pool(body.conv1(x).relu(), 2)
        hidden = pool(body.conv2(hidden).relu(), 2).flatten(1)
        expected = body.linear2(body.linear1(hidden).relu()).relu()
        assert torch.equal(net.features(x), expected)


def test_a_transition_that_pools_first_computes_the_same():
    net = make("densenet121:norm=none", (1, 8, 8), 2)
    part = net.body.transition1
    x = torch.randn(2, part.conv.in_channels, 7, 7)
    with torch.no_grad():
        textbook = part.pool(part.conv(x.relu()))
        torch.testing.assert_close(part(x), textbook)
