"""FedMA recovers networks that differ in the order of their units; FedDNA pools moments."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import unskew as us
from toys import vector_of
from unskew.aggregation.chain import chain_of, renumber
from unskew.aggregation.matching import orders_of
from unskew.aggregation.uploads import Uploads
from unskew.composition.values import Beginning, Server
from unskew.errors import UnskewError
from unskew.methods import make_method
from unskew.methods.feddna import FedDNA
from unskew.methods.fedma import FedMA
from unskew.models import make
from unskew.models.functional import FunctionalModel
from unskew.models.layout import Layout, flatten

OPTIONS = {"model": "mlp:hidden=8", "rounds": 3, "batch_size": 8, "lr": 0.1}
CHAINS = {
    "mlp:hidden=9-7": (5,),
    "mlp:hidden=9,norm=batch": (5,),
    "mlp:hidden=9,norm=layer": (5,),
    "lenet5": (1, 16, 16),
    "feddisk-cnn:channels=4": (1, 16, 16),
}


def random_network(name, shape, seed=0):
    network = FunctionalModel(make(name, shape, 3, seed=seed))
    noise = torch.Generator().manual_seed(seed)
    vector = flatten(network.module, network.layout)
    vector += 0.1 * torch.rand(len(vector), generator=noise)
    vector[network.layout.counters] = 0
    return network, vector


def output(network, vector, x):
    trainable = network.layout.trainable
    network.module.eval()
    with torch.no_grad():
        return network(vector[:trainable], network.buffers_of(vector[trainable:]), x)


def reordered(network, vector, seed):
    layers, other = chain_of(network.layout), vector.clone()
    for number, layer in enumerate(layers[:-1]):
        noise = torch.Generator().manual_seed(10 * seed + number)
        renumber(other, layers, number, torch.randperm(layer.units, generator=noise))
    return other


@pytest.mark.parametrize(("name", "shape"), CHAINS.items())
def test_clients_equal_up_to_the_order_of_units_give_that_function(name, shape):
    network, vector = random_network(name, shape)
    stack = torch.stack([vector, *(reordered(network, vector, seed) for seed in (1, 2))])
    counts = torch.tensor([[3, 0, 1], [2, 0, 5], [1, 0, 1]])
    uploads = Uploads.of(stack, samples=[2, 5, 1], layout=network.layout, label_counts=counts)
    x = torch.rand(4, *shape)
    server, diagnostics = make_method(FedMA()).aggregate(Server(vector), uploads)
    expected = output(network, vector, x)
    torch.testing.assert_close(output(network, server.vector, x), expected, rtol=1e-4, atol=1e-4)
    plain = stack.mean(0)
    assert not torch.allclose(output(network, plain, x), expected, atol=1e-3)
    assert diagnostics["renumbered"].tolist() == [
        1.0,
        0.0,
        1.0,
    ]  # the largest client sets the order


@pytest.mark.parametrize("name", ["mlp:hidden=6", "mlp:hidden=6,norm=batch"])
def test_one_client_is_itself_bit_for_bit(name):
    network, vector = random_network(name, (5,))
    counts = torch.tensor([[4, 0, 1]])
    uploads = Uploads.of(vector[None], layout=network.layout, label_counts=counts)
    assert torch.equal(make_method(FedMA()).aggregate(Server(vector), uploads)[0].vector, vector)


@given(seed=st.integers(0, 300), clients=st.integers(2, 4))
def test_matching_never_leaves_clients_farther_apart(seed, clients):
    noise = torch.Generator().manual_seed(seed)
    units = [torch.randn(4, 3, generator=noise).double() for _ in range(clients)]

    def spread(orders):
        stack = torch.stack([each[order] for each, order in zip(units, orders, strict=True)])
        return float((stack - stack.mean(0)).square().sum())

    first = list(range(clients))
    passes = [spread(orders_of(units, first, sweeps)) for sweeps in range(4)]
    assert all(b <= a + 1e-9 for a, b in pairwise(passes))
    if clients == 2:
        assert passes[0] <= spread([torch.arange(4)] * 2) + 1e-9


def test_the_head_is_averaged_by_class():
    layout = Layout.of(nn.Linear(1, 2))
    stack = torch.tensor([[1.0, 10, 0, 0], [5.0, 30, 4, 2]])
    counts = torch.tensor([[3, 0], [1, 0]])
    uploads = Uploads.of(stack, samples=[3, 1], layout=layout, label_counts=counts)
    vector = make_method(FedMA()).aggregate(Server(torch.zeros(4)), uploads)[0].vector
    assert vector.tolist() == [2.0, 15.0, 1.0, 0.5]  # no client has class 1: by all samples
    uploads = Uploads.of(stack, samples=[3, 1], layout=layout, label_counts=counts + torch.eye(2))
    vector = make_method(FedMA()).aggregate(Server(torch.zeros(4)), uploads)[0].vector
    torch.testing.assert_close(vector, torch.tensor([9 / 5, 30.0, 4 / 5, 2.0]))


def test_without_hidden_layers_it_is_fedavg(federation):
    options = OPTIONS | {"model": "logistic"}
    runs = [us.train(federation, m, **options) for m in ("fedma:head=samples", "fedavg")]
    trainable = Layout.of(runs[0].model).trainable
    pooled, plain = (vector_of(run)[:trainable] for run in runs)
    assert torch.equal(pooled, plain)
    assert runs[0].cost == runs[1].cost


def test_the_histogram_is_counted(federation):
    run = us.train(federation, "fedma", model="logistic", rounds=2, evaluate_every=0)
    assert run.cost.parameters_up == 2 * 4 * (18 + 3)
    assert run.cost.bytes_up == 2 * 4 * (18 * 4 + 3 * 8)


@pytest.mark.parametrize("method", ["fedma", "fedma+ida+fedadam", "feddna"])
def test_vectorised_equals_the_loop(federation, method):
    runs = [us.train(federation, method, runner=r, **OPTIONS) for r in ("loop", "vectorised")]
    torch.testing.assert_close(vector_of(runs[0]), vector_of(runs[1]), rtol=1e-4, atol=1e-5)


class Shortcut(nn.Module):
    """A chain by its shapes, with a shortcut that has no parameters."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(5, 4), nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x):
        hidden = torch.relu(self.a(x))
        return self.c(hidden + torch.relu(self.b(hidden)))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Shortcut(), "fedma cannot match units across shortcuts"),
        ("mlp:hidden=16,norm=group", "fedma cannot match units across shortcuts, groups"),
        (nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4, affine=False), nn.Linear(4, 3)), "1.run"),
    ],
)
def test_other_networks_are_rejected_before_the_first_round(federation, model, message):
    with pytest.raises(UnskewError, match=rf"model: {message}"):
        us.train(federation, "fedma", model=model, rounds=1)


