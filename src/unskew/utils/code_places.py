"""Where in user-defined code an error occurred."""

import os
import traceback
from functools import cached_property
from pathlib import Path
from types import FunctionType

from unskew.utils.code_files import is_local

_CELLS = ("<ipython-input", "ipykernel_")


def described(error: BaseException) -> str:
    """Return an error in one line: its type, its text and its place in the user's code."""
    text = " ".join(str(error).split())
    reason = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return reason + in_brackets(place_of(error))


def in_brackets(place: str | None) -> str:
    """Return a place as the end of a sentence."""
    return "" if place is None else f" ({place})"


def place_of(error: BaseException, *, names_folder: bool = True) -> str | None:
    """Return file and line of the innermost call in the user's code; None if there is none.

    Without ``names_folder`` the file is named alone, since its folder may be confidential.
    """
    frames = traceback.extract_tb(error.__traceback__)
    own = next((each for each in reversed(frames) if _is_users(each.filename)), None)
    return None if own is None else _place(own.filename, own.lineno, names_folder=names_folder)


def place_of_function(function: object, *, names_folder: bool = True) -> str | None:
    """Return file and line of the user's function or property; None if it is not the user's."""
    if isinstance(function, property | cached_property):
        function = function.fget if isinstance(function, property) else function.func
    code = function.__code__ if isinstance(function, FunctionType) else None
    if code is None or not _is_users(code.co_filename):
        return None
    return _place(code.co_filename, code.co_firstlineno, names_folder=names_folder)


def _is_users(file: str) -> bool:
    if any(each in file for each in _CELLS):
        return True
    return not file.startswith("<") and is_local(Path(file))


def _place(file: str, line: int | None, *, names_folder: bool) -> str:
    if any(each in file for each in _CELLS):
        return f"line {line} of a cell"
    name = Path(file).name
    if names_folder:
        name = min(os.path.relpath(file), file, key=len)
    return f"{name}, line {line}"
