"""An app on disk: what its pyproject.toml says, and the same run in one process."""

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
    """Return the app's configuration as Flower hands it to the apps: flat, with dotted names."""
    path = app / "pyproject.toml"
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        config = content["tool"]["flwr"]["app"]["config"]
    except OSError as error:
        raise UnskewError(
            f"{path}: cannot be read: {error.strerror}; unskew flower new DIR writes an app"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UnskewError(f"{path}: is not TOML: {error}") from None
    except (KeyError, TypeError):
        raise UnskewError(f"{path}: has no [tool.flwr.app.config]; is it a Flower app?") from None
    return _flat(config)


def changed(config: Config, changes: Mapping[str, Any], app: Path) -> Config:
    """Return a configuration with some values changed; Flower refuses names that are not in it."""
    unknown = sorted(set(changes) - set(config))
    if unknown:
        raise UnskewError(
            f"{app / 'pyproject.toml'}: [tool.flwr.app.config] has no {unknown[0]}; add it there "
            "and let the app use it"
        )
    return {**config, **changes}


def load_task(app: Path) -> ModuleType:
    """Load an app's ``task.py``, which says what server and nodes agree on."""
    path = app / "task.py"
    name = f"unskew_flower_task_{abs(hash(path.resolve()))}"
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise UnskewError(f"{path}: parity needs a task.py as unskew flower new writes it")
    module = module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[name]
    missing = [each for each in _NEEDED if not hasattr(module, each)]
    if missing:
        raise UnskewError(f"{path}: has no {missing[0]}; parity needs {', '.join(_NEEDED)}")
    return module


_NEEDED = ("METHOD", "MODEL", "federation", "settings")


def _flat(config: Mapping[str, Any], before: str = "") -> Config:
    flat: Config = {}
    for key, value in config.items():
        flat |= (
            _flat(value, f"{before}{key}.") if isinstance(value, dict) else {before + key: value}
        )
    return flat
