"""Open the data that a configuration or the command line names as a federation."""

from collections.abc import Sequence
from pathlib import Path

from unskew.data.catalogue import CATALOGUE
from unskew.data.config import DataConfig
from unskew.data.federation import Federation
from unskew.data.load import load
from unskew.data.storage import is_saved
from unskew.errors import UnskewError

_SOURCE_OPTIONS = ("skew", "clients", "samples", "pool", "common")
_TABLE_OPTIONS = ("label_column", "client_column", "features")
"""Options that have no effect on other kinds of data."""


def open_data(config: DataConfig, seed: int) -> Federation:
    """Open a source by name, or the folder or table at a path, which defines its clients."""
    path = Path(config.name)
    if not path.exists() and _looks_like_a_path(config.name):
        raise UnskewError(f"{config.name}: no such file or folder")
    if config.name in CATALOGUE or not path.exists():
        if config.name in CATALOGUE:
            _reject(
                config, "is a source with a fixed shape and fixed labels", (*_TABLE_OPTIONS, "size")
            )
        return load(
            config.name,
            config.skew or "iid",
            config.clients,
            seed,
            holdout=config.holdout,
            pool=config.pool,
            common=config.common,
            samples=config.samples,
        )
    _reject(config, "defines its own clients", _SOURCE_OPTIONS)
    holdout = config.holdout or 0.0
    if path.is_dir() and is_saved(path):
        _reject(config, "is a saved federation", (*_TABLE_OPTIONS, "size"))
        saved = Federation.open(path)
        return saved.held_out(holdout, seed) if holdout else saved
    if path.is_dir():
        _reject(config, "is a folder of images", _TABLE_OPTIONS)
        return Federation.from_folder(path, size=config.size, holdout=holdout, seed=seed)
    _reject(config, "is not a folder of images", ("size",))
    return Federation.from_table(
        path,
        label=config.label_column,
        client=config.client_column,
        features=config.features,
        holdout=holdout,
        seed=seed,
    )


def _reject(config: DataConfig, reason: str, options: Sequence[str]) -> None:
    """Raise an error if one of these options, which have no effect on this data, is set."""
    fields = DataConfig.model_fields
    unused = [name for name in options if getattr(config, name) != fields[name].default]
    if unused:
        raise UnskewError(f"{config.name}: {reason}; remove {' and '.join(unused)}")


def _looks_like_a_path(name: str) -> bool:
    """Return whether a name is meant as a path: it has a separator or a suffix."""
    return len(Path(name).parts) > 1 or bool(Path(name).suffix) or name.endswith("/")
