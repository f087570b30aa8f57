"""Parts in a file of the user: ``my.py:GradNorm:mu=0.5`` is the class GradNorm of the file my.py.

Only a file that the user names is imported. Specs that were read from a run folder or received from
a node must not be passed to this module.
"""

import copyreg
import hashlib
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary

from unskew.composition.part_checks import check_options
from unskew.composition.parts import Part
from unskew.errors import UnskewError
from unskew.utils.code_files import code_files
from unskew.utils.specs import create, parse

_SPEC = re.compile(r"(?P<path>[^:]*\.py)(?::(?P<cls>[^:]*))?(?::(?P<options>.*))?", re.DOTALL)

_modules: dict[tuple[Path, str], ModuleType] = {}
"""The imported files, by path and hash of their content: a file that was edited is imported again,
and one that was not gives the same classes, so that methods can be compared."""

_folders: dict[str, Path] = {}
"""The folder of each imported file, by the name of its module."""

_files: WeakKeyDictionary[type[Part], Path] = WeakKeyDictionary()
"""The file of each part that was imported from one."""


def names_file(spec: str) -> bool:
    """Return whether the spec string of a part names a file."""
    return _SPEC.fullmatch(spec.strip()) is not None


def spec_name(cls: type[Part]) -> str:
    """Return what names a part in spec strings: its name, or its file and class."""
    if cls not in _files:
        return cls.name
    path = _files[cls]
    return f"{min(os.path.relpath(path), str(path), key=len)}:{cls.__name__}"


def part_from_file(spec: str) -> Part:
    """Return the part of a spec string that names a file and a class."""
    match = _SPEC.fullmatch(spec.strip())
    if match is None or not (match["cls"] or "").isidentifier():
        raise UnskewError(
            f"method {spec!r}: write the file, the class and then options: my.py:Class:option=value"
        )
    cls = class_from_file(Path(match["path"]).expanduser(), match["cls"])
    label = f"method '{match['path']}:{match['cls']}'"
    try:
        check_options(cls)
    except TypeError as error:
        raise UnskewError(f"{label}: {error}") from None
    _, options = parse(f"{match['cls']}:{match['options'] or ''}")
    return create(cls, options, label)


def class_from_file(path: Path, name: str) -> type[Part]:
    """Import a file and return one of its parts."""
    module = _imported(path)
    found = getattr(module, name, None)
    if found is None:
        parts = [each.__name__ for each in _parts_of(module)]
        close = get_close_matches(name, parts, n=1, cutoff=0.5)
        hint = f"did you mean {close[0]!r}?" if close else f"its parts: {', '.join(parts) or '-'}"
        raise UnskewError(f"method: {path} has no class {name!r}; {hint}")
    if not isinstance(found, type) or not issubclass(found, Part):
        raise UnskewError(
            f"method: {name} in {path} is not a part; derive it from ClientSide, ServerSide, "
            "Personalization or Setup of unskew"
        )
    return found


def function_from_file(spec: str) -> Callable[[Any, Any], float]:
    """Import a file and return one of its functions: ``my.py:cost`` is a metric of the user."""
    match = _SPEC.fullmatch(spec.strip())
    if match is None or not (match["cls"] or "").isidentifier() or match["options"]:
        raise UnskewError(f"metric {spec!r}: write the file and the function: my.py:function")
    path, name = Path(match["path"]).expanduser(), match["cls"]
    found = getattr(_imported(path, "metric"), name, None)
    if not callable(found):
        raise UnskewError(f"metric: {path} has no function {name!r}")
    function: Callable[[Any, Any], float] = found
    return function


def importing_beside(code: object) -> AbstractContextManager[None]:
    """Let a class or function of an imported file import the files beside it while it runs."""
    folder = _folders.get(getattr(code, "__module__", ""))
    return nullcontext() if folder is None else _importing_from(folder)


def _imported(path: Path, kind: str = "method") -> ModuleType:
    """Import a file, once for each content it has; ``kind`` is what it is imported for."""
    try:
        source = path.read_bytes()
    except OSError as error:
        raise UnskewError(f"{kind}: {path} cannot be read: {error.strerror}") from None
    path = path.resolve()
    key = path, hashlib.sha256(source).hexdigest()
    if key not in _modules:
        unique = hashlib.sha256(repr(key).encode()).hexdigest()[:12]
        module = _modules[key] = _executed(path, source, f"{kind}_{path.stem}_{unique}", kind)
        _folders[module.__name__] = path.parent
        code_files(module)  # what is executed is what was in the files now
        for cls in _parts_of(module):
            _files[cls] = path
            copyreg.pickle(cls, _reduced)
    return _modules[key]


def _executed(path: Path, source: bytes, name: str, kind: str) -> ModuleType:
    """Execute a file as a module; an error names its line."""
    module = ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module  # dataclasses and pickle look for it there
    try:
        with _importing_from(path.parent):
            exec(compile(source, str(path), "exec", dont_inherit=True), vars(module))
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        text = " ".join(str(error).split()) or "no message"
        raise UnskewError(
            f"{kind}: {path.name}, line {_line(error, path)}: {type(error).__name__}: {text}"
        ) from None
    return module


@contextmanager
def _importing_from(folder: Path) -> Iterator[None]:
    """Let a file import the files beside it."""
    sys.path.append(str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


def _line(error: BaseException, path: Path) -> int | str:
    """Return the line of a file at which an error occurred."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return error.lineno or "?"
    frames = traceback.extract_tb(error.__traceback__)
    return next((f.lineno or "?" for f in reversed(frames) if f.filename == str(path)), "?")


def _parts_of(module: ModuleType) -> list[type[Part]]:
    """Return the parts that a module itself defines."""
    return [
        each
        for each in vars(module).values()
        if isinstance(each, type) and issubclass(each, Part) and each.__module__ == module.__name__
    ]


def _reduced(part: Part) -> tuple[Any, ...]:
    """Pickle a part by its file, which a new worker process imports."""
    cls = type(part)
    return _restored, (str(_files[cls]), cls.__name__, dict(vars(part)))


def _restored(path: str, name: str, values: Mapping[str, Any]) -> Part:
    part = object.__new__(class_from_file(Path(path), name))
    vars(part).update(values)
    return part
