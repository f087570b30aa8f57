"""IFCA: one model is FedAvg; choices are made on training samples; traffic is counted."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import unskew as us
from toys import opposed, vector_of
from unskew.aggregation.uploads import Uploads
from unskew.composition.parts import ClientSide, ServerSide
from unskew.composition.values import Beginning, Client
from unskew.methods import make_method
from unskew.methods.common.client_loss import training_loss
from unskew.methods.ifca import IFCA
from unskew.models.functional import FunctionalModel
from unskew.models.layout import Layout, flatten

pytestmark = pytest.mark.usefixtures("hooks_called_once")

OPTIONS = {"model": "mlp:hidden=8", "rounds": 3, "batch_size": 8, "lr": 0.1}
LOGISTIC = 5 * 3 + 3
NORMED = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))


def clusters(run) -> list:
    return [t["diagnostics"]["cluster"] for t in run.client_tables if t["kind"] == "round"]


@pytest.mark.parametrize("runner", ["loop", "vectorised"])
@pytest.mark.parametrize("local", [{}, {"cohort": 2, "momentum": 0.9}])
def test_one_model_is_fedavg_bit_for_bit(federation, runner, local):
    options = OPTIONS | {"runner": runner} | local
    one, plain = (us.train(federation, m, **options) for m in ("ifca:models=1", "fedavg"))
    assert torch.equal(vector_of(one), vector_of(plain))
    np.testing.assert_array_equal(one.weights, plain.weights)
    assert one.last("personal", "loss") == pytest.approx(plain.last("local", "loss"))


def test_one_model_with_equal_weights_is_the_mean(federation):
    one, mean = (us.train(federation, m, **OPTIONS) for m in ("ifca:models=1+mean", "mean"))
    assert torch.equal(vector_of(one), vector_of(mean))


def client_of(federation, k, module) -> Client:
    x, y = (torch.from_numpy(each) for each in federation.train.client(k))
    return Client(k, x, y, FunctionalModel(module), federation.classes)


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 0, 1], [1, 2, 0]])
def test_renaming_the_models_renames_the_choice(federation, order):
    torch.manual_seed(0)
    client = client_of(federation, 0, nn.Linear(5, 3))
    models = torch.randn(3, LOGISTIC)
    losses = [training_loss(client, model) for model in models]
    best = models[losses.index(min(losses))]
    renamed = models[order]
    payload = {"model": renamed[0], "ifca/others": renamed[1:]}
    start = make_method(IFCA(models=3)).prepare(client, payload, {})
    assert torch.equal(start.vector, best)
    assert torch.equal(renamed[int(start.refs["ifca/cluster"])], best)


def test_the_loss_is_the_mean_cross_entropy_of_the_training_samples(federation):
    module = nn.Linear(5, 3)
    client = client_of(federation, 1, module)
    expected = nn.functional.cross_entropy(module(client.x), client.y.long()).item()
    assert training_loss(client, flatten(module, client.network.layout)) == pytest.approx(expected)


def test_models_are_averaged_by_samples_and_the_global_one_is_their_mean():
    uploads = Uploads.of(
        torch.tensor([[1.0], [5.0], [20.0]]),
        samples=[1, 3, 4],
        extras={"ifca/cluster": [torch.tensor(0), torch.tensor(0), torch.tensor(2)]},
    )
    method = make_method(IFCA(models=3))
    server = method.begin(Beginning(torch.zeros(1), uploads.layout))
    server, diagnostics = method.aggregate(server, uploads)
    models = server.state["ifca/models"].flatten().tolist()
    assert models == [4.0, 0.0, 20.0]  # 1/4 and 3/4; none; one
    assert server.vector.item() == 12.0  # four samples each
    assert diagnostics["weights"].tolist() == [0.25, 0.75, 1.0]
    assert diagnostics["cluster"].tolist() == [0, 0, 2]
    personal = [
        method.personal(uploads.layout, server, {"ifca/client": torch.tensor(k)}) for k in (1, 2)
    ]
    assert [each.item() for each in personal] == [4.0, 20.0]
    assert [each.item() for each in method.outputs(server)] == [4.0, 20.0]  # one has no clients


@pytest.mark.parametrize(
    "method", ["ifca:models=3", "ifca:models=2+fedper:fallback=average", "fesem", "cfl"]
)
def test_the_models_are_also_evaluated_separately(federation, method):
    run = us.train(federation, method, **OPTIONS)
    assert 0 <= run.last("outputs") <= 1
    assert run.last("outputs", "loss") > 0
    assert "outputs" not in us.train(federation, "fedavg", **OPTIONS).metrics[-1]


def test_one_model_is_its_own_mean(federation):
    run = us.train(federation, "ifca:models=1", **OPTIONS)
    assert run.metrics[-1]["outputs"] == run.metrics[-1]["global"]


def test_a_new_client_gets_the_model_with_the_most_samples():
    uploads = Uploads.of(
        torch.tensor([[1.0], [2.0]]),
        samples=[3, 5],
        extras={"ifca/cluster": [torch.tensor(0), torch.tensor(1)]},
    )
    method = make_method(IFCA(models=2))
    server = method.begin(Beginning(torch.zeros(1), uploads.layout))
    server, _ = method.aggregate(server, uploads)
    assert method.personal(uploads.layout, server, {}).item() == 2.0


def test_it_finds_clients_that_contradict_each_other():
    """With this start one client first chooses wrongly, and then changes its choice."""
    options = {"model": "logistic", "rounds": 15, "lr": 0.5, "seed": 4, "evaluate_every": 15}
    run = us.train(opposed(), "ifca:models=2", **options)
    assert clusters(run)[0][0] != clusters(run)[0][2]
    assert clusters(run)[-1][0] == clusters(run)[-1][2] != clusters(run)[-1][1]
    assert clusters(run)[-1][1] == clusters(run)[-1][3]
    assert run.last("personal") > 0.9
    assert us.train(opposed(), "fedavg", **options).last("local") < 0.6


def test_all_models_go_down_and_the_choice_goes_up(federation):
    run = us.train(federation, "ifca:models=3", model="logistic", rounds=2, evaluate_every=0)
    assert run.cost.parameters_down == 2 * 4 * 3 * LOGISTIC
    assert run.cost.parameters_up == 2 * 4 * (LOGISTIC + 1)
    assert run.cost.bytes_down == 2 * 4 * 3 * LOGISTIC * 4
    assert run.cost.bytes_up == 2 * 4 * (LOGISTIC * 4 + 8)


def test_local_coordinates_are_not_sent_with_any_model(federation):
    run = us.train(federation, "ifca:models=3,buffers=local", model=NORMED, rounds=2)
    layout = FunctionalModel(NORMED).layout
    # Statistics are sent down once, to new clients, and with one model only.
    first_rounds = 4 * (layout.size - layout.trainable)
    assert run.cost.parameters_down == 2 * 4 * 3 * layout.trainable + first_rounds


def test_vectorised_equals_the_loop(federation):
    runs = [
        us.train(federation, "ifca:models=3", runner=runner, **OPTIONS)
        for runner in ("loop", "vectorised")
    ]
    assert clusters(runs[0]) == clusters(runs[1])
    torch.testing.assert_close(vector_of(runs[0]), vector_of(runs[1]), rtol=1e-5, atol=1e-5)


def test_one_worker_equals_two(federation):
    options = OPTIONS | {"runner": "processes"}
    runs = [us.train(federation, "ifca:models=2", workers=n, **options) for n in (1, 2)]
    assert torch.equal(vector_of(runs[0]), vector_of(runs[1]))


def test_a_run_resumes_bit_for_bit(federation, tmp_path):
    options = OPTIONS | {"out": tmp_path / "run"}
    us.train(federation, "ifca:models=2+fedadam", **options | {"rounds": 1})
    resumed = us.train(federation, "ifca:models=2+fedadam", resume=True, **options)
    whole = us.train(federation, "ifca:models=2+fedadam", **OPTIONS)
    assert torch.equal(vector_of(resumed), vector_of(whole))


def test_composing(federation):
    plain = us.train(federation, "ifca:models=2", **OPTIONS)
    for method in ("ifca:models=2+fedprox:mu=0", "fedprox:mu=0+ifca:models=2"):
        with_term = us.train(federation, method, **OPTIONS)
        assert torch.equal(vector_of(with_term), vector_of(plain))


class SendsTwice(ClientSide, ServerSide):
    """Sends twice the model with each model."""

    def broadcast(self, server, client):
        return {"twice": 2 * server.vector}

    def prepare(self, client, start, payload, state):
        return replace(start, refs=payload)


@pytest.mark.parametrize("order", [[0, 1], [1, 0]])
def test_extra_tensors_are_sent_with_all_models_and_used_with_the_chosen_one(order):
    network = FunctionalModel(nn.Linear(1, 2, bias=False))
    client = Client(0, torch.ones(1, 1), torch.ones(1, dtype=torch.int64), network, 2)
    models = torch.tensor([[5.0, 0.0], [0.0, 5.0]])[order]
    for method in (IFCA(models=2) + SendsTwice(), SendsTwice() + IFCA(models=2)):
        server = method.begin(Beginning(models[0], Layout.of(network.module)))
        server = replace(server, state={**server.state, "ifca/models": models})
        start = method.prepare(client, method.broadcast(server, 0), {})
        assert start.vector.tolist() == [0.0, 5.0]
        assert start.refs["sendstwice/twice"].tolist() == [0.0, 10.0]


@pytest.mark.parametrize("other", ["scaffold", "fedgen:hidden=8,generator_steps=3"])
def test_one_model_with_a_method_that_sends_tensors_is_that_method(federation, other):
    one, alone = (us.train(federation, m, **OPTIONS) for m in (f"ifca:models=1+{other}", other))
    assert torch.equal(vector_of(one), vector_of(alone))
    assert one.cost.parameters_down == alone.cost.parameters_down