@pytest.mark.parametrize("name", ["resnet18", "mobilenetv2", "densenet121"])
def test_the_deep_networks_with_residuals_are_rejected(name):
    layout = Layout.of(make(name, (3, 32, 32), 3))
    with pytest.raises(UnskewError, match="does not fit the previous layer"):
        chain_of(layout)


def test_text_and_local_buffers_are_rejected(federation):
    bilstm = FunctionalModel(make("bilstm:embedding=3,hidden=2", (6,), 2, vocabulary=12))
    with pytest.raises(UnskewError, match="units cannot be matched"):
        make_method(FedMA()).check(bilstm, torch.ones(2, 6, dtype=torch.int32))
    with pytest.raises(UnskewError, match="use buffers=average"):
        us.train(federation, "fedma:buffers=local", model="mlp:norm=batch", rounds=1)


# FedDNA.

NORMED = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))


def test_pooled_statistics_are_those_of_all_samples_together():
    rng = np.random.default_rng(0)
    samples = [rng.normal(loc=3 * k, size=(n, 4)) for k, n in enumerate((6, 10, 4))]
    layout = Layout.of(NORMED)
    rows = []
    for own in samples:
        module = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
        module[1].running_mean = torch.from_numpy(own.mean(0)).float()
        module[1].running_var = torch.from_numpy(own.var(0)).float()
        rows.append(flatten(module, layout))
    uploads = Uploads.of(torch.stack(rows), samples=[6, 10, 4], layout=layout)
    server, diagnostics = make_method(FedDNA()).aggregate(Server(rows[0]), uploads)
    pooled = np.concatenate(samples)
    tensors = layout.tensors(server.vector)
    np.testing.assert_allclose(tensors["1.running_mean"], pooled.mean(0), rtol=1e-5)
    np.testing.assert_allclose(tensors["1.running_var"], pooled.var(0), rtol=1e-5)
    within = np.average([own.var(0) for own in samples], axis=0, weights=[6, 10, 4])
    between = float((pooled.var(0) - within).mean())
    assert diagnostics["variance between clients"].tolist() == pytest.approx([between], rel=1e-4)


