"""Everything that clients send is checked against what their method declares."""

import math
import warnings

import pytest
import torch
from torch import nn

import unskew as us
from toys import small_federation
from unskew.composition.upload_values import Value
from unskew.engine.client import Loop
from unskew.errors import UnskewWarning
from unskew.methods import ClientSide, Finished, ServerSide

OPTIONS = {"rounds": 2, "lr": 0.1, "batch_size": 8, "runner": "loop"}


def test_a_value_has_one_fault_or_none():
    sizes, known = {"classes": 3, "shared": 4}, {"samples": 6.0}
    counts = Value(("classes",), torch.int64, low=0, times=None, sums_to="samples")
    assert counts.fault(torch.tensor([1, 2, 3]), sizes, known) is None
    for bad, reason in (
        (torch.tensor([1, 2]), "has shape"),
        (torch.tensor([1.0, 2, 3]), "is of torch.float32"),
        (torch.tensor([-1, 4, 3]), "outside the range"),
        (torch.tensor([1, 2, 4]), "sums to 7, and its samples is 6"),
        (torch.tensor([2**62, 2**62, 2**62]), "sums to"),
    ):
        assert reason in counts.fault(bad, sizes, known)
    pair = Value((2,), low=(-math.inf, 0.0))
    assert pair.fault(torch.tensor([-5.0, 0.0]), sizes, known) is None
    assert "outside" in pair.fault(torch.tensor([1.0, -1.0]), sizes, known)
    assert "infinite" in pair.fault(torch.tensor([1.0, math.inf]), sizes, known)
    assert Value(may_be_undefined=True).fault(torch.tensor(math.nan), sizes, known) is None
    assert Value(None, None).fault(torch.zeros(0, 2), sizes, known) is None


class Reporting(ClientSide, ServerSide):
    """Clients send a number; the last one sends nonsense."""

    @property
    def receives(self):
        return {"number": Value(low=0.0, high=1.0)}

    def finish(self, client, start, trained, state):
        return Finished({"number": torch.tensor(0.5 if client.id < 3 else -7.0)})


def test_a_simulation_rejects_a_client_that_sends_nonsense():
    with pytest.warns(UnskewWarning, match="continued without client 3"):
        run = us.train(small_federation(), Reporting(), model="mlp:hidden=8", **OPTIONS)
    reason = "its 'reporting/number' is outside the range from 0 to 1"
    assert [row["rejected"] for row in run.metrics] == [{"3": reason}] * 2


def with_batch_norm():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


def spoiled(monkeypatch, change):
    """Let client 3 send a changed model."""
    train = Loop.train

    def training(self, round_, tasks):
        result = train(self, round_, tasks)
        row = [task.client for task in tasks].index(3)
        change(self._context.network.layout, result.stack[row])
        return result

    monkeypatch.setattr(Loop, "train", training)


def entry_of(layout, ending):
    return next(entry.slice for entry in layout if entry.name.endswith(ending))


@pytest.mark.parametrize("method", ["fedavg", "median", "feddna", "fedbn", "fedavg:buffers=local"])
@pytest.mark.parametrize(
    ("ending", "value", "reason"),
    [
        ("running_var", -0.5, "negative running variance"),
        ("num_batches_tracked", 1e30, "counter"),
        ("num_batches_tracked", -1.0, "counter"),
        ("num_batches_tracked", 1.5, "counter"),
    ],
)
def test_impossible_buffers_are_rejected(method, ending, value, reason, monkeypatch):
    def change(layout, row):
        row[entry_of(layout, ending)] = value

    spoiled(monkeypatch, change)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnskewWarning)
        run = us.train(small_federation(), method, model=with_batch_norm(), **OPTIONS)
    assert all(reason in row["rejected"]["3"] for row in run.metrics)
    assert all(list(row["rejected"]) == ["3"] for row in run.metrics)


def test_counters_of_honest_clients_are_accepted_for_many_rounds():
    options = OPTIONS | {"rounds": 10, "epochs": 2, "evaluate_every": 0}
    for method in ("fedavg", "ifca:models=2", "fedavg:buffers=local"):
        run = us.train(small_federation(), method, model=with_batch_norm(), **options)
        assert not any("rejected" in row for row in run.metrics)
