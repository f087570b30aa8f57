"""Clipping: no client's gradient is longer than the norm, in any runner, with every method."""

import json

import pytest
import torch

import unskew as us
from toys import small_federation
from unskew.engine.optimizer import make_optimizer
from unskew.engine.settings import Settings
from unskew.engine.stage import settings_of
from unskew.errors import UnskewError
from unskew.methods import Aspect, ClientSide, Finished, make_method
from unskew.models.functional import FunctionalModel
from unskew.models.layout import flatten

QUICK = {"model": "mlp:hidden=8", "batch_size": 8, "lr": 0.1}


def after_step(start, gradient, mask=None, **options):
    weights = torch.tensor(start)
    settings = Settings(lr=1.0, **options)
    mask = None if mask is None else torch.tensor(mask)
    make_optimizer(settings, 0, mask).step(weights, torch.tensor(gradient))
    return weights.tolist()


def test_a_long_gradient_keeps_its_direction():
    # The norm of (3, 4) is 5.
    assert after_step([0.0, 0.0], [3.0, 4.0], clip=1.0) == pytest.approx([-0.6, -0.8])
    assert after_step([0.0, 0.0], [3.0, 4.0], clip=5.0) == [-3.0, -4.0]
    assert after_step([0.0, 0.0], [3.0, 4.0]) == [-3.0, -4.0]
    assert after_step([1.0, 1.0], [0.0, 0.0], clip=1.0) == [1.0, 1.0]


def test_every_client_has_its_own_norm():
    rows = after_step([[0.0, 0.0]] * 3, [[3.0, 4.0], [0.3, 0.4], [0.0, -10.0]], clip=1.0)
    assert rows == [pytest.approx([-0.6, -0.8]), pytest.approx([-0.3, -0.4]), [0.0, 1.0]]


def test_frozen_coordinates_do_not_count_and_weight_decay_is_added_later():
    assert after_step([0.0] * 3, [3.0, 4.0, 99.0], [1.0, 1.0, 0.0], clip=1.0) == pytest.approx(
        [-0.6, -0.8, 0.0]
    )
    decayed = after_step([1.0, 1.0], [3.0, 4.0], clip=1.0, weight_decay=0.5)
    assert decayed == pytest.approx([1 - 0.6 - 0.5, 1 - 0.8 - 0.5])


def test_the_largest_finite_gradients_are_clipped_too():
    moved = after_step([0.0, 0.0], [3e38, -3e38], clip=1.0)
    assert moved == pytest.approx([-(0.5**0.5), 0.5**0.5])


@pytest.mark.parametrize("options", [{}, {"momentum": 0.9}, {"optimizer": "adam"}])
def test_steps_equal_those_of_torch(options):
    options = {"weight_decay": 0.05, **options}
    weights = torch.linspace(-1, 1, 7)
    optimizer = make_optimizer(Settings(lr=0.1, clip=0.5, **options), 0)
    kind = torch.optim.Adam if options.pop("optimizer", None) else torch.optim.SGD
    reference = weights.clone().requires_grad_()
    torch_optimizer = kind([reference], lr=0.1, **options)
    for step in range(5):
        gradient = torch.linspace(-1, 2, 7) * 0.3**step  # the last ones are short
        optimizer.step(weights, gradient)
        reference.grad = gradient.clone()
        torch.nn.utils.clip_grad_norm_([reference], 0.5)
        torch_optimizer.step()
        torch.testing.assert_close(weights, reference.detach(), rtol=1e-5, atol=1e-6)


DRIFTS = {}


class Drift(ClientSide):
    """A term of the loss whose gradient is 100 in the first coordinate."""

    adds = frozenset({Aspect.LOCAL_LOSS})

    def loss_term(self, step, refs):
        return 100 * step.weights[0]

    def finish(self, client, start, trained, state):
        DRIFTS[client.id] = trained.vector - start.vector
        return Finished()


@pytest.mark.parametrize("runner", ["loop", "vectorised"])
def test_the_terms_of_a_method_are_clipped_with_the_loss(federation, runner):
    DRIFTS.clear()
    us.train(federation, Drift(), rounds=1, steps=1, clip=2.0, runner=runner, **QUICK)
    assert len(DRIFTS) == len(federation)
    for change in DRIFTS.values():
        assert float(change.norm()) == pytest.approx(0.1 * 2.0, rel=1e-5)
        assert float(change[0]) == pytest.approx(-0.2, rel=1e-2)


def final(federation, method="scaffold", **options):
    run = us.train(federation, method, rounds=3, **QUICK, **options)
    return flatten(run.model, FunctionalModel(run.model).layout)


@pytest.mark.parametrize("runner", ["loop", "vectorised"])
def test_a_norm_that_is_never_reached_changes_no_bit(federation, runner):
    plain = final(federation, runner=runner)
    assert torch.equal(final(federation, runner=runner, clip=1e6), plain)
    assert not torch.equal(final(federation, runner=runner, clip=0.1), plain)


def test_the_pool_clips_like_the_loop(federation):
    processes = final(federation, runner="processes", workers=2, clip=0.1)
    assert torch.equal(processes, final(federation, runner="loop", clip=0.1))


def test_the_norm_is_recorded_and_a_run_is_resumed_with_no_other(tmp_path):
    federation = small_federation()
    options = {"out": tmp_path / "run", **QUICK}
    us.train(federation, "fedavg", rounds=1, clip=0.5, **options)
    metadata = json.loads((tmp_path / "run" / "run.json").read_text())
    assert metadata["configuration"]["clip"] == 0.5
    us.train(federation, "fedavg", rounds=2, clip=0.5, resume=True, **options)
    with pytest.raises(UnskewError, match="clip"):
        us.train(federation, "fedavg", rounds=3, resume=True, **options)
    assert "clip" not in Settings().training_identity()  # earlier runs can be resumed


def test_preparatory_stages_are_not_clipped():
    density, *_, task = make_method("feddisk:privacy=2/1e-5/3").stages()
    settings = Settings(clip=0.5)
    assert settings_of(density, settings).clip is None
    assert density.privacy.clip == 3.0  # of each sample's gradient
    assert task.settings.get("clip", settings.clip) == 0.5
