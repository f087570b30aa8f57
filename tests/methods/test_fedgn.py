"""Fed-GN: BatchNorm becomes GroupNorm, at any depth."""

import copy

import pytest
import torch
from torch import nn

import unskew as us
from toys import vector_of
from unskew.errors import UnskewError
from unskew.methods.fedgn import FedGN
from unskew.models import make
from unskew.models.layout import Layout, flatten

OPTIONS = {"rounds": 3, "batch_size": 8, "lr": 0.1}


@pytest.mark.parametrize("model", ["mlp:hidden=8", "mlp:hidden=8,norm=layer"])
def test_without_batchnorm_it_is_fedavg_bit_for_bit(federation, model):
    plain, fedgn = (us.train(federation, m, model=model, **OPTIONS) for m in ("fedavg", "fedgn"))
    assert torch.equal(vector_of(plain), vector_of(fedgn))


@pytest.mark.parametrize("name", ["mlp:hidden=16", "feddisk-cnn", "vgg11", "resnet18"])
def test_it_builds_the_same_network_as_norm_group(name):
    shape, join = ((5,), ",") if name.startswith("mlp") else ((3, 32, 32), ":")
    rebuilt = FedGN().adapt(make(f"{name}{join}norm=batch", shape, 10), torch.zeros(2, *shape))
    built = make(f"{name}{join}norm=group", shape, 10)
    assert [str(m) for m in rebuilt.modules()] == [str(m) for m in built.modules()]
    assert Layout.of(rebuilt) == Layout.of(built)
    assert torch.equal(flatten(rebuilt, Layout.of(rebuilt)), flatten(built, Layout.of(built)))


class Odd(nn.Module):
    """A layer used twice, one without scales, one that is frozen, and one of another kind."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(5, 4)
        self.norm = nn.BatchNorm1d(4, eps=0.5)
        self.again = self.norm
        self.bare = nn.ModuleList([nn.BatchNorm1d(4, affine=False)])
        self.frozen = nn.BatchNorm1d(4)
        self.frozen.weight.requires_grad_(False)
        self.layer = nn.LayerNorm(4)

    def forward(self, x):
        x = self.again(self.norm(self.linear(x)))
        return self.layer(self.frozen(self.bare[0](x)))


def test_every_batch_norm_becomes_a_group_norm():
    module = Odd()
    nn.init.uniform_(module.norm.weight)
    scales = module.norm.weight.clone()
    rebuilt = FedGN(groups=2).adapt(module, torch.zeros(2, 1))
    kinds = [type(part) for part in rebuilt.modules()]
    assert nn.BatchNorm1d not in kinds
    assert rebuilt.norm is rebuilt.again
    assert torch.equal(rebuilt.norm.weight, scales)
    assert (rebuilt.norm.num_groups, rebuilt.norm.eps) == (2, 0.5)
    assert rebuilt.bare[0].weight is None
    assert not rebuilt.frozen.weight.requires_grad
    assert isinstance(rebuilt.layer, nn.LayerNorm)
    assert not list(rebuilt.buffers())


def test_a_network_that_is_one_norm():
    assert isinstance(FedGN().adapt(nn.BatchNorm2d(4), torch.zeros(2, 4, 1, 1)), nn.GroupNorm)


def test_training_and_evaluation_agree():
    module = FedGN().adapt(make("resnet18", (1, 16, 16), 3), torch.zeros(2, 1, 16, 16))
    x = torch.randn(4, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    assert torch.equal(module.train()(x), module.eval()(x))


def test_the_user_s_module_is_not_changed(federation):
    module = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    before = copy.deepcopy(module.state_dict())
    run = us.train(federation, "fedgn", model=module, **OPTIONS)
    assert isinstance(module[1], nn.BatchNorm1d)
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    assert isinstance(run.model[1], nn.GroupNorm)


def test_traffic(federation):
    """4 x 6 and 4 of the first layer, 4 + 4 of the norm, 4 x 3 and 3 of the second."""
    module = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    cost = us.train(federation, "fedgn", model=module, **OPTIONS).cost
    assert cost.parameters_up == cost.parameters_down == 3 * 4 * (24 + 8 + 15)


def test_groups_that_do_not_divide_are_rejected(federation):
    with pytest.raises(UnskewError, match=r"groups=3 does not divide the 8 channels of body\.2"):
        us.train(federation, "fedgn:groups=3", model="mlp:hidden=8,norm=batch", **OPTIONS)
