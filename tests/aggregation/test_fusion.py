"""FedFusion's client weighting, from uploads to weights."""

import pytest
import torch
from torch import nn

from unskew.aggregation import fusion
from unskew.aggregation.fusion import Fusion
from unskew.aggregation.uploads import Uploads
from unskew.aggregation.weighting import by_samples, uniform
from unskew.errors import UnskewError
from unskew.models import make
from unskew.models.layout import Layout, flatten

QUICK = {"steps": 3, "wide": 16, "narrow": 8}


def network(name):
    if name == "layer norm":
        return nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.Linear(6, 3))
    return make(name, (1, 16, 16), 3)


def uploads_of(module=None, clients=6, spread=0.1, **more):
    layout = Layout.of(module or network("mlp:hidden=5,norm=batch"))
    start = flatten(module or network("mlp:hidden=5,norm=batch"), layout)
    noise = torch.Generator().manual_seed(1)
    stack = start + spread * torch.randn(clients, layout.size, generator=noise).abs()
    return Uploads.of(stack, layout=layout, **more)


@pytest.mark.parametrize("clients", [1, 2, 3, 7, 30])
@pytest.mark.parametrize("deterministic", [True, False])
def test_weights_are_on_the_simplex(clients, deterministic):
    weights = fusion(deterministic=deterministic, **QUICK)(uploads_of(clients=clients))
    assert weights.shape == (clients,)
    assert float(weights.sum()) == pytest.approx(1)
    assert bool((weights >= 0).all())


@pytest.mark.parametrize(
    "name", ["mlp:hidden=5,norm=none", "mlp:hidden=8,norm=group", "layer norm", "feddisk-cnn"]
)
def test_any_network_is_supported(name):
    uploads = uploads_of(network(name))
    explained = fusion(**QUICK).explain(uploads)
    assert explained["allocation"].shape == (6, 2)
    assert explained["cluster"].tolist() == explained["allocation"].argmax(1).tolist()
    assert float(explained["pi"].sum()) == pytest.approx(1)
    assert float(explained["weights"].sum()) == pytest.approx(1)


@pytest.mark.parametrize("clients", [1, 3, 49])
def test_one_component_is_the_mean_or_fedavg_bit_for_bit(clients):
    uploads = uploads_of(clients=clients, samples=range(1, clients + 1))
    assert torch.equal(fusion(components=1, **QUICK)(uploads), uniform()(uploads))
    weights = fusion(components=1, prior="samples", **QUICK)(uploads)
    assert torch.equal(weights, by_samples()(uploads))


def test_the_default_number_of_components_depends_on_the_clients():
    counts = [Fusion().sized_for(clients).components for clients in (1, 3, 4, 10, 45, 46, 1000)]
    assert counts == [1, 1, 2, 4, 15, 15, 15]
    assert Fusion(components=3).sized_for(100).components == 3


def test_identical_clients_have_equal_weights():
    explained = fusion(components=3, **QUICK).explain(uploads_of(spread=0.0))
    torch.testing.assert_close(explained["weights"], torch.full((6,), 1 / 6).double())
    assert len(explained["cluster"].unique()) == 1


def test_half_the_clients_identical():
    uploads = uploads_of()
    stack = uploads.stack.clone()
    stack[:3] = stack[0]
    weights = fusion(components=3, **QUICK)(Uploads.of(stack, layout=uploads.layout))
    torch.testing.assert_close(weights[:3], weights[:1].expand(3))


@pytest.mark.parametrize("deterministic", [True, False])
def test_permuted_clients_get_permuted_weights(deterministic):
    uploads = uploads_of(samples=[1, 2, 3, 4, 5, 6])
    order = torch.tensor([3, 1, 5, 0, 2, 4])
    permuted = Uploads.of(uploads.stack[order], uploads.samples[order], uploads.layout)
    rule = fusion(components=3, prior="samples", deterministic=deterministic, wide=64, narrow=32)
    weights = rule(uploads)
    assert float(weights.std()) > 0.01
    torch.testing.assert_close(rule(permuted), weights[order], atol=1e-12, rtol=0)


def test_the_same_uploads_and_seed_give_the_same_bits():
    uploads = uploads_of()
    before = torch.get_rng_state()
    first, second = (fusion(seed=4, deterministic=False, **QUICK)(uploads) for _ in range(2))
    assert torch.equal(first, second)
    assert not torch.equal(first, fusion(seed=5, deterministic=False, **QUICK)(uploads))
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_weights_do_not_depend_on_the_scale_of_models(scale):
    uploads = uploads_of(network("mlp:hidden=5,norm=none"))
    scaled = Uploads.of(uploads.stack * scale, layout=uploads.layout)
    torch.testing.assert_close(fusion(**QUICK)(scaled), fusion(**QUICK)(uploads), atol=1e-3, rtol=0)


def test_custom_statistics_describe_clients():
    uploads = uploads_of(samples=[1, 1, 1, 9, 9, 9])
    explained = fusion(stats=lambda u: u.samples[:, None], components=2, **QUICK).explain(uploads)
    first, second = explained["allocation"][:3], explained["allocation"][3:]
    torch.testing.assert_close(first, first[:1].expand(3, 2))
    assert not torch.allclose(first, second)


@pytest.mark.parametrize(
    ("stats", "message"),
    [
        (lambda u: u.samples, "stats must return 6 rows"),
        (lambda u: u.stack[:2], "stats must return 6 rows"),
        (lambda u: u.stack[:, :1] / 0, "stats must return finite numbers"),
    ],
)
def test_invalid_custom_statistics_are_rejected(stats, message):
    with pytest.raises(UnskewError, match=message):
        fusion(stats=stats, **QUICK)(uploads_of())


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"components": 0}, "components must be greater than or equal to 1"),
        ({"temperature": 0}, "temperature must be greater than 0"),
        ({"pi": "even"}, "pi must be 'softmax' or 'mass'"),
        ({"component": 3}, "did you mean 'components'"),
    ],
)
def test_bad_options_are_named(option, message):
    with pytest.raises(UnskewError, match=message):
        fusion(**option)


def test_the_number_of_components_comes_first():
    uploads = uploads_of(clients=7)
    assert fusion(2, **QUICK).explain(uploads)["allocation"].shape == (7, 2)
    assert fusion(**QUICK).explain(uploads)["allocation"].shape == (7, 3)  # a third, rounded up
    with pytest.raises(UnskewError, match="components"):
        fusion(0)


def test_gaussian_proportions_are_refused_where_they_are_normalised():
    with pytest.raises(UnskewError, match="b=literal may be negative, so it needs normalise=liter"):
        Fusion(b="literal")
    with pytest.raises(UnskewError, match=r"needs normalise=literal and pi=softmax .*pi=mass"):
        Fusion(b="literal", normalise="literal", pi="mass")
    with pytest.raises(UnskewError, match="use it with the method fedfusion"):
        fusion(b="literal", normalise="literal")
