"""What a run owes to classes that are not this package's: their code, as a hash."""

import hashlib
import inspect
from dataclasses import fields
from types import FunctionType

from torch import nn

from unskew.methods.base import Method

_KNOWN = frozenset({"unskew", "torch", "builtins", "abc", "typing", "collections"})
_ADDRESS = " at 0x"
"""In the name of an object that does not say what it holds."""


def own_code(method: Method, module: nn.Module) -> str | None:
    """Return a hash of the classes of a method and a network; None if none is the user's own.

    What they call outside of the classes is not in it. Options of a method that are fields of a
    dataclass stand in its name; those that its own ``__init__`` keeps are added here.
    """
    found = {
        cls
        for part in (method, *module.modules())
        for cls in type(part).__mro__
        if cls.__module__.partition(".")[0] not in _KNOWN
    }
    if not found:
        return None
    texts = sorted(_code(cls) for cls in found)
    named = {field.name for field in fields(method)}
    held = {name: repr(value) for name, value in vars(method).items() if name not in named}
    texts += sorted(f"{name}={text}" for name, text in held.items() if _ADDRESS not in text)
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]


def _code(cls: type) -> str:
    """Return the source of a class, or what it was compiled to where there is no source."""
    try:
        return inspect.getsource(cls)
    except (OSError, TypeError):
        parts = [cls.__qualname__]
        for name, value in sorted(vars(cls).items()):
            function = getattr(value, "__func__", value)
            if isinstance(function, FunctionType):
                code = function.__code__
                parts += [name, code.co_code.hex(), repr(code.co_names)]
                parts += [repr(each) for each in code.co_consts if _ADDRESS not in repr(each)]
        return "\n".join(parts)
