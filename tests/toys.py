"""Small federations and helper functions that many tests share."""

import numpy as np
import torch
import torch.nn.functional as F

from unskew.data.columns import Columns
from unskew.data.federation import Federation
from unskew.models.functional import FunctionalModel
from unskew.models.layout import flatten


def small_federation(
    sizes=(40, 25, 13, 7), *, features=5, classes=3, seed=0, holdout=0.2, unit=False
) -> Federation:
    """Clients of unequal sizes whose labels follow a linear rule plus noise.

    Features are normal, or between 0 and 1 with ``unit``.
    """
    rng = np.random.default_rng(seed)
    samples = sum(sizes)
    x = rng.normal(size=(samples, features)).astype(np.float32)
    y = (x @ rng.normal(size=(features, classes)) + rng.normal(size=(samples, classes))).argmax(1)
    if unit:
        x = 1 / (1 + np.exp(-x))
    owner = np.repeat(np.arange(len(sizes)), sizes)
    common = (x[:30] + 0.1, y[:30])
    return Federation.from_arrays(
        x, y, owner, common=common, holdout=holdout, classes=classes, seed=seed
    )


def federation_of(*clients, common=None, test=None, classes=3) -> Federation:
    """A federation with one client per (x, y) pair, which may be empty."""
    train = _columns(clients)
    return Federation(
        train=train,
        test=Columns.empty_like(train) if test is None else _columns(test),
        common=_columns([train.client(0) if common is None else common]),
        classes=classes,
    )


def opposed(samples=60):
    """Four clients with the same rule; two of them have swapped labels."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4, samples, 5)).astype(np.float32)
    y = (x[..., 0] > 0).astype(np.int64)
    y[[1, 3]] = 1 - y[[1, 3]]
    return federation_of(*zip(x, y, strict=True), test=list(zip(x, y, strict=True)), classes=2)


def vector_of(run) -> torch.Tensor:
    """The final model of a run as one vector."""
    return flatten(run.model, FunctionalModel(run.model).layout)


def loss_after_steps(module, part, federation, client, steps) -> float:
    """A client's test loss after full-batch steps (lr 0.1) on a part of a module."""
    optimizer = torch.optim.SGD(part.parameters(), 0.1)
    x, y = (torch.from_numpy(each) for each in federation.train.client(client))
    for _ in range(steps):
        optimizer.zero_grad()
        F.cross_entropy(module(x), y.long()).backward()
        optimizer.step()
    x, y = (torch.from_numpy(each) for each in federation.test.client(client))
    return F.cross_entropy(module(x), y.long()).item()


def _columns(clients):
    x = np.concatenate([np.asarray(x, np.float32) for x, _ in clients])
    y = np.concatenate([np.asarray(y, np.int64) for _, y in clients])
    ends = np.cumsum([len(y) for _, y in clients])
    return Columns(x, y, np.concatenate([[0], ends]).astype(np.int64))


def slope(run, federation, weight_decay):
    """The largest absolute derivative of the mean training loss at a run's final model."""
    x, y = torch.from_numpy(federation.train.x), torch.from_numpy(federation.train.y).long()
    parameters = list(run.model.parameters())
    loss = F.cross_entropy(run.model(x), y)
    loss = loss + weight_decay / 2 * sum(p.square().sum() for p in parameters)
    return max(float(part.abs().max()) for part in torch.autograd.grad(loss, parameters))
