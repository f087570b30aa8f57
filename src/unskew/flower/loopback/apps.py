"""Reading an app from disk: the configuration in its pyproject.toml, and its task.py."""

import sys
import tomllib
from collections.abc import Mapping
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from unskew.errors import UnskewError

Config = dict[str, Any]


def read_app_config(app: Path) -> Config:
    """Return the app's configuration as Flower passes it to apps: flat, with dotted keys."""
    path = app / "pyproject.toml"
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        config = content["tool"]["flwr"]["app"]["config"]
    except OSError as error:
        raise UnskewError(
            f"{path}: it cannot be read ({error.strerror}); unskew flower new DIR writes an app"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UnskewError(f"{path}: it is not valid TOML: {error}") from None
    except (KeyError, TypeError):
        raise UnskewError(
            f"{path}: it has no [tool.flwr.app.config]; is it a Flower app?"
        ) from None
    return _flatten(config)


def with_changes(config: Config, changes: Mapping[str, Any], app: Path) -> Config:
    """Return a configuration with changed values; raise for new keys, which Flower rejects."""
    unknown = sorted(set(changes) - set(config))
    if unknown:
        raise UnskewError(
            f"{app / 'pyproject.toml'}: [tool.flwr.app.config] has no {', '.join(unknown)}; add "
            f"{'it' if len(unknown) == 1 else 'them'} there and use "
            f"{'it' if len(unknown) == 1 else 'them'} in the app"
        )
    return {**config, **changes}


def load_task(app: Path) -> ModuleType:
    """Load an app's ``task.py``, which defines what server and nodes agree on."""
    path = app / "task.py"
    name = f"unskew_flower_task_{abs(hash(path.resolve()))}"
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise UnskewError(
            f"{path}: it does not exist; --check-parity needs the task.py of unskew flower new"
        )
    module = module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[name]
    missing = [name for name in _TASK_NAMES if not hasattr(module, name)]
    if missing:
        needed = ", ".join(_TASK_NAMES)
        raise UnskewError(f"{path}: it has no {', '.join(missing)}; --check-parity needs {needed}")
    return module


_TASK_NAMES = ("METHOD", "MODEL", "federation", "settings")


def _flatten(config: Mapping[str, Any], prefix: str = "") -> Config:
    flat: Config = {}
    for key, value in config.items():
        if isinstance(value, dict):
            flat |= _flatten(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat
