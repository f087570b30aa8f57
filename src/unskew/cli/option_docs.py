"""The documentation of options: the strings below the fields of their class."""

import ast
import inspect
from functools import cache
from textwrap import dedent


def meanings_of(cls: type) -> dict[str, str]:
    """Return the docstring below each field of a class and of its base classes."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        found |= _under_fields(base)
    return found


@cache
def _under_fields(cls: type) -> dict[str, str]:
    try:
        source = dedent(inspect.getsource(cls))
    except (OSError, TypeError):  # a dynamic or built-in class has no source
        return {}
    (definition,) = ast.parse(source).body
    assert isinstance(definition, ast.ClassDef)
    found = {}
    for field, below in zip(definition.body, definition.body[1:], strict=False):
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
            continue
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            text = inspect.cleandoc(str(below.value.value))
            found[field.target.id] = text.replace("\n", " ").replace("``", "")
    return found
