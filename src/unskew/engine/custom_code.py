"""Hashes of the user-defined code of a run, so that a run is not reused with other code.

Code in files is hashed with the local modules that it imports (``utils/code_files.py``). Compiled
code is hashed too: it shows closures and attributes, and code typed into a notebook has no file.
There the global names that the code uses and the local modules that it imports are part of it.
Nothing that differs between processes is part of a hash.
"""

import dis
import functools
import hashlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from importlib.util import resolve_name
from pathlib import Path
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np
from torch import Tensor, nn

from unskew.composition.method import Method
from unskew.composition.parts import Part
from unskew.utils.code_files import code_files, code_name, files_of_imports, is_local
from unskew.utils.reprs import shows_address

_NOT_CUSTOM = frozenset({"unskew", "torch", "builtins", "abc", "typing", "collections"})

_CODE = (FunctionType, staticmethod, classmethod, property, functools.cached_property)


def custom_code(
    method: Method, network: nn.Module | None = None, functions: Sequence[object] = ()
) -> dict[str, str]:
    """Return hashes of a run's user-defined code by file or name; empty without any.

    ``network`` is None for one of the package's, and ``functions`` compute metrics. The hashes
    cover the files of classes and functions with the local modules that they import, the attributes
    of objects, a network's layers, and the global names that code of a notebook uses.
    """
    hashes = _Hashes()
    parts = [*method.parts, *(() if network is None else network.modules())]
    for cls in {cls for part in parts for cls in type(part).__mro__ if _is_custom(cls)}:
        hashes.add(cls)
    for each in functions:
        if _is_custom_function(each):
            hashes.add(each)
    for part in parts:
        if _is_custom(type(part)):
            hashes.put(f"attributes of {type(part).__qualname__}", _text(_attributes(part)))
    if network is not None:
        hashes.put("layers of the network", repr(network))
    return hashes.found()


class _Hashes:
    """Collects texts that identify code, by the file or the name that a message shows."""

    def __init__(self) -> None:
        self._texts: dict[str, set[str]] = {}
        self._seen: set[int] = set()

    def found(self) -> dict[str, str]:
        """Return a hash of the texts of each name."""
        return {
            name: hashlib.sha256("\n".join(sorted(texts)).encode()).hexdigest()[:16]
            for name, texts in sorted(self._texts.items())
        }

    def put(self, name: str, text: str) -> None:
        """Add a text."""
        self._texts.setdefault(name, set()).add(text)

    def add(self, code: object, name: str | None = None) -> None:
        """Add a class or function: its files, or the global names that it uses if it has none."""
        if id(code) in self._seen:
            return
        self._seen.add(id(code))
        module = sys.modules.get(_module_name(code))
        text = _class_text(code) if isinstance(code, type) else _text(code)
        if _is_users(code) and self._add_files(module):
            self.put(code_name(Path(str(getattr(module, "__file__", "")))), text)
            return
        self.put(name or str(getattr(code, "__qualname__", type(code).__qualname__)), text)
        self._add_used(code)

    def _add_used(self, code: object) -> None:
        for function in _functions(code):
            for name in sorted(set(_global_names(function.__code__))):
                if name in function.__globals__:
                    self._add_global(name, function.__globals__[name])
            package = function.__globals__.get("__package__")
            self._put_all(files_of_imports(_imported_names(function.__code__, package)))
        for base in code.__mro__[1:] if isinstance(code, type) else ():
            if _is_users(base):
                self.add(base)

    def _add_global(self, name: str, value: object) -> None:
        if isinstance(value, ModuleType):
            if _is_users(value):
                self._add_files(value)
        elif isinstance(value, type) or hasattr(value, "__wrapped__") or hasattr(value, "__code__"):
            if _is_users(value):
                self.add(value, name)
        elif id(value) not in self._seen:
            self._seen.add(id(value))
            self.put(name, _text(value))
            self._add_used(value)
            if _is_users(type(value)):
                self.add(type(value))

    def _add_files(self, module: ModuleType | None) -> bool:
        files = code_files(module)
        self._put_all(files)
        return bool(files)

    def _put_all(self, texts: Mapping[str, str]) -> None:
        for name, text in texts.items():
            self.put(name, text)


def _module_name(value: object) -> str:
    """Return the name of the module that defines a class, a function or an object's class."""
    if isinstance(value, ModuleType):
        return value.__name__
    return getattr(value, "__module__", None) or type(value).__module__


def _is_users(value: object) -> bool:
    """Return whether code is neither installed nor part of Python or of unskew."""
    name = _module_name(value)
    if name.partition(".")[0] in _NOT_CUSTOM | sys.stdlib_module_names - {"__main__"}:
        return False
    file = getattr(sys.modules.get(name), "__file__", None)
    return name == "__main__" or file is None or is_local(Path(file))


def _functions(value: object, inside: tuple[int, ...] = ()) -> Iterator[FunctionType]:
    """Yield the functions of a class, of what is wrapped by a decorator, and of a container."""
    if id(value) in inside:
        return
    inside = (*inside, id(value))
    if isinstance(value, FunctionType):
        yield value
    parts: list[object] = [getattr(value, "__wrapped__", None)]
    if isinstance(value, type):
        parts = list(vars(value).values())
    elif isinstance(value, Mapping):
        parts += value.values()
    else:
        parts += [each for kind, of in _PARTS if isinstance(value, kind) for each in of(value)]
    for part in parts:
        if not isinstance(part, type):
            yield from _functions(part, inside)


def _global_names(code: CodeType) -> Iterator[str]:
    """Yield the global names that code reads, also in the functions inside it."""
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield instruction.argval
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _global_names(constant)


def _imported_names(code: CodeType, package: str | None) -> Iterator[str]:
    """Yield the dotted names that code imports, also in the functions inside it."""
    found = [each for each in dis.get_instructions(code) if each.opname != "EXTENDED_ARG"]
    base = ""
    for i, instruction in enumerate(found):
        if instruction.opname == "IMPORT_NAME":
            level = found[i - 2].argval  # its arguments are the level and the names
            base = "." * level + instruction.argval
            if level and package:
                base = resolve_name(base, package)
            yield base
        elif instruction.opname == "IMPORT_FROM":
            yield f"{base}.{instruction.argval}"
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _imported_names(constant, package)


def _is_custom(cls: type) -> bool:
    return cls.__module__.partition(".")[0] not in _NOT_CUSTOM


def _is_custom_function(function: object) -> bool:
    """Return whether a metric is the user's, neither the package's nor scikit-learn's."""
    return _module_name(function).partition(".")[0] not in _NOT_CUSTOM | {"sklearn"}


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
    wrapped = getattr(value, "__wrapped__", None)  # of a function with lru_cache
    return f"{type(value).__qualname__}: {of(wrapped)}" if shows_address(text) else text


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
