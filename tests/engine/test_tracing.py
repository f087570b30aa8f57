"""A trace repeats a function's operations; functions it could get wrong are rejected."""

import pytest
import torch
from torch import Tensor
from torch.func import vmap

from unskew.engine.tracing import NotTraceable, Trace


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def gradient_of(objective):
    """A function like the runner's: losses of all rows, and the gradients of the first input."""

    def function(weights: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
        with torch.enable_grad():
            leaf = weights.detach().requires_grad_()
            losses = vmap(objective)(leaf, *others)
            (gradient,) = torch.autograd.grad(losses.sum(), leaf)
        return losses.detach(), gradient

    return function


@pytest.mark.parametrize(
    "objective",
    [
        lambda w, x: (w * x).square().sum(),
        lambda w, x: torch.tanh(x * w.sum()).mean() + 0.5 * w.square().sum(),
        lambda w, x: torch.logsumexp(torch.outer(w, x), 0).sum(),
        lambda w, x: torch.layer_norm(w * x, (4,)).exp().sum(),
        lambda w, x: (
            torch.where(x > 0, w * 2, w.abs()).sum() + w[torch.tensor([0, 0, 3])].exp().sum()
        ),
        lambda w, x: (w.cumsum(0) * x).clamp(min=-1).abs().sum(),
    ],
)
def test_a_trace_gives_the_bits_of_the_function_on_other_values(objective):
    function = gradient_of(objective)
    trace = Trace(function, (numbers(3, 4), numbers(3, 4, seed=1)))
    others = numbers(3, 4, seed=2), numbers(3, 4, seed=3)
    traced, expected = trace(*others), function(*others)
    assert all(torch.equal(one, other) for one, other in zip(traced, expected, strict=True))
    assert not traced[1].requires_grad


def test_constants_are_part_of_a_trace_and_inputs_are_not():
    constant = torch.tensor([1.0, 10.0])
    trace = Trace(lambda x: (x + constant * torch.full((2,), 2.0),), [torch.zeros(2)])
    assert trace(torch.tensor([5.0, 7.0]))[0].tolist() == [7.0, 27.0]


def test_a_tensor_passed_twice_may_be_two_tensors_in_another_call():
    same = torch.ones(2)
    trace = Trace(lambda x, y: (x - 2 * y,), [same, same])
    assert trace(torch.tensor([5.0, 6.0]), torch.tensor([1.0, 2.0]))[0].tolist() == [3.0, 2.0]


def test_inputs_and_earlier_results_are_not_changed():
    trace = Trace(lambda x: (x.mul(3).add(1),), [torch.ones(2)])
    x = torch.tensor([2.0, 4.0])
    first, second = trace(x)[0], trace(x + 1)[0]
    assert first.tolist() == [7.0, 13.0]
    assert second.tolist() == [10.0, 16.0]
    assert x.tolist() == [2.0, 4.0]


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda x: (x * (2 if float(x[0]) > 0 else 3),), id="a branch on a value"),
        pytest.param(lambda x: (x * x.tolist()[0],), id="a value read as a list"),
        pytest.param(lambda x: (x * float(x.numpy()[0]),), id="a value read by numpy"),
        pytest.param(lambda x: (x[x > 0] * 2,), id="a shape that depends on values"),
        pytest.param(lambda x: (x * torch.rand(2),), id="random numbers"),
        pytest.param(lambda x: (x.mul(2).relu_(),), id="a change in place"),
        pytest.param(lambda x: (x.view(2),), id="the input itself"),
        pytest.param(lambda x: (torch.zeros_like(x),), id="a constant"),
    ],
)
def test_functions_that_depend_on_values_are_rejected(function):
    with pytest.raises(NotTraceable):
        Trace(function, [torch.tensor([1.0, -2.0])])


def test_a_gradient_that_torch_computes_differently_while_tracing_is_rejected():
    with pytest.raises(NotTraceable, match="other results"):
        Trace(gradient_of(torch.prod), [numbers(50, 9)])
