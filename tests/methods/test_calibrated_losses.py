"""FedLC and FedRS: FedAvg as a special case, the losses by hand, and what becomes of gradients."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import unskew as us
from toys import federation_of, vector_of
from unskew.composition.values import Client, Start, Step
from unskew.methods.fedlc import FedLC
from unskew.methods.fedrs import FedRS
from unskew.models.functional import Batch, FunctionalModel
from unskew.models.layout import flatten

OPTIONS = {"model": "mlp:hidden=6", "rounds": 3, "batch_size": 8, "lr": 0.1}
X = torch.tensor([[1.0, 2.0], [0.5, -1.0], [3.0, 0.0]])
Y = torch.tensor([0, 0, 2])


def losses(part, outputs=3, x=X, y=Y, classes=3):
    """Losses, logits and weights of a client with two samples of class 0 and one of class 2."""
    torch.manual_seed(0)
    network = FunctionalModel(nn.Linear(2, outputs))
    client = Client(0, x, y, network, classes)
    vector = flatten(network.module, network.layout).requires_grad_()
    start = part.prepare(client, Start(vector, vector), {}, {})
    batch = Batch(x, y, torch.full((len(y),), 1 / len(y)))
    step = Step(network, vector, {}, batch)
    return part.losses(step, start.refs), network.module(x), vector


@pytest.mark.parametrize("runner", ["loop", "vectorised"])
@pytest.mark.parametrize("neutral", ["fedlc:tau=0", "fedrs:alpha=1", "fedrs:alpha=1,soft=true"])
def test_special_cases_are_fedavg_bit_for_bit(federation, runner, neutral):
    options = OPTIONS | {"runner": runner}
    assert torch.equal(
        *(vector_of(us.train(federation, m, **options)) for m in ("fedavg", neutral))
    )


def test_fedlc_by_hand():
    """n = (2, 0, 1): margins tau 2^(-1/4), infinite, and tau."""
    found, logits, _ = losses(FedLC(tau=0.5))
    shifted = logits[:, [0, 2]] - torch.tensor([0.5 * 2**-0.25, 0.5])
    torch.testing.assert_close(found, F.cross_entropy(shifted, Y // 2, reduction="none"))


def test_fedlc_demands_a_larger_margin_of_rare_classes():
    """The paper's formula: the loss of class y falls if other classes are rarer than y."""
    (common, _, rare), _, _ = losses(FedLC(tau=4.0), x=torch.ones(3, 2))
    (plain, _, also), _, _ = losses(FedLC(tau=0.0), x=torch.ones(3, 2))
    assert common < plain
    assert rare - also > common - plain


def test_fedrs_by_hand():
    found, logits, _ = losses(FedRS(alpha=0.25))
    restricted = logits * torch.tensor([1.0, 0.25, 1.0])
    torch.testing.assert_close(found, F.cross_entropy(restricted, Y, reduction="none"))


def test_fedrs_of_the_authors_code_has_factors_between_alpha_and_one():
    """Shares relative to the largest are (1, 0, 1/2): factors 1, 0.25 and 0.625."""
    found, logits, _ = losses(FedRS(alpha=0.25, soft=True))
    restricted = logits * torch.tensor([1.0, 0.25, 0.625])
    torch.testing.assert_close(found, F.cross_entropy(restricted, Y, reduction="none"))


@pytest.mark.parametrize(("part", "share"), [(FedLC(), 0.0), (FedRS(alpha=0.0), 0.0)])
def test_missing_classes_are_not_pushed_away(part, share):
    found, _, vector = losses(part)
    (gradient,) = torch.autograd.grad(found.sum(), vector)
    rows = gradient[:6].view(3, 2)
    assert torch.isfinite(gradient).all()
    assert not bool(rows[1].any())
    assert bool(rows[[0, 2]].any(1).all())


@pytest.mark.parametrize("part", [FedLC(), FedRS()])
def test_outputs_that_no_class_uses_count_as_missing(part):
    wide, logits, _ = losses(part, outputs=5)
    factors, margins = torch.ones(5), torch.zeros(5)
    if isinstance(part, FedRS):
        factors[[1, 3, 4]] = 0.5
    else:
        margins[:] = torch.tensor([2**-0.25, np.inf, 1.0, np.inf, np.inf])
    expected = F.cross_entropy(logits * factors - margins, Y, reduction="none")
    torch.testing.assert_close(wide, expected)


@pytest.mark.parametrize("method", ["fedlc", "fedrs", "fedlc+fedntd", "fedrs:soft=true+fedprox"])
def test_clients_with_one_class_or_one_sample_train_on_all_runners(method):
    rng = np.random.default_rng(0)
    clients = [(rng.normal(size=(n, 5)), np.full(n, c)) for n, c in ((9, 0), (1, 1), (7, 2))]
    federation = federation_of(*clients, (rng.normal(size=(8, 5)), np.arange(8) % 3))
    runs = [us.train(federation, method, runner=r, **OPTIONS) for r in ("loop", "vectorised")]
    assert torch.isfinite(vector_of(runs[0])).all()
    torch.testing.assert_close(*map(vector_of, runs), rtol=1e-4, atol=1e-5)
