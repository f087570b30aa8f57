"""Mistakes in the definition of a part that would otherwise go unnoticed."""

import inspect
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from difflib import get_close_matches
from types import FunctionType
from typing import Any, ClassVar, get_origin

_CUTOFF = 0.8
"""How similar a name must be to a hook's to count as misspelt."""


def check_names(cls: type, groups: Mapping[str, type], declarations: Iterable[str]) -> None:
    """Raise an error for a misspelt hook, and for a hook of a group that the part lacks.

    Neither would ever be called. A property must not be defined as a method. ``groups`` are the
    groups of hooks by name, and ``declarations`` the names of the sets that a part declares.
    """
    hooks = {hook: name for name, group in groups.items() for hook in _functions(group)}
    for name in _functions(cls):
        if name in hooks:
            if not issubclass(cls, groups[hooks[name]]):
                raise TypeError(
                    f"{cls.__name__} defines {name}, a hook of {hooks[name]}; derive it from "
                    f"{hooks[name]} too"
                )
        elif not _is_inherited(cls, name):
            _check_name(cls, name, hooks, " (start the name of a helper with an underscore)")
        elif any(isinstance(vars(base).get(name), property) for base in cls.__mro__[1:]):
            raise TypeError(
                f"{cls.__name__} defines {name} as a method; write @property in the line above it"
            )
    for name, value in vars(cls).items():
        if isinstance(value, frozenset | set) and not _is_inherited(cls, name):
            _check_name(cls, name, declarations)


def check_options(cls: type) -> None:
    """Raise an error for an annotated option of a class without ``@dataclass``.

    Decorators are applied after a class is defined, so this is called when a part is created.
    """
    for base in cls.__mro__:
        if is_dataclass(base) and "__dataclass_fields__" in vars(base):
            continue
        option = next(_options(base), None)
        if option is not None:
            raise TypeError(
                f"{base.__name__} has an option {option} but is not a dataclass; add "
                "@dataclass(frozen=True, kw_only=True)"
            )


def _options(cls: type) -> Iterator[str]:
    for name, annotation in inspect.get_annotations(cls).items():
        if not name.startswith("_") and not _is_class_variable(annotation):
            yield name


def _is_class_variable(annotation: Any) -> bool:
    if isinstance(annotation, str):
        return "ClassVar" in annotation
    return annotation is ClassVar or get_origin(annotation) is ClassVar


def _functions(cls: type) -> Iterator[str]:
    """Yield the names of the public functions that a class itself defines."""
    for name, value in vars(cls).items():
        if not name.startswith("_") and isinstance(value, FunctionType):
            yield name


def _is_inherited(cls: type, name: str) -> bool:
    return any(name in vars(base) for base in cls.__mro__[1:])


def _check_name(cls: type, name: str, known: Iterable[str], advice: str = "") -> None:
    close = get_close_matches(name, list(known), n=1, cutoff=_CUTOFF)
    if close:
        raise TypeError(f"{cls.__name__} defines {name}; did you mean {close[0]}?{advice}")
