"""The same seed, clients and method give the same bits on Flower and in a simulation."""

import pytest
import torch
from private_method import PrivateTask
from torch import nn

import unskew as us
from every_method import POOLED
from marks import long_after, long_but
from toys import small_federation
from unskew.errors import UnskewError
from unskew.methods import METHODS

grids = pytest.importorskip("grids")

OPTIONS = {"rounds": 3, "seed": 3, "lr": 0.1, "batch_size": 8, "momentum": 0.5}
OPTIONS |= {"evaluate_every": 2}
QUICK = {
    "feddisk": "feddisk:density_rounds=2,ratio_rounds=2,hidden=6,global_samples=32,ratio_hidden=6",
    "latent": "latent:encoder=6,vae_rounds=2",
    "fedrep": "fedrep:head_epochs=2",
    "fedcluster": "fedcluster:groups=2",
}


def assert_same(method, federation, model=grids.MODEL, **options):
    settings = OPTIONS | options
    noise = {"noise": "seeded"}
    on_flower = grids.run_on_grid(federation, method, model=model, **settings, **noise)
    simulated = us.train(federation, method, model=model, runner="loop", **settings)
    run = on_flower.run
    assert torch.equal(grids.vector_of(run.model), grids.vector_of(simulated.model))
    assert len(run.metrics) == len(simulated.metrics)
    for ours, theirs in zip(run.metrics, simulated.metrics, strict=True):
        assert ours["traffic"] == theirs["traffic"]
        assert ours["train_loss"] == theirs["train_loss"]
        for level in ("global", "local", "personal"):
            # A node evaluates only its own test samples, in batches of their own.
            assert ours.get(level) == pytest.approx(theirs.get(level), abs=1e-6, nan_ok=True)
    return on_flower


@pytest.mark.parametrize("name", long_but(("fedgen",), sorted(set(METHODS) - set(POOLED))))
def test_every_method_gives_the_same_bits(name):
    assert_same(QUICK.get(name, name), grids.seven_clients())


VARIANTS = [
    "feddisk:estimator=classifier,density_rounds=2,local_rounds=2,ratio_rounds=2,hidden=6",
    "feddisk:estimator=loglik,density_rounds=2,local_rounds=2,hidden=6",
    "fedprox:mu=0.1+ida+fedadam",
    "fedprox:mu=0.1+moon:mu=1,projection=8+ida+fedadam:server_lr=0.01",
    "feddisco:alpha=0.1+feddyn:alpha=0.01",
    "scaffold+ifca:models=2",
    "ditto+ifca:models=2+fedper",
    "feddisk:density_rounds=2,ratio_rounds=2,hidden=6+latent:encoder=8,vae_rounds=1",
    "scaffold+fedper",
    "ifca:models=2+fedper",
    "fedper:fallback=average",
    "fedprox:mu=0.5+fedper:fallback=average",
    "ditto+fedper:fallback=average",
    "ifca:models=2+ditto",
]
QUICK_VARIANTS = ("fedprox:mu=0.1+ida+fedadam", "scaffold+ifca:models=2", "ifca:models=2+ditto")


@pytest.mark.parametrize("method", long_but(QUICK_VARIANTS, VARIANTS))
def test_variants_and_compositions_give_the_same_bits(method):
    assert_same(method, small_federation(unit=True))


def test_half_precision_gives_the_same_bits():
    assert_same("fedprox:mu=0.1", grids.seven_clients(), precision="bf16")


@pytest.mark.parametrize(
    "method", long_after(1, ["scaffold", "fedavg", "ditto", "fedcluster:groups=2"])
)
def test_a_sampled_cohort_gives_the_same_bits(method):
    assert_same(method, grids.seven_clients(), participation=0.5, rounds=5)


def test_clipped_gradients_give_the_same_bits():
    assert_same("scaffold+fedprox:mu=0.1", grids.seven_clients(), clip=0.1)


def with_batch_norm():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


WITH_STATISTICS = [
    "fedavg",
    "fedbn",
    "fedavg:buffers=local",
    "fedper:buffers=local",
    "fedgn",
    "ifca",
    "feddna",
    "fedprox:mu=0.5+fedbn",
    "ditto+fedbn",
]


@pytest.mark.parametrize("method", long_but(("fedavg", "ditto+fedbn"), WITH_STATISTICS))
def test_a_module_with_batch_statistics_gives_the_same_bits(method):
    assert_same(method, small_federation(), model=with_batch_norm())


@pytest.mark.parametrize(
    "method", long_after(1, ["fedbabu+scaffold", "fedbabu", "fedper", "local"])
)
def test_initial_weights_are_the_servers_even_for_layers_it_never_sees(method):
    federation, module = small_federation(), with_batch_norm()
    torch.manual_seed(1)
    other = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    app = grids.client_app(other, federation, method, state=None)
    on_flower = grids.run_on_grid(federation, method, model=module, app=app, **OPTIONS).run
    simulated = us.train(federation, method, model=with_batch_norm(), runner="loop", **OPTIONS)
    assert torch.equal(grids.vector_of(on_flower.model), grids.vector_of(simulated.model))
    level, metric = "personal", "loss"
    assert on_flower.last(level, metric) == pytest.approx(simulated.last(level, metric), abs=1e-6)


@pytest.mark.long
def test_private_steps_are_the_same_if_the_noise_is_seeded(tmp_path):
    pytest.importorskip("opacus")
    federation = small_federation(unit=True)
    assert_same(PrivateTask(), federation)
    secret = [
        grids.run_on_grid(federation, PrivateTask(), state=tmp_path / name, **OPTIONS).run.model
        for name in "ab"
    ]
    assert not torch.equal(*(grids.vector_of(model) for model in secret))


@pytest.mark.parametrize("method", [*POOLED, "feddisk:estimator=oracle"])
def test_methods_that_need_pooled_samples_are_rejected(method):
    with pytest.raises(UnskewError, match="they stay on their nodes"):
        grids.run_on_grid(small_federation(unit=True), method, **OPTIONS)


@pytest.mark.parametrize("method", ["fedavg", "scaffold+fedavgm", "fedbn", "ditto", "ifca"])
def test_frozen_parameters_are_not_sent_in_a_round(method):
    torch.manual_seed(0)
    frozen = nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6), nn.ReLU()).requires_grad_(False)
    module = nn.Sequential(frozen, nn.Linear(6, 3))
    strategy = assert_same(method, grids.seven_clients(), model=module, weight_decay=0.1)
    for name, value in frozen.named_parameters():
        assert torch.equal(value, strategy.run.model.get_parameter(f"0.{name}"))
    trained, statistics = 6 * 3 + 3, 6 + 6 + 1
    for _, _, reply in strategy.grid.of_kind("train.unskew"):
        assert reply.content["arrays"]["model"].numpy().size == trained + statistics
    sent = [message for name, message, _ in strategy.grid.of_kind("train.unskew") if name == "0"]
    sizes = [message.content["arrays"]["model"].numpy().size for message in sent]
    assert sizes[0] == 5 * 6 + 3 * 6 + trained + statistics  # once, in the first message
    assert max(sizes[1:]) <= trained + statistics
