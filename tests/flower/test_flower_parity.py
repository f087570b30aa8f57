"""The same seed, clients and method give the same bits on Flower and in a simulation."""

import pytest
import torch
from torch import nn

import unskew as us
from toys import small_federation
from unskew.errors import UnskewError
from unskew.methods.base import Method, Stage
from unskew.methods.table import METHODS
from unskew.privacy import Privacy

grids = pytest.importorskip("grids")

OPTIONS = {"rounds": 3, "seed": 3, "lr": 0.1, "batch_size": 8, "momentum": 0.5}
OPTIONS |= {"evaluate_every": 2}
QUICK = {
    "feddisk": "feddisk:density_rounds=2,ratio_rounds=2,hidden=6,pool=32,ratio_hidden=6",
    "latent": "latent:encoder=6,vae_rounds=2",
    "fedrep": "fedrep:head_epochs=2",
    "fedcluster": "fedcluster:groups=2",
}
ELSEWHERE = ("central", "data-sharing")


def assert_same(method, federation, model=grids.MODEL, **options):
    settings = OPTIONS | options
    noise = {"noise": "seeded"}
    on_flower = grids.play(federation, method, model=model, **settings, **noise)
    here = us.train(federation, method, model=model, runner="loop", **settings)
    run = on_flower.run
    assert torch.equal(grids.vector_of(run.model), grids.vector_of(here.model))
    assert len(run.metrics) == len(here.metrics)
    for ours, theirs in zip(run.metrics, here.metrics, strict=True):
        assert ours["traffic"] == theirs["traffic"]
        assert ours["train_loss"] == theirs["train_loss"]
        for level in ("global", "local", "personal"):
            # On nodes, a client's test samples are run through the network by themselves.
            assert ours.get(level) == pytest.approx(theirs.get(level), abs=1e-6, nan_ok=True)
    return on_flower


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(set(METHODS) - set(ELSEWHERE)))
def test_every_method_gives_the_same_bits(name):
    assert_same(QUICK.get(name, name), grids.few_clients())


@pytest.mark.parametrize(
    "method",
    [
        "feddisk:estimator=classifier,density_rounds=2,local_rounds=2,ratio_rounds=2,hidden=6",
        "feddisk:estimator=loglik,density_rounds=2,local_rounds=2,hidden=6",
        "fedprox:mu=0.1+ida+fedadam",
        "scaffold+fedper",
        "ifca:models=2+fedper",
        "fedper:fallback=average",
        "fedprox:mu=0.5+fedper:fallback=average",
        "ditto+fedper:fallback=average",
        "ifca:models=2+ditto",
    ],
)
def test_so_do_variants_and_compositions(method):
    assert_same(method, small_federation(unit=True))


@pytest.mark.parametrize("method", ["fedavg", "scaffold", "ditto", "fedcluster:groups=2"])
def test_so_does_a_drawn_part_of_the_clients(method):
    assert_same(method, grids.few_clients(), participation=0.5, rounds=5)


def with_batch_norm():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


@pytest.mark.parametrize(
    "method",
    [
        "fedavg",
        "fedbn",
        "fedavg:buffers=local",
        "fedper:buffers=local",
        "fedgn",
        "ifca",
        "feddna",
        "fedprox:mu=0.5+fedbn",
        "ditto+fedbn",
    ],
)
def test_so_does_a_module_with_statistics_of_its_own(method):
    assert_same(method, small_federation(), model=with_batch_norm())


@pytest.mark.parametrize("method", ["fedbabu", "fedper", "fedbabu+scaffold", "local"])
def test_the_start_is_the_servers_even_of_what_it_never_sees(method):
    federation, here = small_federation(), with_batch_norm()
    torch.manual_seed(1)
    other = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    app = grids.client_app(other, federation, method, state=None)
    on_flower = grids.play(federation, method, model=here, app=app, **OPTIONS).run
    simulated = us.train(federation, method, model=with_batch_norm(), runner="loop", **OPTIONS)
    assert torch.equal(grids.vector_of(on_flower.model), grids.vector_of(simulated.model))
    level, figure = "personal", "loss"
    assert on_flower.last(level, figure) == pytest.approx(simulated.last(level, figure), abs=1e-6)


class PrivateTask(Method):
    def stages(self):
        return (Stage("task", self, privacy=Privacy(epsilon=3, delta=1e-3)),)


def test_private_steps_are_the_same_if_noise_is_drawn_from_the_seed():
    pytest.importorskip("opacus")
    federation = small_federation(unit=True)
    assert_same(PrivateTask(), federation)
    secret = [grids.play(federation, PrivateTask(), **OPTIONS).run.model for _ in range(2)]
    assert not torch.equal(*(grids.vector_of(model) for model in secret))


@pytest.mark.parametrize("method", [*ELSEWHERE, "feddisk:estimator=oracle"])
def test_methods_that_need_others_samples_are_refused(method):
    with pytest.raises(UnskewError, match="they stay with their nodes"):
        grids.play(small_federation(unit=True), method, **OPTIONS)
