"""Split a network into a body and a linear head, for methods that treat them differently."""

import copy

import torch
from torch import Tensor, nn

from unskew.errors import UnskewError
from unskew.models.layout import head_name
from unskew.models.spec import Classifier


def split(module: nn.Module, example: Tensor, method: str) -> Classifier:
    """Return a module as body and head.

    The classifiers of this package are split already. In any other module, the submodule ``head``
    or else the last linear layer becomes the head. ``example`` is run through both to check that
    nothing comes after the head; if something does, the error names ``method``.
    """
    if isinstance(module, Classifier):
        return module
    name = head_name(module)
    head = None if name is None else module.get_submodule(name)
    if not isinstance(head, nn.Linear):
        raise _split_error(method, "it has none")
    body = nn.Identity() if name == "" else _without(module, str(name))
    parts = Classifier(body, head.in_features, head.out_features)
    parts.head = head
    if not _agree(module, parts, example):
        raise _split_error(method, f"its output is not that of {name!r}")
    return parts


def _without(module: nn.Module, name: str) -> nn.Module:
    body = copy.deepcopy(module)
    owner, _, key = name.rpartition(".")
    setattr(body.get_submodule(owner), key, nn.Identity())
    return body


@torch.no_grad()
def _agree(module: nn.Module, parts: Classifier, example: Tensor) -> bool:
    """Return whether both give the same output; they are copied, so that neither is changed."""
    whole, both = copy.deepcopy(module).eval(), copy.deepcopy(parts).eval()
    try:
        return torch.equal(whole(example), both(example))
    except RuntimeError:  # shapes that do not fit without the head
        return False


def _split_error(method: str, why: str) -> UnskewError:
    return UnskewError(
        f"model: {method} needs a network that ends in a linear layer, and {why}; "
        "end it in one, called head"
    )
