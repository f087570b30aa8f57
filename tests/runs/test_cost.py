"""Communication costs, computed by hand."""

import pytest
import torch
from torch import nn

import unskew as us
from unskew.methods import Finished
from unskew.models.layout import Layout, TensorKind
from unskew.runs.cost import ModelSize, Traffic, add_up, client_traffic, count

LOGISTIC = 5 * 3 + 3
"""The parameters S of logistic regression on five features and three classes."""


def test_fedavg_sends_the_model_twice_per_round(federation):
    """C = 2 S R for each client (FedDisk's formula), times the clients that take part."""
    run = us.train(federation, rounds=7, model="logistic", evaluate_every=0)
    assert run.cost.parameters_up + run.cost.parameters_down == 2 * LOGISTIC * 7 * 4
    assert run.cost.bytes_up == run.cost.bytes_down == 4 * LOGISTIC * 7 * 4
    assert run.cost.rounds == 7


def test_only_sampled_clients_are_counted(federation):
    run = us.train(federation, rounds=6, cohort=3, model="logistic", evaluate_every=0)
    assert run.cost.parameters_up == LOGISTIC * 6 * 3


def test_per_client_and_total(federation):
    run = us.train(federation, rounds=2, cohort=2, model="logistic", evaluate_every=0)
    for row, table in zip(run.metrics, run.client_tables, strict=True):
        assert table["parameters_up"] == table["parameters_down"] == [LOGISTIC] * 2
        assert table["bytes_up"] == table["bytes_down"] == [4 * LOGISTIC] * 2
        for metric, total in row["traffic"].items():
            assert total == sum(table[metric])
    assert run.cost.bytes_up == sum(row["traffic"]["bytes_up"] for row in run.metrics)


def test_extras_are_counted_in_their_direction(federation):
    class WithExtras(us.ClientSide, us.ServerSide):
        def broadcast(self, server, client):
            return {"control": torch.zeros(10)}

        def finish(self, client, start, trained, state):
            labels = torch.zeros(3, dtype=torch.int64)
            return Finished(extras={"labels": labels, "steps": torch.tensor(1.0)})

    cost = us.train(federation, WithExtras(), rounds=2, model="logistic", evaluate_every=0).cost
    assert cost.parameters_down == 8 * (LOGISTIC + 10)
    assert cost.parameters_up == 8 * (LOGISTIC + 3 + 1)
    assert cost.bytes_down == 8 * 4 * (LOGISTIC + 10)
    assert cost.bytes_up == 8 * (4 * LOGISTIC + 3 * 8 + 4)


def test_extras_may_differ_between_clients(federation):
    class Uneven(us.ServerSide):
        def broadcast(self, server, client):
            return {"extra": torch.zeros(client)}

    run = us.train(federation, Uneven(), rounds=1, model="logistic", evaluate_every=0)
    assert run.client_tables[0]["parameters_down"] == [LOGISTIC + k for k in range(4)]
    assert run.cost.parameters_down == 4 * LOGISTIC + 0 + 1 + 2 + 3


def test_the_cost_counts_until_the_target_is_first_reached():
    traffic = Traffic(1, 2, 4, 8)

    def row(accuracy):
        return {"traffic": traffic.to_dict(), "global": {"accuracy": accuracy}}

    unevaluated = {"traffic": traffic.to_dict()}
    run = us.Run("fedavg", "mlp", "digits", 0, 3)
    run.metrics = [unevaluated, row(0.3), unevaluated, row(0.6), row(0.5), row(0.7)]
    reached = run.cost_to(0.6)
    assert (reached.rounds, reached.parameters_up, reached.bytes_down) == (4, 4, 32)
    assert run.cost_to(0.2).rounds == 2
    assert run.cost_to(0.71) is None
    assert run.cost.rounds == 6


def test_count_numbers_and_bytes():
    assert count([]) == (0, 0)
    assert count([torch.zeros(2, 3), torch.zeros(5, dtype=torch.float64)]) == (11, 24 + 40)


def test_only_shared_coordinates_are_counted():
    layout = Layout.of(nn.BatchNorm1d(2))
    model = ModelSize(layout, layout.mask(TensorKind.NORM_AFFINE, TensorKind.COUNTER))
    assert client_traffic(model, [], []) == Traffic(5, 5, 24, 24)
    assert client_traffic(ModelSize(layout, None), [], []) == Traffic(9, 9, 40, 40)


def test_traffic_adds_up():
    assert add_up([Traffic(1, 2, 3, 4), Traffic(10, 20, 30, 40)]) == Traffic(11, 22, 33, 44)
    assert add_up([]) == Traffic()
    with pytest.raises(AttributeError):
        Traffic().bytes_up = 1
