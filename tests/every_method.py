"""All registered methods, with options that make the slow ones quick."""

import warnings

import torch

import unskew as us
from unskew.errors import UnskewWarning
from unskew.methods import METHODS
from unskew.models.functional import FunctionalModel
from unskew.models.layout import flatten

QUICK = {
    "feddisk": "feddisk:density_rounds=2,local_rounds=1,ratio_rounds=2,hidden=4,ratio_hidden=4",
    "latent": "latent:encoder=8,vae_rounds=1",
    "fedgen": "fedgen:hidden=8,generator_steps=2",
    "moon": "moon:projection=16",
    "ccvr": "ccvr:samples=5",
    "fedrep": "fedrep:head_epochs=1",
    "fedbabu": "fedbabu:epochs=1",
}
SPECS = [QUICK.get(name, name) for name in METHODS]
POOLED = ("central", "data-sharing")
"""The methods that need the samples of all clients in one place."""
ON_NODES = {name: QUICK.get(name, name) for name in METHODS if name not in POOLED}


def train_quickly(federation, method, **options):
    """Train quickly; a method may warn about unusual data."""
    usual = {"batch_size": 4, "lr": 0.1, "model": "mlp:hidden=6"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnskewWarning)
        return us.train(federation, method, **usual | options)


def is_finite(run) -> bool:
    return bool(torch.isfinite(flatten(run.model, FunctionalModel(run.model).layout)).all())
