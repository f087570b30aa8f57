"""Checks of what a method's hooks return, so that an error names the hook that caused it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor

from unskew.composition.values import Finished, Server, Start, Tensors
from unskew.errors import UnskewError

Returned = TypeVar("Returned", Start, Finished, Server)


class ServerFailed(UnskewError):
    """A method's code raised on the server; the message names the round and the hook."""


@contextmanager
def server_error_context(round_: int, hook: str) -> Iterator[None]:
    """Turn an exception in a method's code into one that names the round and the hook."""
    try:
        yield
    except UnskewError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        where = f"the server failed in round {round_ + 1}, in {hook}"
        raise ServerFailed(f"{where}: {reason}") from error


def checked_payload(payload: Any) -> Tensors:
    """Check what ``broadcast`` returned."""
    if not isinstance(payload, Mapping):
        raise TypeError(f"it must return a mapping of tensors (got {type(payload).__name__})")
    _check_tensors("payload", payload)
    return payload


def checked_start(start: Any, size: int) -> Start:
    """Check what ``prepare`` returned for a network whose vector has ``size`` numbers."""
    checked = _instance(Start, start)
    _check_vector("the vector to start from", checked.vector, torch.Size([size]))
    _check_tensors("refs", checked.refs)
    if checked.sample_weights is not None:
        _check_tensors("Start", {"sample_weights": checked.sample_weights})
    return checked


def checked_finish(finished: Any) -> Finished:
    """Check what ``finish`` returned."""
    checked = _instance(Finished, finished)
    _check_tensors("extras", checked.extras)
    _check_tensors("state", checked.state)
    return checked


def checked_server(returned: Any, before: Server) -> tuple[Server, dict[str, Any]]:
    """Check the server and the diagnostics that ``aggregate`` returned."""
    match returned:
        case (server, dict() as diagnostics):
            checked = _instance(Server, server)
        case _:
            raise TypeError("it must return a Server and a dict of diagnostics")
    _check_tensors("state", checked.state)
    _check_vector("the new vector", checked.vector, before.vector.shape)
    return checked, diagnostics


def _instance(kind: type[Returned], value: Any) -> Returned:
    if not isinstance(value, kind):
        raise TypeError(f"it must return a {kind.__name__} (got {type(value).__name__})")
    return value


def _check_tensors(name: str, values: Mapping[str, Any]) -> None:
    for key, value in values.items():
        if not isinstance(value, Tensor):
            raise TypeError(f"{name}[{key!r}] must be a tensor (got {type(value).__name__})")


def _check_vector(name: str, value: Any, shape: torch.Size) -> None:
    requirement = f"{name} must be a float32 tensor of {tuple(shape)}"
    if not isinstance(value, Tensor):
        raise TypeError(f"{requirement} (got {type(value).__name__})")
    if value.shape != shape or value.dtype != torch.float32:
        raise TypeError(f"{requirement} (got {value.dtype} of {tuple(value.shape)})")
