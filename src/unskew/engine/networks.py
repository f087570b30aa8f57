"""A run's network, from what was asked for: a name, a module, or a function that makes one."""

import copy
import inspect
from collections.abc import Callable

from torch import nn

from unskew.data.federation import Federation
from unskew.errors import UnskewError
from unskew.models import default_for, make
from unskew.network import Model
from unskew.rng import torch_seeded


def is_own(model: Model | None) -> bool:
    """Tell whether a network is the user's, not one of those that have a name."""
    return not isinstance(model, str | None)


def make_module(federation: Federation, model: Model | None, seed: int) -> tuple[str, nn.Module]:
    """Return a run's network and its name."""
    if isinstance(model, str | None):
        words = None if federation.vocabulary is None else len(federation.vocabulary)
        name = model or default_for(federation.shape, federation.classes, words)
        return name, make(name, federation.shape, federation.classes, seed=seed, vocabulary=words)
    module = made_by(model, seed)
    return type(module).__name__, module


def made_by(model: nn.Module | Callable[[], nn.Module], seed: int) -> nn.Module:
    """Return a copy of a user's module, or what their function makes with the seed's weights."""
    module: object = model
    if not isinstance(model, nn.Module) and _takes_nothing(model):
        with torch_seeded(seed, "model"):
            module = model()
    if not isinstance(module, nn.Module):
        raise UnskewError(
            "model must be a name or a torch module, or a function without arguments that makes "
            f"one, not {model!r}"
        )
    return copy.deepcopy(module)


def _takes_nothing(function: object) -> bool:
    """Tell whether something can be called without arguments."""
    if not callable(function):
        return False
    try:
        inspect.signature(function).bind()
    except (TypeError, ValueError):
        return False
    return True
