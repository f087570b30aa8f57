"""The source files of user-defined code: a module's own, and those of local modules it imports.

A hash of them shows what a hash of classes cannot: that a constant, a function or an imported
helper has changed. Comments, docstrings and layout are not part of it.
"""

import ast
import hashlib
import importlib.util
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import FunctionType, ModuleType

_PACKAGE = Path(__file__).resolve().parents[1]
_STANDARD = Path(sysconfig.get_path("stdlib")).resolve()
_INSTALLED = {"site-packages", "dist-packages"}


@dataclass(frozen=True, eq=False)
class _Source:
    """A file as it was when it was read, which is what this process executes."""

    digest: str
    imports: tuple[Path, ...]
    """The local files that it imports."""
    loaded: tuple[object, ...]
    """What its module held then: after a reload, the file is read again."""


_sources: dict[Path, _Source | None] = {}
"""The files by path; None if there is no source. A file that is edited while runs are executed
keeps its hash until its module is reloaded, since they execute what was imported."""


def code_files(module: ModuleType | None) -> dict[str, str]:
    """Return a hash of each file of a module's code, by name; empty for code without a file.

    They are its own file, and those of the local modules that it imports, also indirectly. Local
    means neither installed nor part of Python or of unskew.
    """
    return _hashes([path] if (path := _file_of(module)) is not None else [])


def files_of_imports(names: Iterable[str]) -> dict[str, str]:
    """Return the same for the local files that code without a file imports by these names."""
    return _hashes(list(dict.fromkeys(_absolute_files(names, Path(sys.path[0])))))


def _hashes(waiting: list[Path]) -> dict[str, str]:
    """Return hashes of files and of those that they import, by name."""
    seen, found = set(waiting), dict[str, str]()
    while waiting:
        path = waiting.pop(0)
        source = _source(path)
        if source is not None:
            name = code_name(path)
            found[name] = _hash(found.get(name, "") + source.digest)
            waiting += [each for each in source.imports if each not in seen]
            seen.update(source.imports)
    return found


def code_name(path: Path) -> str:
    """Return the name of a file of code: its path from the folder it is imported from."""
    top = path.parent
    while (top / "__init__.py").is_file():
        top = top.parent
    return path.relative_to(top).as_posix()


def is_local(path: Path) -> bool:
    """Return whether a file is the user's: neither installed nor part of Python or of unskew."""
    resolved = path.resolve()
    return not (
        resolved.is_relative_to(_PACKAGE)
        or resolved.is_relative_to(_STANDARD)
        or _INSTALLED & {*path.parts, *resolved.parts}
    )


def _file_of(module: ModuleType | None) -> Path | None:
    """Return the file of a module; None for ``__main__``, whose code may be typed or pickled."""
    file = getattr(module, "__file__", None)
    if module is None or file is None or module is sys.modules.get("__main__"):
        return None
    path = Path(file)
    return path if path.suffix == ".py" and _source(path) is not None else None


def _source(path: Path) -> _Source | None:
    known, loaded = _sources.get(path), _loaded(path)
    unchanged = known is not None and len(known.loaded) == len(loaded)
    if known is None or not (
        unchanged and all(a is b for a, b in zip(known.loaded, loaded, strict=True))
    ):
        _sources[path] = _read(path, loaded)
    return _sources[path]


def _read(path: Path, loaded: tuple[object, ...]) -> _Source | None:
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return None
    imports = tuple(dict.fromkeys(_local_imports(tree, path)))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = node.body[ast.get_docstring(node, clean=False) is not None :]
    return _Source(_hash(ast.unparse(tree)), imports, loaded)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _loaded(path: Path) -> tuple[object, ...]:
    """Return what a reload of a file's modules, or a patch of their functions, would replace."""
    modules = [
        each
        for each in tuple(sys.modules.values())
        if isinstance(each, ModuleType) and vars(each).get("__file__") == str(path)
    ]
    values = [value for module in modules for value in vars(module).values()]
    members = [each for value in values if isinstance(value, type) for each in vars(value).values()]
    functions = [each for each in (*values, *members) if isinstance(each, FunctionType)]
    return (*values, *(each.__code__ for each in functions))


def _local_imports(tree: ast.AST, path: Path) -> Iterator[Path]:
    """Yield the local files that a file imports, also inside functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from _absolute_files((alias.name for alias in node.names), path.parent)
        elif isinstance(node, ast.ImportFrom):
            names = [alias.name for alias in node.names]
            if node.level:
                yield from _relative_files(path.parents[node.level - 1], node.module, names)
            else:
                dotted = (f"{node.module}.{name}" for name in names)
                yield from _absolute_files(dotted, path.parent)


def _relative_files(folder: Path, module: str | None, names: Iterable[str]) -> Iterator[Path]:
    base = folder.joinpath(*(module or "").split("."))
    for each in (base, *(base / name for name in names)):
        yield from _existing((each.with_suffix(".py"), each / "__init__.py"))


def _absolute_files(names: Iterable[str], folder: Path) -> Iterator[Path]:
    for name in names:
        yield from _files_of_name(name, folder)


def _files_of_name(name: str, folder: Path) -> Iterator[Path]:
    """Yield the files of a dotted name and of the packages that it is in.

    The last part may be something else than a module.
    """
    top = name.partition(".")[0]
    if top in sys.stdlib_module_names or top == "unskew":
        return
    spec: ModuleSpec | None = None
    for length in range(1, name.count(".") + 2):
        part = ".".join(name.split(".")[:length])
        spec = _spec(part, spec, folder)
        if spec is None or (spec.origin is not None and not is_local(Path(spec.origin))):
            return
        yield from _existing([Path(spec.origin)] if spec.has_location and spec.origin else ())


def _spec(name: str, package: ModuleSpec | None, folder: Path) -> ModuleSpec | None:
    """Return where a module is found, without importing it."""
    imported: ModuleSpec | None = getattr(sys.modules.get(name), "__spec__", None)
    if imported is not None:
        return imported
    if package is not None:
        return PathFinder.find_spec(name, package.submodule_search_locations or [])
    try:
        return importlib.util.find_spec(name) or PathFinder.find_spec(name, [str(folder)])
    except (ImportError, ValueError):  # something that is not a module is imported by this name
        return None


def _existing(paths: Iterable[Path]) -> Iterator[Path]:
    yield from (path for path in paths if path.suffix == ".py" and path.is_file())
