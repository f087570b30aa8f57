"""Parameters that do not require a gradient are neither trained nor sent nor counted."""

import pytest
import torch
from torch import nn

from every_method import SPECS, train_quickly
from marks import long_but
from toys import small_federation
from unskew.errors import UnskewError

SIZES = (12, 10, 8, 8, 9, 7, 6)
VARIANTS = ["ifca", "fedgroup:mix=0.1", "cfl:wait=0,eps1=9,eps2=0"]
QUICK = ["fedavg", "fedbn", "fedper", "ditto", "scaffold", "feddyn", "median", "fedadam", "ifca"]
OPTIONS = {"rounds": 3, "weight_decay": 0.1, "momentum": 0.9}


class Network(nn.Module):
    """A frozen layer with BatchNorm's parameters, a trained layer and a head."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Linear(5, 6), nn.LayerNorm(6), nn.ReLU())
        self.middle = nn.Sequential(nn.Linear(6, 4), nn.ReLU())
        self.head = nn.Linear(4, 3)
        self.body.requires_grad_(False)

    def forward(self, x):
        return self.head(self.middle(self.body(x)))


FROZEN = 5 * 6 + 6 + 6 + 6
TRAINED = (6 * 4 + 4) + (4 * 3 + 3)


@pytest.mark.parametrize("runner", ["loop", "vectorised"])
def test_only_what_is_trained_is_sent_and_counted(runner):
    run = train_quickly(small_federation(SIZES), "fedavg", model=Network(), runner=runner)
    traffic = run.metrics[0]["traffic"]
    assert traffic["parameters_up"] == traffic["parameters_down"] == len(SIZES) * TRAINED
    assert traffic["bytes_up"] == traffic["bytes_down"] == 4 * len(SIZES) * TRAINED


@pytest.mark.parametrize("spec", long_but(QUICK, dict.fromkeys([*SPECS, *VARIANTS])))
def test_every_method_leaves_frozen_parameters_bit_for_bit(spec):
    federation, network = small_federation(SIZES, unit=True), Network()
    if spec.startswith("fedma"):
        with pytest.raises(UnskewError, match="no parameter may be frozen"):
            train_quickly(federation, spec, model=network)
        return
    run = train_quickly(federation, spec, model=network, **OPTIONS)
    end = run.model.state_dict()
    for name, value in network.body.state_dict().items():
        found = next(each for key, each in end.items() if key.endswith(f"body.{name}"))
        assert torch.equal(value, found), name
    usual = train_quickly(federation, spec, model=Network().requires_grad_(True), **OPTIONS)
    for direction in ("parameters_up", "parameters_down"):
        sent, before = (each.metrics[-1]["traffic"][direction] for each in (run, usual))
        models = before // (len(SIZES) * (TRAINED + FROZEN))  # or other values per parameter
        if spec.startswith(("fedgen", "moon")):  # a generator, a projection
            models = 1
        assert before - sent >= models * len(SIZES) * FROZEN, direction


def test_a_network_without_a_trained_parameter_is_refused():
    network = Network().requires_grad_(False)
    with pytest.raises(UnskewError, match="model: every parameter of Network is frozen"):
        train_quickly(small_federation(SIZES), "fedavg", model=network)
