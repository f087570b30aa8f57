"""FedALA: the mix of own and global model, by layer, and its two extremes."""

import pytest
import torch
from torch import nn

import unskew as us
from toys import vector_of
from unskew.composition.values import Client, Server, Trained
from unskew.methods import make_method
from unskew.methods.common.head import head_mask, top_layers
from unskew.methods.fedala import FedALA
from unskew.models import make
from unskew.models.functional import Batch, FunctionalModel
from unskew.models.layout import Layout

OPTIONS = {"model": "mlp:hidden=6", "rounds": 3, "batch_size": 8, "lr": 0.1}
RUNNERS = pytest.mark.parametrize("runner", ["loop", "vectorised"])
LAYOUT = Layout.of(make("mlp:hidden=6", (5,), 3))


@RUNNERS
@pytest.mark.parametrize("method", ["fedala:eta=0", "fedala:layers=0"])
def test_only_the_global_model_is_fedavg_bit_for_bit(federation, runner, method):
    options = OPTIONS | {"runner": runner}
    plain, fedala = (us.train(federation, name, **options) for name in ("fedavg", method))
    assert torch.equal(vector_of(plain), vector_of(fedala))
    assert plain.cost == fedala.cost


@pytest.mark.parametrize("other", ["fedprox:mu=0.5", "fedntd:beta=0.5", "feddyn:alpha=0.1"])
def test_terms_refer_to_the_received_model_wherever_training_starts(federation, other):
    """MOON's too, but its features do not change while only the head is mixed."""
    either = [
        us.train(federation, name, **OPTIONS) for name in (f"fedala+{other}", f"{other}+fedala")
    ]
    assert torch.equal(*map(vector_of, either))


def client_of(federation, k=0, round_=1):
    x, y = (torch.from_numpy(each) for each in federation.train.client(k))
    return Client(k, x, y, FunctionalModel(make("mlp:hidden=6", (5,), 3)), 3, 0, round_)


def vectors(seed=0):
    random = torch.Generator().manual_seed(seed)
    return [torch.randn(LAYOUT.size, generator=random) for _ in range(2)]


def test_a_mix_without_the_global_model_keeps_the_top_layers(federation):
    received, own = vectors()
    top = top_layers(LAYOUT, 1)
    state = {"fedala/own": own, "fedala/mix": torch.zeros(int(top.sum()))}
    method = make_method(FedALA(eta=0))
    start = method.prepare(client_of(federation), {"model": received}, state)
    assert torch.equal(start.vector[top], own[top])
    assert torch.equal(start.vector[~top], received[~top])


def test_one_step_of_the_mix_by_hand(federation):
    """One batch of all samples: A - eta g (global - own), kept in [0, 1]."""
    received, own = vectors()
    client, top = client_of(federation), top_layers(LAYOUT, 1)
    mix = torch.full((int(top.sum()),), 0.5)
    method = make_method(FedALA(eta=0.3, share=1.0, batch_size=1000))
    state = {"fedala/own": own, "fedala/mix": mix}
    start = method.prepare(client, {"model": received}, state)
    module = make("mlp:hidden=6", (5,), 3)
    mixed = received.clone()
    mixed[top] = (own[top] + received[top]) / 2
    nn.utils.vector_to_parameters(mixed, module.parameters())
    nn.functional.cross_entropy(module(client.x), client.y.long()).backward()
    gradient = torch.cat([p.grad.reshape(-1) for p in module.parameters()])[top]
    expected = (mix - 0.3 * gradient * (received - own)[top]).clamp(0, 1)
    torch.testing.assert_close(start.refs["fedala/mix"], expected)
    torch.testing.assert_close(start.vector[top], own[top] + expected * (received - own)[top])
    assert expected.unique().numel() > 3


