"""Turn what a configuration or the command line names into a federation."""

from collections.abc import Sequence
from pathlib import Path

from unskew.data.catalogue import CATALOGUE
from unskew.data.config import DataConfig
from unskew.data.federation import Federation
from unskew.data.load import load
from unskew.data.storage import is_saved
from unskew.errors import UnskewError

_OF_SOURCES = ("skew", "clients", "samples", "pool", "common")
_OF_TABLES = ("label_column", "client_column", "features")
"""Options of the data that mean nothing for other kinds of it."""


def open_data(wanted: DataConfig, seed: int) -> Federation:
    """Open a source by name, or the folder or table at a path, which brings its own clients."""
    path = Path(wanted.name)
    if not path.exists() and _looks_like_a_path(wanted.name):
        raise UnskewError(f"{wanted.name}: no such file or folder")
    if wanted.name in CATALOGUE or not path.exists():
        if wanted.name in CATALOGUE:
            _refuse(wanted, "is a source, which knows its labels and shape", (*_OF_TABLES, "size"))
        return load(
            wanted.name,
            wanted.skew or "iid",
            wanted.clients,
            seed,
            holdout=wanted.holdout,
            pool=wanted.pool,
            common=wanted.common,
            samples=wanted.samples,
        )
    _refuse(wanted, "brings its own clients", _OF_SOURCES)
    holdout = wanted.holdout or 0.0
    if path.is_dir() and is_saved(path):
        _refuse(wanted, "is a saved federation", (*_OF_TABLES, "size"))
        saved = Federation.open(path)
        return saved.held_out(holdout, seed) if holdout else saved
    if path.is_dir():
        _refuse(wanted, "is a folder of images", _OF_TABLES)
        return Federation.from_folder(path, size=wanted.size, holdout=holdout, seed=seed)
    _refuse(wanted, "is no folder of images", ("size",))
    return Federation.from_table(
        path,
        label=wanted.label_column,
        client=wanted.client_column,
        features=wanted.features,
        holdout=holdout,
        seed=seed,
    )


def with_tests(federation: Federation) -> Federation:
    """Return a federation in which something can be measured, or complain."""
    if not federation.common.samples and not federation.test.samples:
        raise UnskewError(
            f"{federation.name}: there are no test samples, so nothing could be compared; keep a "
            "share of each client's samples back, rounded down, such as --holdout 0.2"
        )
    return federation


def _refuse(wanted: DataConfig, what_it_is: str, options: Sequence[str]) -> None:
    """Complain about options that would have no effect."""
    usual = DataConfig.model_fields
    idle = [name for name in options if getattr(wanted, name) != usual[name].default]
    if idle:
        raise UnskewError(f"{wanted.name}: {what_it_is}; leave {' and '.join(idle)} away")


def _looks_like_a_path(name: str) -> bool:
    """Tell whether a name is meant as a file or folder: it has a separator or an ending."""
    return len(Path(name).parts) > 1 or bool(Path(name).suffix) or name.endswith("/")
