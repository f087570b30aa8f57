"""What a run owes to code that is not this package's: a hash of what it was compiled to.

No source is read: a file may have been edited since it was imported, and what is typed into a
notebook has none. Nothing that differs from process to process is in it.
"""

import functools
import hashlib
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from types import CellType, CodeType, FunctionType
from typing import Any

import numpy as np
from torch import Tensor, nn

from unskew.methods.common.base import Method

_KNOWN = frozenset({"unskew", "torch", "builtins", "abc", "typing", "collections"})
_ADDRESS = " at 0x"
"""In the name of an object that does not say what it holds."""

_CODE = (FunctionType, staticmethod, classmethod, property, functools.cached_property)


def custom_code_hash(method: Method, network: nn.Module | None) -> str | None:
    """Return a hash of what a user wrote of a run's method and network; None if it is nothing.

    ``network`` is None for one of the package's. In the hash are the classes, what their objects
    hold, and a network's layers; what is called outside of the classes is not.
    """
    parts = [method, *(() if network is None else network.modules())]
    classes = {cls for part in parts for cls in type(part).__mro__ if _is_own(cls)}
    if not classes and network is None:
        return None
    texts = sorted(_class_text(cls) for cls in classes)
    texts += [_text(_held(part)) for part in parts if _is_own(type(part))]
    texts.append(repr(network))
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]


def _is_own(cls: type) -> bool:
    return cls.__module__.partition(".")[0] not in _KNOWN


def _held(part: Method | nn.Module) -> dict[str, Any]:
    """Return what an object holds, without what it only remembers and a module's own registers."""
    cached = {
        name
        for cls in type(part).__mro__
        for name, value in vars(cls).items()
        if isinstance(value, functools.cached_property)
    }
    left_out = cached | {"training"}
    return {
        name: value
        for name, value in vars(part).items()
        if name not in left_out and not (isinstance(part, nn.Module) and name.startswith("_"))
    }


def _class_text(cls: type) -> str:
    """Return what a class consists of, without docstrings and what Python adds by itself."""
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
    return type(value).__qualname__ if _ADDRESS in text else text


def _in_function(function: FunctionType) -> tuple[object, ...]:
    code = function.__code__
    if code.co_consts and code.co_consts[0] == function.__doc__:
        code = code.replace(co_consts=(None, *code.co_consts[1:]))
    return code, function.__defaults__, function.__kwdefaults__, function.__closure__


def _in_cell(cell: CellType) -> tuple[object, ...]:
    try:
        return (cell.cell_contents,)
    except ValueError:  # nothing was put into it yet
        return ()


def _in_array(array: np.ndarray[Any, Any]) -> tuple[object, ...]:
    return str(array.dtype), array.shape, hashlib.sha256(array.tobytes()).hexdigest()


_PARTS: tuple[tuple[Any, Callable[[Any], Iterable[object]]], ...] = (
    ((list, tuple), tuple),
    (Tensor, lambda tensor: _in_array(tensor.detach().cpu().numpy())),
    (np.ndarray, _in_array),
    (CodeType, lambda code: (code.co_code, code.co_names, code.co_freevars, code.co_consts)),
    (FunctionType, _in_function),
    (CellType, _in_cell),
    ((staticmethod, classmethod), lambda method: (method.__func__,)),
    (property, lambda held: (held.fget, held.fset, held.fdel)),
    (functools.cached_property, lambda held: (held.func,)),
    (functools.partial, lambda held: (held.func, held.args, held.keywords)),
)
"""What values consist of, where their names do not say it."""