def test_learning_the_mix_lowers_the_loss(federation):
    received, own = vectors(1)
    client = client_of(federation)
    method = make_method(FedALA(layers=2, eta=0.1, share=1.0))

    def loss(vector):
        batch = Batch(client.x, client.y.long(), torch.ones(len(client.y)))
        return client.network.losses(vector, {}, batch).mean()

    start = method.prepare(client, {"model": received}, {"fedala/own": own})
    assert loss(start.vector) < min(loss(received), loss(own))


def test_the_first_mix_is_trained_until_it_converges_then_one_epoch_per_round(
    federation, monkeypatch
):
    passes = []
    step = FedALA._step

    def counted(self, *arguments):
        passes.append(1)
        return step(self, *arguments)

    monkeypatch.setattr(FedALA, "_step", counted)
    received, own = vectors()
    client = client_of(federation)
    method = make_method(FedALA(batch_size=1000, max_epochs=30, eta=1e-6))
    start = method.prepare(client, {"model": received}, {"fedala/own": own})
    assert len(passes) == 11  # the losses hardly change, so the first test succeeds
    passes.clear()
    state = {"fedala/own": own, "fedala/mix": start.refs["fedala/mix"]}
    method.prepare(client, {"model": received}, state)
    assert len(passes) == 1
    passes.clear()
    method.prepare(client, {"model": received}, {"fedala/own": received})  # there is nothing to mix
    assert not passes


def test_a_mix_that_was_not_learned_is_not_kept(federation):
    """A client whose model equals the global one has nothing to mix and keeps no mix."""
    received, own = vectors()
    client, method = client_of(federation), make_method(FedALA())

    def kept_after(payload, state):
        start = method.prepare(client, {"model": payload}, state)
        return method.finish(client, start, Trained(own, 1, 1.0), state).state

    assert "fedala/mix" not in kept_after(received, {})
    assert "fedala/mix" not in kept_after(own, {"fedala/own": own})
    assert "fedala/mix" in kept_after(received, {"fedala/own": own})
    before = torch.zeros(int(top_layers(LAYOUT, 1).sum()))
    state = {"fedala/own": own, "fedala/mix": before}
    assert torch.equal(kept_after(own, state)["fedala/mix"], before)


def test_layers_count_from_the_head_and_include_their_norms():
    class Plain(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(4, 3)  # defined first, but still the last layer
            self.one = nn.Conv2d(1, 2, 3)
            self.norm = nn.BatchNorm2d(2)
            self.two = nn.Linear(2, 4)

    layout = Layout.of(Plain())

    def names(count):
        mask = top_layers(layout, count)
        return {e.name.partition(".")[0] for e in layout if bool(mask[e.slice].any())}

    assert names(0) == set()
    assert names(1) == {"head"}
    assert names(2) == {"head", "two"}
    assert names(3) == names(9) == {"head", "two", "one", "norm"}
    assert not bool(top_layers(layout, 9)[layout.trainable :].any())
    assert torch.equal(top_layers(LAYOUT, 1), head_mask(LAYOUT))


def test_the_samples_of_the_mix_differ_from_round_to_round_and_not_by_runner(federation):
    received, own = vectors()
    method = make_method(FedALA(share=0.3, eta=0.1, max_epochs=1))
    mixes = [
        method.prepare(
            client_of(federation, round_=round_), {"model": received}, {"fedala/own": own}
        ).refs["fedala/mix"]
        for round_ in (1, 1, 2)
    ]
    assert torch.equal(mixes[0], mixes[1])
    assert not torch.equal(mixes[0], mixes[2])
    one, other = (
        us.train(federation, "fedala", runner=runner, **OPTIONS)
        for runner in ("loop", "vectorised")
    )
    torch.testing.assert_close(vector_of(one), vector_of(other), rtol=1e-3, atol=1e-4)


def test_personal_models_are_the_clients_own(federation):
    run = us.train(federation, "fedala", **OPTIONS)
    assert run.last("personal", "loss") != run.last("local", "loss")
    layout = FunctionalModel(nn.Linear(1, 1)).layout
    method = make_method(FedALA())
    assert torch.equal(method.personal(layout, Server(torch.ones(2)), {}), torch.ones(2))
