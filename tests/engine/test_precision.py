"""Training in bf16: what is computed in it, what stays float32, and when it is chosen."""

import numpy as np
import pytest
import torch
from torch import nn

import unskew as us
from marks import long_after
from toys import small_federation
from unskew.engine.precision import resolve_precision
from unskew.engine.settings import Settings
from unskew.errors import UnskewError
from unskew.models import make
from unskew.models.functional import FunctionalModel
from unskew.models.layout import flatten

CPU = torch.device("cpu")
IMAGES = torch.zeros(2, 1, 12, 12)


@pytest.fixture(scope="module")
def images():
    rng = np.random.default_rng(0)
    x = rng.random((60, 1, 12, 12), dtype=np.float32)
    return us.Federation.from_arrays(x, rng.integers(0, 3, 60), np.arange(60) // 20, holdout=0.2)


def vector_of(run):
    return torch.cat([each.flatten().float() for each in run.model.state_dict().values()])


def test_layers_compute_in_bf16_and_return_float32():
    class Spy(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head = nn.Linear(4, 3), nn.Linear(3, 2)
            self.seen = []

        def forward(self, x):
            hidden = self.body(x)
            self.seen.append(hidden.dtype)
            return self.head(hidden)

    spy = Spy()
    network = FunctionalModel(spy, torch.bfloat16)
    vector = flatten(spy, network.layout)
    x = torch.rand(5, 4)
    with network.capture_passes() as passes:
        output = network(vector, {}, x)
    assert spy.seen == [torch.bfloat16]
    assert {output.dtype, passes[0].output.dtype, passes[0].features.dtype} == {torch.float32}
    assert network.part("head", vector, {}, x[:, :3]).dtype == torch.float32
    # bf16 has 8 significant bits, so the result is close to that of float32 but not equal to it.
    exact = FunctionalModel(spy)(vector, {}, x)
    assert not torch.equal(output, exact)
    torch.testing.assert_close(output, exact, rtol=0.02, atol=0.02)


def test_evaluation_is_in_float32():
    module = make("mlp", (4,), 2)
    network, exact = FunctionalModel(module, torch.bfloat16), FunctionalModel(module)
    vector, x = flatten(module, network.layout), torch.rand(5, 4)
    module.eval()
    assert torch.equal(network(vector, {}, x), exact(vector, {}, x))
    module.train()
    assert not torch.equal(network(vector, {}, x), exact(vector, {}, x))


@pytest.mark.parametrize("method", ["fedavg", "scaffold", "moon", "ditto"])
def test_bf16_trains_nearly_as_float32_does(method):
    federation = small_federation(unit=True)
    settings = {"rounds": 3, "lr": 0.1, "model": "mlp:hidden=8"}
    exact = us.train(federation, method, **settings)
    short = us.train(federation, method, **settings, precision="bf16")
    assert not torch.equal(vector_of(exact), vector_of(short))
    torch.testing.assert_close(vector_of(short), vector_of(exact), rtol=0.05, atol=0.02)
    assert short.metadata["configuration"]["precision"] == "bf16"


@pytest.mark.parametrize("model", long_after(1, ["lenet5:norm=batch", "lenet5"]))
def test_pool_and_loop_agree_bit_for_bit(images, model):
    options = {"rounds": 2, "steps": 25, "batch_size": 8, "precision": "bf16", "model": model}
    loop = us.train(images, "fedprox:mu=0.1", runner="loop", **options)
    processes = us.train(images, "fedprox:mu=0.1", runner="processes", workers=2, **options)
    assert torch.equal(vector_of(loop), vector_of(processes))


def test_statistics_of_norms_stay_in_float32(images):
    run = us.train(images, "fedavg", model="lenet5:norm=batch", rounds=1, precision="bf16")
    assert all(each.dtype != torch.bfloat16 for each in run.model.state_dict().values())


def test_the_vectorised_runner_agrees_with_the_loop():
    federation = small_federation(unit=True)
    options = {"rounds": 2, "lr": 0.1, "model": "mlp:hidden=8", "precision": "bf16"}
    vectorised, loop = (
        us.train(federation, "fedavg", runner=runner, **options)
        for runner in ("vectorised", "loop")
    )
    torch.testing.assert_close(vector_of(vectorised), vector_of(loop), rtol=0.02, atol=5e-3)


def test_preparatory_stages_are_in_float32():
    federation = small_federation(unit=True)
    method = "latent:encoder=6,vae_rounds=2"
    options = {"rounds": 1, "model": "mlp:hidden=8"}
    exact, short = (
        us.train(federation, method, **options, precision=each) for each in ("float32", "bf16")
    )
    losses = [
        [row["train_loss"] for row in run.metrics if row["stage"] != "task"]
        for run in (exact, short)
    ]
    assert losses[0] == losses[1]


def resolved(model, monkeypatch=None, *, hardware=True, shape=(1, 12, 12), precision="auto"):
    if monkeypatch is not None:
        monkeypatch.setattr("unskew.engine.precision.has_bf16", lambda _: hardware)
    network = FunctionalModel(make(model, shape, 3))
    return resolve_precision(network, Settings(precision=precision), CPU, torch.zeros(2, *shape))


def test_auto_chooses_bf16_for_large_networks_on_hardware_that_has_it(monkeypatch):
    wide = "feddisk-cnn:channels=16,padding=2"
    assert resolved(wide, monkeypatch) == "bf16"
    assert resolved("lenet5", monkeypatch) == "float32"
    assert resolved("mlp:hidden=8", monkeypatch) == "float32"
    assert resolved("mlp:hidden=8192", monkeypatch) == "bf16"
    assert resolved(wide, monkeypatch, hardware=False) == "float32"
    assert resolved(wide, monkeypatch, precision="float32") == "float32"
    assert resolved("lenet5", monkeypatch, hardware=False, precision="bf16") == "bf16"


def test_networks_that_bf16_does_not_suit_are_named(monkeypatch):
    with pytest.raises(UnskewError, match=r"precision: .*density.*use float32"):
        resolved("vae", monkeypatch, precision="bf16")
    assert resolved("vae", monkeypatch) == "float32"

    class OnlyFloat32(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(144, 3)

        def forward(self, x):
            hidden = self.layer(x.flatten(1))
            if hidden.dtype != torch.float32:
                raise RuntimeError("no kernel for bf16")
            return hidden

    network = FunctionalModel(OnlyFloat32())
    with pytest.raises(UnskewError, match=r"precision: .*no kernel for bf16.*use float32"):
        resolve_precision(network, Settings(precision="bf16"), CPU, IMAGES)


def test_a_run_in_another_precision_is_not_resumed(tmp_path):
    federation, options = small_federation(unit=True), {"model": "mlp:hidden=8", "out": tmp_path}
    us.train(federation, "fedavg", rounds=1, **options)
    with pytest.raises(UnskewError, match="precision"):
        us.train(federation, "fedavg", rounds=2, resume=True, precision="bf16", **options)
