"""FedFusion as a method: its state between rounds, and its diagnostics."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch import nn

import unskew as us
from unskew.aggregation.combine import weighted_sum
from unskew.aggregation.uploads import Uploads
from unskew.composition.values import Server
from unskew.errors import UnskewError
from unskew.methods import make_method
from unskew.methods.fedfusion import FedFusion
from unskew.models.functional import FunctionalModel
from unskew.models.layout import Layout, flatten

QUICK = {"steps": 3, "wide": 16, "narrow": 8}


def uploads_of(clients=6, seed=0):
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    layout = Layout.of(module)
    noise = torch.Generator().manual_seed(seed)
    stack = torch.rand(clients, layout.size, generator=noise)
    stack[:, layout.counters] = torch.arange(1.0, clients + 1)[:, None]
    return Uploads.of(stack, layout=layout)


def run_rounds(part, rounds, server=None):
    method = make_method(part)
    server = server or Server(torch.zeros(uploads_of().layout.size))
    servers, diagnostics = [], []
    for uploads in rounds:
        server, reported = method.aggregate(server, uploads)
        servers.append(server)
        diagnostics.append(reported)
    return servers, diagnostics


def test_weights_apply_to_parameters_and_statistics_and_counters_take_the_largest():
    uploads = uploads_of()
    (server,), (diagnostics,) = run_rounds(FedFusion(**QUICK), [uploads])
    weights = diagnostics["weights"]
    assert float(weights.std()) > 0
    expected = (weights.float()[:, None] * uploads.stack).sum(0)
    counters = uploads.layout.counters
    torch.testing.assert_close(server.vector[: counters.start], expected[: counters.start])
    assert server.vector[counters].tolist() == [6.0]
    assert diagnostics["allocation"].shape == (6, 2)
    assert set(diagnostics) == {"weights", "allocation", "cluster", "pi"}


def test_the_autoencoder_is_refitted_every_vae_every_rounds():
    servers, _ = run_rounds(FedFusion(vae_every=3, **QUICK), [uploads_of(seed=s) for s in range(7)])
    kept = [server.state["fedfusion/vae"] for server in servers]
    changed = [not torch.equal(a, b) for a, b in pairwise(kept)]
    assert changed == [False, False, True, False, False, True]
    assert [int(server.state["fedfusion/round"]) for server in servers] == [1, 2, 3, 4, 5, 6, 7]


def test_components_stay_when_fewer_clients_take_part():
    rounds = [uploads_of(10), uploads_of(2), uploads_of(1), uploads_of(5)]
    _, diagnostics = run_rounds(FedFusion(vae_every=2, **QUICK), rounds)
    assert [each["allocation"].shape for each in diagnostics] == [(10, 4), (2, 4), (1, 4), (5, 4)]
    assert diagnostics[2]["weights"].tolist() == [1.0]


def test_components_depend_on_all_clients_not_on_the_cohort():
    uploads = replace(uploads_of(clients=3), population=30)
    (server,), (diagnostics,) = run_rounds(FedFusion(**QUICK), [uploads])
    assert int(server.state["fedfusion/components"]) == 10
    assert diagnostics["allocation"].shape == (3, 10)


@pytest.mark.parametrize("order", ["ida+{}", "{}+ida"])
def test_literal_weights_cannot_be_multiplied_in_either_order(order):
    with pytest.raises(UnskewError, match="fedfusion replaces the clients' weights, to which ida"):
        make_method(order.format("fedfusion:normalise=literal,steps=3"))


def test_hooks_are_pure():
    part, rounds = FedFusion(deterministic=False, **QUICK), [uploads_of(seed=s) for s in (1, 2)]
    first, second = run_rounds(part, rounds), run_rounds(part, rounds)
    assert torch.equal(first[0][1].vector, second[0][1].vector)
    assert torch.equal(first[1][1]["weights"], second[1][1]["weights"])


def test_one_component_is_the_mean_bit_for_bit():
    uploads = uploads_of()
    (server,), _ = run_rounds(FedFusion(components=1, **QUICK), [uploads])
    even = torch.ones(6, dtype=torch.float64) / 6
    assert torch.equal(server.vector, weighted_sum(uploads.stack, even, uploads.layout))


def test_literal_weights_sum_to_clients_over_components():
    uploads = uploads_of(12)
    options = {"components": 4, "normalise": "literal", **QUICK}
    _, (diagnostics,) = run_rounds(FedFusion(**options), [uploads])
    assert float(diagnostics["weights"].sum()) == pytest.approx(3, abs=0.6)


@pytest.mark.parametrize("buffers", ["average", "local"])
def test_a_run_resumes_bit_for_bit(federation, tmp_path, buffers):
    method = FedFusion(components=2, vae_every=2, buffers=buffers, deterministic=False, **QUICK)
    options = {"model": "mlp:hidden=8,norm=batch", "batch_size": 8, "cohort": 3, "runner": "loop"}
    whole = us.train(federation, method, rounds=5, out=tmp_path / "whole", **options)
    us.train(federation, method, rounds=3, out=tmp_path / "half", **options)
    resumed = us.train(federation, method, rounds=5, out=tmp_path / "half", resume=True, **options)
    first, second = (
        flatten(run.model, FunctionalModel(run.model).layout) for run in (whole, resumed)
    )
    assert torch.equal(first, second)
    assert whole.client_tables == resumed.client_tables


PRINTED = "rho=literal,c=literal,b=literal,normalise=literal,deterministic=false,vae_every=1"


@pytest.mark.parametrize("options", ["rho=literal", "c=literal,deterministic=false", PRINTED])
def test_the_equations_as_printed_change_a_run_and_repeat(federation, options):
    settings = {"model": "mlp:hidden=8,norm=group", "batch_size": 8, "rounds": 2, "runner": "loop"}
    quick = "components=3,steps=3,wide=16,narrow=8"
    sampled = ",deterministic=false" if "deterministic" in options else ""
    default, first, second = (
        us.train(federation, f"fedfusion:{quick}{more}", **settings)
        for more in (sampled, f",{options}", f",{options}")
    )
    weights = [run.client_tables[0]["weight"] for run in (default, first, second)]
    assert weights[1] == weights[2]
    assert weights[0] != weights[1]
    is_printed = options == PRINTED
    assert (sum(weights[1]) == pytest.approx(1)) != is_printed
    assert first.metrics[-1]["global"]["accuracy"] == second.metrics[-1]["global"]["accuracy"]


def test_gaussian_proportions_need_the_literal_sum():
    with pytest.raises(UnskewError, match="b=literal may be negative, so it needs normalise=liter"):
        make_method("fedfusion:b=literal")
