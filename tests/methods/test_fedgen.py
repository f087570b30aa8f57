"""FedGen: its terms by hand, the generator's training, and FedAvg as a special case."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import unskew as us
from toys import vector_of
from unskew.errors import UnskewError
from unskew.methods import make_method
from unskew.methods.common.generator import (
    Generator,
    GeneratorTraining,
    Heads,
    Shape,
    diversity_loss,
)
from unskew.methods.fedgen import FedGen
from unskew.models import make
from unskew.models.functional import Batch, FunctionalModel

QUICK = {"model": "mlp:hidden=8", "rounds": 3, "batch_size": 8, "lr": 0.1}
SMALL = {"hidden": 8, "noise": 4, "samples": 9, "generator_steps": 3, "generator_batch": 8}


@pytest.mark.parametrize("runner", ["loop", "vectorised"])
def test_without_strength_it_is_fedavg_bit_for_bit(federation, runner):
    plain = us.train(federation, "fedavg", runner=runner, **QUICK)
    gen = us.train(federation, "fedgen:alpha=0,beta=0", runner=runner, **QUICK)
    assert torch.equal(vector_of(plain), vector_of(gen))
    assert plain.cost == gen.cost


def test_the_first_round_is_fedavg_s_and_the_second_is_not(federation):
    for rounds, same in ((1, True), (2, False)):
        runs = [
            us.train(federation, method, **QUICK | {"rounds": rounds})
            for method in ("fedavg", FedGen(**SMALL))
        ]
        assert torch.allclose(vector_of(runs[0]), vector_of(runs[1]), atol=1e-5) == same


def test_the_terms_by_hand():
    """Two classes, two draws each, a linear network: both terms from torch's own functions."""
    network = FunctionalModel(make("logistic", (2,), 2))
    weights = torch.tensor([1.0, -1.0, 0.5, 2.0, 0.1, -0.2])
    generated = torch.tensor([[[1.0, 0.0], [0.0, 1.0]], [[2.0, 1.0], [-1.0, 1.0]]])
    refs = {
        "fedgen/features": generated,
        "fedgen/shares": torch.tensor([0.5, 0.5]),
        "fedgen/decay": torch.tensor(0.25),
    }
    x, y = torch.tensor([[1.0, 2.0], [3.0, -1.0], [0.0, 1.0]]), torch.tensor([1, 0, 1])
    batch = Batch(x, y, torch.tensor([0.5, 0.5, 0.0]))

    def head(z):
        return F.linear(z, weights[:4].view(2, 2), weights[4:])

    plain = us.Method().objective(network, weights, {}, batch, {})
    named = F.cross_entropy(head(generated.view(4, 2)), torch.tensor([0, 0, 1, 1]))
    teacher = head(torch.stack([generated[1, 0], generated[0, 1]])).log_softmax(-1)
    agreed = F.kl_div(head(x[:2]).log_softmax(-1), teacher, log_target=True, reduction="batchmean")
    expected = plain + 0.25 * (3 * named + 5 * agreed)
    whole = make_method(FedGen(alpha=3, beta=5)).objective(network, weights, {}, batch, refs)
    assert whole.item() == pytest.approx(expected.item(), rel=1e-5)


def test_a_class_without_samples_is_left_out():
    network = FunctionalModel(make("logistic", (2,), 2))
    weights = torch.randn(6)
    batch = Batch(torch.randn(1, 2), torch.tensor([1]), torch.ones(1))

    def objective(generated_for_class_1):
        refs = {
            "fedgen/features": torch.stack([torch.ones(2, 2), generated_for_class_1]),
            "fedgen/shares": torch.tensor([1.0, 0.0]),
            "fedgen/decay": torch.tensor(1.0),
        }
        return make_method(FedGen()).objective(network, weights, {}, batch, refs).item()

    assert objective(torch.zeros(2, 2)) == objective(torch.randn(2, 2))


def test_the_diversity_loss_by_hand():
    noise = torch.tensor([[0.0, 0.0], [2.0, 0.0]])
    same, apart = torch.ones(2, 2), torch.tensor([[0.0, 0.0], [3.0, 1.0]])
    assert diversity_loss(same, noise).item() == 1
    # Two of the four pairs are apart: features by (3 + 1)/2, noise by (4 + 0)/2.
    assert diversity_loss(apart, noise).item() == pytest.approx(math.exp(-(2 * 2 * 2) / 4))


def test_heads_are_weighted_by_their_clients_class_counts():
    heads = Heads(torch.tensor([[[5.0], [0.0]], [[0.0], [5.0]]]), None)
    features, y = torch.ones(1, 1), torch.tensor([0])
    believes, doubts = math.log(1 + math.exp(-5)), math.log(1 + math.exp(5))
    for share in (1.0, 0.25):
        shares = torch.tensor([[share, 0.5], [1 - share, 0.5]])
        expected = share * believes + (1 - share) * doubts
        assert heads.cross_entropy(features, y, shares).item() == pytest.approx(expected, rel=1e-5)


def test_the_generator_learns_from_the_heads():
    shape = Shape(classes=3, noise=4, hidden=16, features=5)
    noise = torch.Generator().manual_seed(0)
    heads = Heads(torch.randn(2, 3, 5, generator=noise), torch.randn(2, 3, generator=noise))
    generator, counts = Generator(shape), torch.tensor([[9, 0, 5], [0, 3, 5]])
    start = Generator.initial_parameters(shape, 0)
    kept = start.clone()
    fitted, loss = generator.fit(start, heads, counts, GeneratorTraining(150, 32, 0.01, 1.0), 0)
    again, _ = generator.fit(start, heads, counts, GeneratorTraining(150, 32, 0.01, 1.0), 0)
    assert torch.equal(start, kept)
    assert torch.equal(fitted, again)
    y = torch.arange(3).repeat_interleave(20)
    made = generator(fitted, y, torch.randn(60, 4, generator=noise))
    shares = counts / counts.sum(0)
    assert heads.cross_entropy(made, y, shares).item() < 0.2
    assert loss < 1.2
    assert made.view(3, 20, 5).std(1).mean() > 0.1  # not one point per class


def test_traffic(federation):
    plain = us.train(federation, "fedavg", **QUICK).cost
    gen = us.train(federation, FedGen(**SMALL), **QUICK).cost
    generator = (3 + 4) * 8 + 8 + 2 * 8 + 8 * 8 + 8
    assert gen.parameters_up - plain.parameters_up == 3 * 4 * 3  # label counts
    assert gen.parameters_down - plain.parameters_down == 2 * 4 * (generator + 3 + 1)
    assert gen.bytes_down - plain.bytes_down == 2 * 4 * (4 * generator + 3 + 8)


def test_a_network_without_a_linear_head_is_rejected(federation):
    module = nn.Sequential(nn.Linear(5, 3), nn.LogSoftmax(1))
    with pytest.raises(UnskewError, match="model: fedgen needs a network that ends in a linear"):
        us.train(federation, "fedgen", **QUICK | {"model": module})
