"""A run's network, built from a name, a module, or a function that returns a module."""

import copy
import inspect
from collections.abc import Callable

import torch
from torch import Tensor, nn

from unskew.data.federation import Federation
from unskew.errors import UnskewError
from unskew.models import default_for, make
from unskew.models.functional import FunctionalModel, Model
from unskew.models.regression import Regression, make_loss, with_goal
from unskew.utils.code_places import described
from unskew.utils.rng import torch_seeded


def is_custom(model: Model | None) -> bool:
    """Return whether a network is user-defined, not one of the package's that have a name."""
    return not isinstance(model, str | None)


def make_module(
    federation: Federation, model: Model | None, seed: int, loss: str | None = None
) -> tuple[str, nn.Module]:
    """Return a run's network and its name; ``loss`` is that of a regression."""
    if loss is not None and not federation.is_regression:
        raise UnskewError(
            f"loss: {loss} is for a regression, and the target has classes; remove it"
        )
    if isinstance(model, str | None):
        tokens = None if federation.vocabulary is None else len(federation.vocabulary)
        name = model or default_for(federation.shape, federation.classes, tokens)
        module = make(name, federation.shape, federation.classes, seed=seed, vocabulary=tokens)
    else:
        module = instantiate(model, seed)
        name = type(module).__name__
    if federation.is_regression and not hasattr(module, "goal"):
        center, scale = federation.target_center_and_scale
        goal = Regression(make_loss(loss or "mse"), center, scale, not is_custom(model))
        module = with_goal(module, goal)
    return name, module


def instantiate(model: nn.Module | Callable[[], nn.Module], seed: int) -> nn.Module:
    """Return a copy of a custom module, or the module a function builds with seeded weights."""
    module: object = model
    if not isinstance(model, nn.Module) and _takes_no_arguments(model):
        with torch_seeded(seed, "model"):
            module = model()
    if not isinstance(module, nn.Module):
        returned = "" if module is model else f", which returned {module!r}"
        raise UnskewError(
            "model must be a name, a torch module, or a function without arguments that returns "
            f"one, not {model!r}{returned}"
        )
    return copy.deepcopy(module)


def check_scores(module: nn.Module, samples: Tensor, classes: int) -> None:
    """Raise if a custom network does not return one score per class, or one number, per sample."""
    network, name = FunctionalModel(copy.deepcopy(module)), type(module).__name__
    if network.goal.predicts == "neither":
        return
    try:
        with torch.no_grad():
            scores = network.module.eval()(network.inputs(samples))
    except Exception as error:
        raise UnskewError(
            f"model: {name} fails on a batch of the data, of shape {tuple(samples.shape)}: "
            f"{described(error)}"
        ) from error
    shape = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
    if network.goal.predicts == "values":
        if shape not in ((len(samples),), (len(samples), 1)):
            raise UnskewError(
                f"model: {name} must return a tensor of {(len(samples), 1)} for {len(samples)} "
                f"samples of a regression, one number per sample (got {shape})"
            )
        return
    if not isinstance(shape, tuple) or len(shape) != 2 or shape[1] < classes:
        raise UnskewError(
            f"model: {name} must return a tensor of {(len(samples), classes)} for {len(samples)} "
            f"samples, one score per class (got {shape})"
        )


def _takes_no_arguments(function: object) -> bool:
    """Return whether an object can be called without arguments."""
    if not callable(function):
        return False
    try:
        inspect.signature(function).bind()
    except (TypeError, ValueError):
        return False
    return True
