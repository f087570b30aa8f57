"""Taking a network apart into a body and a linear head, for methods that treat them apart."""

import copy

import torch
from torch import Tensor, nn

from unskew.errors import UnskewError
from unskew.models.layout import head_name
from unskew.models.spec import Classifier


def split(module: nn.Module, example: Tensor, method: str) -> Classifier:
    """Return a module as body and head.

    The networks of this package are that already. In any other the submodule called ``head``, or
    else the last linear layer, is taken out to be the head; samples are sent through both to see
    that nothing comes after it. ``method`` is named to whom it may concern if something does.
    """
    if isinstance(module, Classifier):
        return module
    name = head_name(module)
    head = None if name is None else module.get_submodule(name)
    if not isinstance(head, nn.Linear):
        raise _cannot(method, "it has none")
    body = nn.Identity() if name == "" else _without(module, str(name))
    parts = Classifier(body, head.in_features, head.out_features)
    parts.head = head
    if not _agree(module, parts, example):
        raise _cannot(method, f"its output is not that of {name!r}")
    return parts


def _without(module: nn.Module, name: str) -> nn.Module:
    body = copy.deepcopy(module)
    owner, _, key = name.rpartition(".")
    setattr(body.get_submodule(owner), key, nn.Identity())
    return body


@torch.no_grad()
def _agree(module: nn.Module, parts: Classifier, example: Tensor) -> bool:
    """Tell whether both make the same of samples, on copies, so that nothing is changed by it."""
    whole, both = copy.deepcopy(module).eval(), copy.deepcopy(parts).eval()
    try:
        return torch.equal(whole(example), both(example))
    except RuntimeError:  # shapes that do not fit without the head
        return False


def _cannot(method: str, why: str) -> UnskewError:
    return UnskewError(
        f"model: {method} needs a network that ends in a linear layer, and {why}; "
        "end it in one, called head"
    )
