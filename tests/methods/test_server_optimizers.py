"""Server optimisers, with numbers to check by hand: one coordinate, directions 1 and then 2."""

import math

import pytest
import torch
from torch import nn

from unskew.aggregation import Uploads
from unskew.composition.values import Server
from unskew.methods import make_method
from unskew.models.layout import Layout


def stepped(spec, server, vector, layout=None) -> Server:
    """The server after a round in which one client sends a vector, which is its own mean."""
    uploads = Uploads.of(vector[None], layout=layout, previous=server.vector)
    return make_method(spec).aggregate(server, uploads)[0]


def steps(spec: str, *directions: float) -> list[float]:
    server = Server(torch.zeros(1))
    seen = []
    for direction in directions:
        server = stepped(spec, server, server.vector + direction)
        seen.append(float(server.vector))
    return seen


def test_momentum_by_hand():
    # velocity 1, then 0.5 * 1 + 2 = 2.5
    assert steps("fedavgm:server_momentum=0.5,server_lr=0.1", 1, 2) == pytest.approx([0.1, 0.35])


def test_without_momentum_and_with_server_lr_one_it_is_the_average():
    assert steps("fedavgm:server_momentum=0", 1, 2) == [1, 3]


def test_adam_by_hand():
    # v starts at tau^2 = 0.01; m = 0.1, v = 0.99 * 0.01 + 0.01 = 0.0199
    expected = 0.5 * 0.1 / (math.sqrt(0.0199) + 0.1)
    assert steps("fedadam:server_lr=0.5,tau=0.1", 1) == pytest.approx([expected])


def test_yogi_by_hand():
    # v = 0.01 - 0.01 * 1 * sign(0.01 - 1) = 0.02
    expected = 0.5 * 0.1 / (math.sqrt(0.02) + 0.1)
    assert steps("fedyogi:server_lr=0.5,tau=0.1", 1) == pytest.approx([expected])


def test_yogi_s_default_step_is_small():
    """The size of a step in each weight: 0.01 as in Flower, amid the best values of the paper."""
    (part,) = make_method("fedyogi").parts
    assert part.server_lr == 0.01
    # Where changes are steady, m approaches them and s their square, so a step is nearly server_lr.
    moved = steps("fedyogi", *[1.0] * 1000)
    assert moved[-1] - moved[-2] == pytest.approx(0.01, rel=0.01)


def test_adagrad_by_hand():
    # no first moment by default: m = 1, v = 0.01 + 1
    expected = 0.5 * 1 / (math.sqrt(1.01) + 0.1)
    assert steps("fedadagrad:server_lr=0.5,tau=0.1", 1) == pytest.approx([expected])


@pytest.mark.parametrize("name", ["fedavgm", "fedadam", "fedyogi", "fedadagrad"])
def test_no_direction_is_a_fixed_point(name):
    assert steps(name, 0, 0) == [0, 0]


@pytest.mark.parametrize("name", ["fedavgm", "fedadam", "fedyogi", "fedadagrad"])
def test_buffers_take_the_rounds_values(name):
    layout = Layout.of(nn.BatchNorm1d(2))
    before, mean = torch.zeros(layout.size), torch.ones(layout.size)
    after = stepped(name, Server(before), mean, layout).vector
    assert torch.equal(after[layout.trainable :], mean[layout.trainable :])
    assert not torch.equal(after[: layout.trainable], before[: layout.trainable])


@pytest.mark.parametrize("optimizer", ["fedavgm", "fedadam", "fedyogi", "fedadagrad"])
@pytest.mark.parametrize(
    "other",
    ["mean", "ida", "ida+fedavg", "ida+intrac", "feddisco", "fedfusion", "fedsa", "median", "rfa"],
)
def test_an_optimizer_steps_towards_the_result_of_any_weighting_or_rule(optimizer, other):
    noise = torch.Generator().manual_seed(1)
    uploads = Uploads.of(
        torch.randn(6, 5, generator=noise),
        samples=[1, 2, 3, 4, 5, 6],
        train_accuracy=[0.9, 0.8, 0.7, 0.6, 0.5, 0.4],
        label_counts=[[k, 7 - k] for k in range(1, 7)],
        previous=torch.randn(5, generator=noise),
    )
    server = Server(uploads.previous)
    made, _ = make_method(other).aggregate(server, uploads)
    alone = stepped(optimizer, server, made.vector)
    both, _ = make_method(f"{optimizer}+{other}").aggregate(server, uploads)
    torch.testing.assert_close(both.vector, alone.vector)
    assert not torch.equal(both.vector, made.vector) or optimizer == "fedavgm"
