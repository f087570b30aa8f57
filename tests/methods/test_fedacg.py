"""FedACG: FedAvg and FedProx as special cases, and two rounds by hand."""

import pytest
import torch

import unskew as us
from toys import vector_of
from unskew.aggregation.uploads import Uploads
from unskew.composition.values import Server
from unskew.methods import make_method
from unskew.methods.fedacg import FedACG

OPTIONS = {"model": "mlp:hidden=6", "rounds": 3, "batch_size": 8, "lr": 0.1}


@pytest.mark.parametrize("runner", ["loop", "vectorised"])
@pytest.mark.parametrize(
    ("special", "plain"),
    [
        ("fedacg:mu=0,server_momentum=0", "fedavg"),
        ("fedacg:mu=1,server_momentum=0", "fedprox:mu=1"),
    ],
)
def test_special_cases_bit_for_bit(federation, runner, special, plain):
    options = OPTIONS | {"runner": runner}
    assert torch.equal(*(vector_of(us.train(federation, m, **options)) for m in (special, plain)))


def round_of(method, server, updates):
    """Aggregate clients that start at the model that was sent."""
    uploads = Uploads.of(server.vector + torch.tensor(updates), previous=server.vector)
    return method.aggregate(server, uploads)[0]


def test_two_rounds_by_hand():
    """w = 0, m = 0. First mean update (2, 0): w = m = (2, 0), and (2, 0) + m/2 = (3, 0) is sent.

    Second mean update (0, 4): w = (3, 4), m = (1, 0) + (0, 4), and (3, 4) + (0.5, 2) is sent. The
    momentum is always the change of w: (3, 4) - (2, 0) = (1, 4).
    """
    method, server = make_method(FedACG(server_momentum=0.5)), Server(torch.zeros(2))
    assert method.model(server) is server.vector
    server = round_of(method, server, [[1.0, 0], [3, 0]])
    assert server.vector.tolist() == [3, 0]
    assert method.model(server).tolist() == [2, 0]
    server = round_of(method, server, [[0.0, 4], [0, 4]])
    assert method.model(server).tolist() == [3, 4]
    assert server.state["fedacg/momentum"].tolist() == [1, 4]
    assert server.vector.tolist() == [3.5, 6]


def test_the_momentum_is_the_change_of_the_mean(federation):
    """As in the authors' code, where it is the decayed sum of mean updates from what was sent."""
    torch.manual_seed(0)
    method, server = make_method("fedacg"), Server(torch.randn(5))
    means = [server.vector]
    for _ in range(4):
        server = round_of(method, server, torch.randn(3, 5).tolist())
        means.append(method.model(server))
        torch.testing.assert_close(server.state["fedacg/momentum"], means[-1] - means[-2])
        torch.testing.assert_close(server.vector, means[-1] + 0.85 * (means[-1] - means[-2]))


def test_statistics_are_sent_as_they_are(federation):
    options = OPTIONS | {"model": "mlp:hidden=6,norm=batch", "rounds": 2}
    model = us.train(federation, "fedacg", **options).model
    assert all(bool((norm.running_var > 0).all()) for norm in _norms(model))


def _norms(model):
    return [part for part in model.modules() if isinstance(part, torch.nn.BatchNorm1d)]