def test_only_variances_differ_from_fedavg(federation):
    options = {"model": NORMED, "rounds": 1, "batch_size": 8, "runner": "loop"}
    pooled, plain = (vector_of(us.train(federation, m, **options)) for m in ("feddna", "fedavg"))
    layout = Layout.of(NORMED)
    (variance,) = [entry.slice for entry in layout if entry.name.endswith("running_var")]
    differs = (pooled != plain).nonzero().flatten().tolist()
    assert differs
    assert set(differs) <= set(range(variance.start, variance.stop))
    assert bool((pooled[variance] >= plain[variance]).all())


@pytest.mark.parametrize("options", [{}, {"model": NORMED, "runner": "loop"}])
def test_where_clients_use_no_pooled_statistics_it_is_fedavg(federation, options):
    options = OPTIONS | options
    local = ":buffers=local" if "runner" in options else ""
    runs = [us.train(federation, name + local, **options) for name in ("feddna", "fedavg")]
    trainable = Layout.of(runs[0].model).trainable
    pooled, plain = (vector_of(run)[:trainable] for run in runs)
    assert torch.equal(pooled, plain)
    assert runs[0].cost == runs[1].cost


@pytest.mark.parametrize("rule", ["median", "trimmed", "fedsa", "bulyan", "fedma"])
def test_rules_that_combine_statistics_themselves_are_rejected(rule):
    with pytest.raises(UnskewError, match="both replace how norm statistics are combined"):
        make_method(f"feddna+{rule}")


@pytest.mark.parametrize("method", ["feddna+feddyn", "feddyn+feddna"])
def test_the_model_that_feddyn_evaluates_has_the_pooled_variance(method):
    layout = Layout.of(NORMED)
    (mean,), (variance,) = (
        [entry.slice for entry in layout if entry.name.endswith(name)]
        for name in ("running_mean", "running_var")
    )
    rows = torch.zeros(2, layout.size)
    rows[:, variance] = 1.0
    rows[0, mean], rows[1, mean] = -2.0, 2.0
    made = make_method(method)
    server, _ = made.aggregate(
        made.begin(Beginning(rows[0], layout)), Uploads.of(rows, samples=[1, 1], layout=layout)
    )
    assert made.model(server)[variance].tolist() == [5.0] * 4
    assert server.vector[variance].tolist() == [5.0] * 4


def test_averaging_by_class_needs_one_output_per_class(federation):
    network = nn.Linear(federation.train.x[0].size, federation.classes + 1)
    with pytest.raises(UnskewError, match="needs one output per class"):
        us.train(federation, "fedma:head=classes", model=network, rounds=1)


def test_feddna_needs_the_weights_of_a_rule():
    uploads = Uploads.of(torch.zeros(2, Layout.of(NORMED).size), layout=Layout.of(NORMED))
    server = Server(uploads.previous)
    with pytest.raises(UnskewError, match="this rule has none"):
        FedDNA().conclude(server, server, uploads, {})
