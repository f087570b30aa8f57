"""FedExP: FedAvg for a large eps, the factor by hand, and what is evaluated."""

import pytest
import torch

import unskew as us
from toys import vector_of
from unskew.aggregation.uploads import Uploads
from unskew.composition.values import Finished, Server
from unskew.errors import UnskewWarning
from unskew.methods import make_method
from unskew.methods.fedexp import FedExP

OPTIONS = {"model": "mlp:hidden=6", "rounds": 3, "batch_size": 8, "lr": 0.1}


@pytest.mark.parametrize("runner", ["loop", "vectorised"])
def test_with_a_large_eps_it_is_fedavg_bit_for_bit(federation, runner):
    options, spec = OPTIONS | {"runner": runner}, "fedexp:eps=1e9,evaluate=last"
    assert torch.equal(*(vector_of(us.train(federation, m, **options)) for m in ("fedavg", spec)))


def aggregated(updates, samples, server=None, **options):
    updates = torch.tensor(updates)
    server = server or Server(torch.zeros(updates.shape[1]))
    squares = list(updates.square().sum(1))
    uploads = Uploads.of(
        server.vector + updates, samples, previous=server.vector, extras={"fedexp/square": squares}
    )
    return make_method(FedExP(**options)).aggregate(server, uploads)


def test_the_factor_by_hand():
    """Updates (4, 0) and (0, 4) have the mean (2, 2): (16 + 16) / 2 / (2 * (8 + 0)) = 1.

    With samples 3 and 1 the mean is (3, 1): 16 / (2 * 10) is below 1.
    """
    after, diagnostics = aggregated([[4.0, 0], [0, 4]], [1, 1], eps=0)
    assert float(diagnostics["extrapolation"]) == 1
    assert after.vector.tolist() == [2, 2]
    assert float(aggregated([[4.0, 0], [0, 4]], [3, 1], eps=0)[1]["extrapolation"]) == 1


def test_opposed_updates_are_extrapolated():
    """Updates (3, 1) and (-1, 1) have the mean (1, 1): (10 + 2) / 2 / (2 * (2 + 0.5)) = 1.2."""
    after, diagnostics = aggregated([[3.0, 1], [-1, 1]], [1, 1], eps=0.5)
    assert float(diagnostics["extrapolation"]) == pytest.approx(1.2)
    assert after.vector.tolist() == pytest.approx([1.2, 1.2])


def test_updates_that_cancel_do_not_divide_by_zero():
    after, diagnostics = aggregated([[1.0, 0], [-1, 0]], [1, 1], eps=0)
    assert float(diagnostics["extrapolation"]) == 1
    assert after.vector.tolist() == [0, 0]


class Claiming(FedExP):
    """The last client claims a longer update than it sends."""

    def finish(self, client, start, trained, state):
        sent = super().finish(client, start, trained, state)
        longer = 1.01 if client.id == 3 else 1.0
        return Finished({"square": sent.extras["square"] * longer})


def test_a_client_that_claims_a_longer_update_than_it_sent_is_rejected(federation):
    options = {"model": "mlp:hidden=8", "rounds": 2, "lr": 0.1, "progress": False}
    with pytest.warns(UnskewWarning, match="continued without client 3"):
        run = us.train(federation, Claiming(), **options)
    assert all("and its squared movement is" in row["rejected"]["3"] for row in run.metrics)
    for spec in ("fedexp", "fedbn+fedexp", "ifca:models=2+fedexp"):
        honest = us.train(federation, spec, **options)
        assert not any("rejected" in row for row in honest.metrics)


def test_the_last_two_models_are_averaged_from_the_second_round_on():
    method, server = make_method(FedExP()), Server(torch.zeros(2))
    assert method.model(server) is server.vector
    first, _ = aggregated([[1.0, 1]], [1], server)
    assert torch.equal(method.model(first), first.vector)
    second, _ = aggregated([[1.0, 3]], [1], first)
    assert method.model(second).tolist() == [1.5, 2.5]  # of (1, 1) and (2, 4)
    assert torch.equal(make_method("fedexp:evaluate=last").model(second), second.vector)


def test_clients_send_the_squared_length_of_their_updates(federation, monkeypatch):
    sent = []
    aggregate = FedExP.step

    def recorded(self, server, vector, uploads):
        updates = uploads.parameters - uploads.previous[: uploads.layout.trainable]
        sent.append((torch.stack(list(uploads.extras["square"])), updates.square().sum(1)))
        return aggregate(self, server, vector, uploads)

    monkeypatch.setattr(FedExP, "step", recorded)
    us.train(federation, "fedexp", **OPTIONS)
    for squares, expected in sent:
        torch.testing.assert_close(squares, expected)
    assert len(sent) == 3
