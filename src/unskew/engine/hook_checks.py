"""What hooks of a method return, checked: a mistake is named where it was made."""

from collections.abc import Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor

from unskew.methods.common.base import Finished, Server, Start, Tensors

Value = TypeVar("Value", Start, Finished, Server)


def checked_payload(payload: Any) -> Tensors:
    """Check what ``broadcast`` returned."""
    if not isinstance(payload, Mapping):
        raise TypeError(f"it must return a mapping of tensors (got {type(payload).__name__})")
    _tensors("payload", payload)
    return payload


def checked_start(start: Any, size: int) -> Start:
    """Check what ``prepare`` returned for a network of so many numbers."""
    own = _of(Start, start)
    _vector("the vector to start from", own.vector, torch.Size([size]))
    _tensors("refs", own.refs)
    if own.sample_weights is not None:
        _tensors("Start", {"sample_weights": own.sample_weights})
    return own


def checked_finish(finished: Any) -> Finished:
    """Check what ``finish`` returned."""
    own = _of(Finished, finished)
    _tensors("extras", own.extras)
    _tensors("state", own.state)
    return own


def checked_server(returned: Any, before: Server) -> tuple[Server, dict[str, Any]]:
    """Check the server and the diagnostics that ``aggregate`` returned."""
    match returned:
        case (server, dict() as diagnostics):
            own = _of(Server, server)
        case _:
            raise TypeError("it must return a Server and a dict of diagnostics")
    _tensors("slots", own.slots)
    _vector("the new vector", own.vector, before.vector.shape)
    return own, diagnostics


def _of(kind: type[Value], value: Any) -> Value:
    if not isinstance(value, kind):
        raise TypeError(f"it must return a {kind.__name__} (got {type(value).__name__})")
    return value


def _tensors(name: str, held: Mapping[str, Any]) -> None:
    for key, each in held.items():
        if not isinstance(each, Tensor):
            raise TypeError(f"{name}[{key!r}] must be a tensor (got {type(each).__name__})")


def _vector(name: str, found: Any, shape: torch.Size) -> None:
    wanted = f"{name} must be a float32 tensor of {tuple(shape)}"
    if not isinstance(found, Tensor):
        raise TypeError(f"{wanted} (got {type(found).__name__})")
    if found.shape != shape or found.dtype != torch.float32:
        raise TypeError(f"{wanted} (got {found.dtype} of {tuple(found.shape)})")
