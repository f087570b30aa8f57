"""A hash of the user-defined code of a run, so that a run is not resumed with other code.

It hashes compiled code, not source: a file may have been edited after its import, and code typed
into a notebook has no file. Nothing that differs between processes is part of the hash.
"""

import functools
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from types import CellType, CodeType, FunctionType
from typing import Any

import numpy as np
from torch import Tensor, nn

from unskew.composition.method import Method
from unskew.composition.parts import Part
from unskew.utils.reprs import shows_address

_NOT_CUSTOM = frozenset({"unskew", "torch", "builtins", "abc", "typing", "collections"})

_CODE = (FunctionType, staticmethod, classmethod, property, functools.cached_property)


def custom_code_hash(
    method: Method, network: nn.Module | None, functions: Sequence[object] = ()
) -> str | None:
    """Return a hash of the user-defined parts of a run's method and network; None without any.

    ``network`` is None for one of the package's, and ``functions`` compute metrics. The hash covers
    the classes, the attributes of their objects and a network's layers, but not functions that
    these call.
    """
    custom = [each for each in functions if _is_custom_function(each)]
    parts = [*method.parts, *(() if network is None else network.modules())]
    classes = {cls for part in parts for cls in type(part).__mro__ if _is_custom(cls)}
    if not classes and network is None and not custom:
        return None
    texts = sorted(_class_text(cls) for cls in classes)
    texts += [_text(each) for each in custom]
    texts += [_text(_attributes(part)) for part in parts if _is_custom(type(part))]
    texts.append(repr(network))
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]


def _is_custom(cls: type) -> bool:
    return cls.__module__.partition(".")[0] not in _NOT_CUSTOM


def _is_custom_function(function: object) -> bool:
    """Return whether a metric is the user's, neither the package's nor scikit-learn's."""
    module = getattr(function, "__module__", None) or type(function).__module__
    return module.partition(".")[0] not in _NOT_CUSTOM | {"sklearn"}


def _attributes(part: Part | nn.Module) -> dict[str, Any]:
    """Return an object's attributes, without cached properties and ``nn.Module``'s internals."""
    cached = {
        name
        for cls in type(part).__mro__
        for name, value in vars(cls).items()
        if isinstance(value, functools.cached_property)
    }
    ignored = cached | {"training"}
    return {
        name: value
        for name, value in vars(part).items()
        if name not in ignored and not (isinstance(part, nn.Module) and name.startswith("_"))
    }


def _class_text(cls: type) -> str:
    """Return a text of a class's members, without docstrings and the names Python adds."""
    parts = {
        name: value
        for name, value in vars(cls).items()
        if isinstance(value, _CODE) or not name.startswith(("__", "_abc_"))
    }
    return f"{cls.__qualname__}: {_text(parts)}"


def _text(value: object, inside: tuple[int, ...] = ()) -> str:
    """Return a text of a value that is the same in every process."""
    if isinstance(value, type):
        return value.__qualname__
    if id(value) in inside:
        return "itself"
    of = functools.partial(_text, inside=(*inside, id(value)))
    if isinstance(value, Mapping):
        return f"{{{', '.join(sorted(f'{of(k)}: {of(v)}' for k, v in value.items()))}}}"
    if isinstance(value, AbstractSet):
        return f"{{{', '.join(sorted(map(of, value)))}}}"
    for kind, parts in _PARTS:
        if isinstance(value, kind):
            return f"[{', '.join(map(of, parts(value)))}]"
    text = repr(value)
    return type(value).__qualname__ if shows_address(text) else text


def _function_parts(function: FunctionType) -> tuple[object, ...]:
    code = function.__code__
    if code.co_consts and code.co_consts[0] == function.__doc__:
        code = code.replace(co_consts=(None, *code.co_consts[1:]))
    return code, function.__defaults__, function.__kwdefaults__, function.__closure__


def _cell_parts(cell: CellType) -> tuple[object, ...]:
    try:
        return (cell.cell_contents,)
    except ValueError:  # the cell is still empty
        return ()


def _array_parts(array: np.ndarray[Any, Any]) -> tuple[object, ...]:
    return str(array.dtype), array.shape, hashlib.sha256(array.tobytes()).hexdigest()


_PARTS: tuple[tuple[Any, Callable[[Any], Iterable[object]]], ...] = (
    ((list, tuple), tuple),
    (Tensor, lambda tensor: _array_parts(tensor.detach().cpu().numpy())),
    (np.ndarray, _array_parts),
    (CodeType, lambda code: (code.co_code, code.co_names, code.co_freevars, code.co_consts)),
    (FunctionType, _function_parts),
    (CellType, _cell_parts),
    ((staticmethod, classmethod), lambda method: (method.__func__,)),
    (property, lambda value: (value.fget, value.fset, value.fdel)),
    (functools.cached_property, lambda value: (value.func,)),
    (functools.partial, lambda value: (value.func, value.args, value.keywords)),
)
"""The parts that identify a value of each type, where its repr does not show them."""
