"""Which methods have a trained global model, and which have personal ones."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch

import unskew as us
from unskew.methods import METHODS, Personalization, make_method

IMAGES = np.random.default_rng(0).random((40, 1, 4, 4), dtype=np.float32)
LABELS = np.random.default_rng(1).integers(0, 3, 40)
FEDERATION = us.Federation.from_arrays(IMAGES, LABELS, np.arange(40) % 4, holdout=0.2)
NETWORK = "mlp:hidden=6,norm=batch"
UNTRAINED = {"local", "fedper", "fedrep", "fedas", "fedproto"}
"""Methods that keep what the global model would need on the clients."""
TRAINED = {"cfl", "ditto", "fedala", "fedbabu", "fedbn", "feddbe", "fedgroup", "fedpac", "fedrod"}
TRAINED |= {"fesem", "ifca"}


def models_of(method, model=NETWORK):
    run = us.train(FEDERATION, method, model=model, rounds=1, batch_size=4, progress=False)
    return run.metadata["models"]


@pytest.mark.parametrize("name", sorted(METHODS))
def test_methods_for_personal_models_are_those_whose_parts_keep_or_compute_them(name):
    method = make_method(name)
    assert method.may_personalize == (METHODS[name].about.level == "personal")
    if method.may_personalize:
        models = models_of(name)
        assert models["personal"]
        if name in TRAINED | UNTRAINED:  # those of a new method are for its own tests
            assert models["global"] == (name in TRAINED)


@pytest.mark.parametrize(
    ("method", "model", "known"),
    [
        ("fedavg", NETWORK, (True, False)),
        ("fedavg:buffers=local", NETWORK, (True, True)),
        ("fedbn", "mlp:hidden=6", (True, False)),  # there is nothing that could stay
        ("fedbn:fallback=initial", NETWORK, (False, True)),
        ("fedper:fallback=average", NETWORK, (True, True)),
        ("ida+local", NETWORK, (False, True)),
        ("fedrod:head=hypernetwork", NETWORK, (True, True)),
    ],
)
def test_options_and_networks_decide_what_there_is(method, model, known):
    assert tuple(models_of(method, model).values()) == known


@dataclass(frozen=True, kw_only=True)
class OwnBody(Personalization):
    """A custom part, which says nothing about its level."""

    def stays(self, layout):
        mask = torch.zeros(layout.size, dtype=torch.bool)
        mask[:5] = True
        return mask


def test_a_custom_part_that_keeps_weights_is_meant_for_personal_models():
    assert models_of(OwnBody()) == {"global": False, "personal": True}
    assert make_method(OwnBody()).about.level == "personal"
