"""IDA, INTRAC, FedDisco and FedSA as methods: what clients send, and the papers' invariants."""

import numpy as np
import pytest
import torch

import unskew as us
from toys import small_federation
from unskew.aggregation.uploads import Uploads
from unskew.errors import UnskewError
from unskew.methods.rfa import RFA
from unskew.models.functional import FunctionalModel
from unskew.models.layout import flatten

OPTIONS = {"model": "logistic", "rounds": 3, "batch_size": 8, "lr": 0.1, "epochs": 2}


def final(method: str, federation=None, **options) -> torch.Tensor:
    run = us.train(federation or small_federation(), method, **(OPTIONS | options))
    return flatten(run.model, FunctionalModel(run.model).layout)


def test_ida_of_two_clients_is_the_mean():
    two = small_federation(sizes=(20, 30))
    torch.testing.assert_close(final("ida", two), final("mean", two))


def test_ida_times_fedavg_with_equal_sizes_is_ida():
    equal = small_federation(sizes=(20, 20, 20))
    torch.testing.assert_close(final("ida+fedavg", equal), final("ida", equal))


def test_intrac_s_chance_level_follows_the_classes_of_the_network():
    run = us.train(small_federation(), "intrac", **OPTIONS)
    weights = run.weights[0]
    assert weights.sum() == pytest.approx(1)
    assert weights.max() / weights.min() <= 3 + 1e-9  # accuracies are between 1/3 and 1


def test_feddisco_without_discrepancy_is_fedavg():
    torch.testing.assert_close(final("feddisco:alpha=0,b=0"), final("fedavg"))


def test_feddisco_sends_a_histogram_with_each_model_and_it_is_counted():
    plain = us.train(small_federation(), "fedavg", **OPTIONS).cost
    disco = us.train(small_federation(), "feddisco", **OPTIONS).cost
    assert disco.parameters_up - plain.parameters_up == 3 * 4 * 3  # rounds x clients x classes
    assert disco.parameters_down == plain.parameters_down


def test_feddisco_gives_more_weight_to_uniform_labels():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 4)).astype(np.float32)
    y = np.concatenate([np.tile([0, 1, 2], 10), np.zeros(30, int)])
    skewed = us.Federation.from_arrays(x, y, np.repeat([0, 1], 30), classes=3)
    weights = us.train(skewed, "feddisco", **OPTIONS).weights[0]
    assert weights[0] > weights[1]


@pytest.mark.parametrize("method", ["feddisco:alpha=1e9,b=0", "latent:alpha=1e9,rescale=false"])
def test_a_run_can_stop_if_all_weights_are_zero(method):
    quick = ",encoder=4,vae_rounds=1" if method.startswith("latent") else ""
    with pytest.raises(UnskewError, match="all weights are zero"):
        final(f"{method},on_degenerate=raise{quick}", small_federation(unit=True))


def test_fedsa_without_skewed_coordinates_is_the_mean():
    torch.testing.assert_close(final("fedsa:cv_threshold=1"), final("mean"))
    torch.testing.assert_close(final("fedsa:cv_threshold=1,prior=samples"), final("fedavg"))


def test_rfa_without_iterations_is_a_mean():
    torch.testing.assert_close(final("rfa:iterations=0"), final("mean"))
    torch.testing.assert_close(final("rfa:iterations=0,weights=samples"), final("fedavg"))


def test_trimming_nothing_is_the_mean():
    torch.testing.assert_close(final("trimmed:beta=0"), final("mean"))


def test_fedfusion_of_one_component_is_the_mean():
    torch.testing.assert_close(final("fedfusion:components=1"), final("mean"))
    by_samples = final("fedfusion:components=1,prior=samples")
    torch.testing.assert_close(by_samples, final("fedavg"))


def test_rfa_does_not_depend_on_what_clients_say_about_their_size():
    stack = torch.randn(5, 20, generator=torch.Generator().manual_seed(0))
    honest = Uploads.of(stack, samples=[10, 20, 30, 20, 10])
    lying = Uploads.of(stack, samples=[10, 20, 30, 20, 10**12])
    assert torch.equal(RFA().rule()(lying), RFA().rule()(honest))
    assert torch.allclose(RFA(weights="samples").rule()(lying), stack[-1], atol=1e-3)


def test_a_cap_on_shares_applies_to_every_weighted_mean():
    federation = small_federation((300, 13, 9, 14, 8))
    for method in ("fedavg", "fednova", "qffl", "ida+fedavg", "feddisco", "fedadam", "afl"):
        options = {"rounds": 2, "model": "mlp:hidden=6", "max_share": 0.25}
        run = us.train(federation, method, **options)
        assert run.weights.max() <= 0.25 + 1e-9, method
        assert np.allclose(run.weights.sum(1), 1)
    # Two clients cannot share the whole with less than a half each.
    pair = us.train(small_federation((40, 7)), "fedavg", **options | {"max_share": 0.1})
    assert np.allclose(pair.weights, 0.5)
