"""Calls of hooks: what they return is checked, and an error in custom code names hook and part."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from unskew.aggregation.weighting import ClientWeighting
from unskew.composition.part_files import importing_beside
from unskew.composition.parts import Part
from unskew.composition.returned import CHECKS, WrongReturn, check_receives, check_weights
from unskew.composition.upload_values import Value
from unskew.composition.values import Server
from unskew.errors import UnskewError
from unskew.utils.code_places import described, in_brackets, place_of, place_of_function


class HookFailed(UnskewError):
    """A hook of the user raised or returned something else than it must."""

    without_values: str = ""
    """The same without the error's text and the names of folders, which may be confidential."""


def call(part: Part, hook: str, *args: Any) -> Any:
    """Call a hook of a part and return what it returned, checked."""
    return _checked(part, hook, getattr(part, hook), CHECKS[hook], args)


def received_by(part: Part) -> Mapping[str, Value]:
    """Return what a part declares of the extras that the server receives for it, checked."""
    declared: Mapping[str, Value]
    declared = _checked(part, "receives", lambda: part.receives, check_receives, ())
    return declared


def weighting_of(part: Any, server: Server) -> ClientWeighting:
    """Return the weighting of a part, whose weights are checked too."""
    weighting: ClientWeighting = call(part, "client_weights", server)

    def derive(*args: Any) -> Any:
        return _checked(part, "client_weights", weighting.derive, check_weights, args)

    return replace(weighting, derive=derive)


def _checked(
    part: Part,
    hook: str,
    function: Callable[..., Any],
    check: Callable[..., Any],
    args: tuple[Any, ...],
) -> Any:
    try:
        with importing_beside(type(part)):
            returned = function(*args)
        check(returned, *args)
    except UnskewError:
        raise
    except Exception as error:
        if type(part).__module__.startswith("unskew."):
            raise  # the caller names the operation
        raise _failure(part, hook, error) from error
    return returned


def _failure(part: Part, hook: str, error: Exception) -> HookFailed:
    """Return the error of a hook of the user."""
    name = f"{hook} of {part.name!r}"
    if isinstance(error, WrongReturn):
        place = partial(place_of_function, getattr(type(part), hook))
        text, kind = f"{error}{in_brackets(place())}", "returned a wrong value"
    else:
        place = partial(place_of, error)
        text, kind = f"raised {described(error)}", f"raised {type(error).__name__}"
    failure = HookFailed(f"{name} {text}")
    failure.without_values = f"{kind} in {name}{in_brackets(place(names_folder=False))}"
    return failure
