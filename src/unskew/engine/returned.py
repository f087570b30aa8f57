"""What hooks of a method return, checked: a mistake is named where it was made."""

from typing import Any, TypeVar

import torch
from torch import Tensor

from unskew.methods.base import Finished, Server, Start

Value = TypeVar("Value", Start, Finished, Server)


def checked_start(start: Any) -> Start:
    """Check what ``prepare`` returned."""
    own = _of(Start, start)
    return _tensors(own, "refs", own.refs)


def checked_finish(finished: Any) -> Finished:
    """Check what ``finish`` returned."""
    own = _of(Finished, finished)
    return _tensors(_tensors(own, "extras", own.extras), "state", own.state)


def checked_server(server: Any, before: Server) -> Server:
    """Check the server that ``aggregate`` returned."""
    own = _of(Server, server)
    _tensors(own, "slots", own.slots)
    shape, found = before.vector.shape, own.vector
    if found.shape != shape or found.dtype != torch.float32:
        said = f"{found.dtype} of {tuple(found.shape)}"
        raise TypeError(f"the new vector must be float32 of {tuple(shape)} (got {said})")
    return own


def _of(kind: type[Value], value: Any) -> Value:
    if not isinstance(value, kind):
        raise TypeError(f"it must return a {kind.__name__} (got {type(value).__name__})")
    return value


def _tensors(value: Value, name: str, held: Any) -> Value:
    for key, each in held.items():
        if not isinstance(each, Tensor):
            raise TypeError(f"{name}[{key!r}] must be a tensor (got {type(each).__name__})")
    return value
