"""The local optimisers equal those of torch.optim, step by step."""

import pytest
import torch

from unskew.engine.optimizer import make_optimizer
from unskew.engine.settings import Settings

OPTIONS = [
    {"lr": 0.1},
    {"lr": 0.1, "momentum": 0.9},
    {"lr": 0.1, "weight_decay": 0.05},
    {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.05},
    {"lr": 0.02, "optimizer": "adam"},
    {"lr": 0.02, "optimizer": "adam", "weight_decay": 0.05},
]


def gradients(shape, steps=6) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator) for _ in range(steps)]


def reference(
    options, start: torch.Tensor, all_gradients: list[torch.Tensor]
) -> list[torch.Tensor]:
    """The weights after each step of torch.optim."""
    options = dict(options)
    cls = torch.optim.Adam if options.pop("optimizer", "sgd") == "adam" else torch.optim.SGD
    weights = start.clone().requires_grad_()
    optimizer = cls([weights], **options)
    path = []
    for gradient in all_gradients:
        weights.grad = gradient.clone()
        optimizer.step()
        path.append(weights.detach().clone())
    return path


@pytest.mark.parametrize("options", OPTIONS)
def test_a_vector_is_updated_as_by_torch(options):
    start, all_gradients = torch.linspace(-1, 1, 7), gradients(7)
    weights, optimizer = start.clone(), make_optimizer(Settings(**options), 0)
    for gradient, expected in zip(
        all_gradients, reference(options, start, all_gradients), strict=True
    ):
        optimizer.step(weights, gradient.clone())
        torch.testing.assert_close(weights, expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("options", OPTIONS)
def test_a_decreasing_number_of_rows_is_updated_as_if_alone(options):
    start, all_gradients = torch.linspace(-1, 1, 15).view(3, 5), gradients((3, 5))
    active = [3, 3, 2, 2, 1, 1]
    weights, optimizer = start.clone(), make_optimizer(Settings(**options), 0)
    for rows, gradient in zip(active, all_gradients, strict=True):
        optimizer.step(weights[:rows], gradient[:rows].clone())
    for row, steps in enumerate([6, 4, 2]):
        alone = reference(
            options, start[row], [gradient[row] for gradient in all_gradients[:steps]]
        )
        torch.testing.assert_close(weights[row], alone[-1], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("options", OPTIONS)
def test_rows_that_are_slices_of_longer_rows_are_updated_as_if_alone(options):
    rows, all_gradients = torch.linspace(-1, 1, 24).view(3, 8), gradients((3, 5))
    start = rows.clone()
    weights, optimizer = rows[:, :5], make_optimizer(Settings(**options), 0)
    active = [3, 3, 2, 2, 1, 1]
    for number, gradient in zip(active, all_gradients, strict=True):
        optimizer.step(weights[:number], gradient[:number].clone())
    assert torch.equal(rows[:, 5:], start[:, 5:])
    for row, steps in enumerate([6, 4, 2]):
        alone = reference(
            options, start[row, :5], [gradient[row] for gradient in all_gradients[:steps]]
        )
        torch.testing.assert_close(weights[row], alone[-1], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("options", OPTIONS)
def test_masked_coordinates_are_unchanged_and_the_others_updated(options):
    start, all_gradients = torch.linspace(-1, 1, 6), gradients(6)
    mask = torch.tensor([1.0, 0, 1, 0, 1, 0])
    weights, optimizer = start.clone(), make_optimizer(Settings(**options), 0, mask)
    for gradient in all_gradients:
        optimizer.step(weights, gradient.clone())
    assert torch.equal(weights[1::2], start[1::2])
    expected = reference(options, start, all_gradients)[-1]
    torch.testing.assert_close(weights[::2], expected[::2], rtol=1e-6, atol=1e-7)


def test_the_learning_rate_decays_from_round_to_round():
    settings = Settings(lr=1.0, lr_decay=0.5)
    for round_, moved in enumerate([1.0, 0.5, 0.25]):
        weights = torch.zeros(1)
        make_optimizer(settings, round_).step(weights, torch.tensor([-1.0]))
        assert weights.tolist() == [moved]


@pytest.mark.parametrize("options", OPTIONS)
def test_a_gradient_may_have_any_memory_layout(options):
    start, gradient = torch.linspace(-1, 1, 15).view(3, 5), gradients((5, 3))[0].T
    weights = start.clone()
    make_optimizer(Settings(**options), 0).step(weights, gradient)
    expected = reference(options, start, [gradient])[-1]
    torch.testing.assert_close(weights, expected, rtol=1e-6, atol=1e-7)


def test_the_gradient_is_not_changed():
    for options in OPTIONS:
        gradient = torch.ones(3)
        make_optimizer(Settings(**options), 0).step(torch.ones(3), gradient)
        assert gradient.tolist() == [1, 1, 1]
