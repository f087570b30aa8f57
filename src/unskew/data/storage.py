"""Save a federation in a folder of ``.npy`` files that can be memory-mapped."""

import json
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from unskew.data.columns import Array, Columns
from unskew.data.preprocessing.fitted import Preprocessing
from unskew.data.targets import BINS
from unskew.errors import UnskewError
from unskew.utils.folders import check_folder

if TYPE_CHECKING:
    from unskew.data.federation import Federation

FORMAT = 1
_METADATA = "federation.json"
_UNFINISHED = f"{_METADATA}.part"
_NAMES = "client_names"
_PARTS = ("train", "test", "common")


def is_saved(folder: Path) -> bool:
    """Return whether a folder holds a saved federation."""
    return (folder / _METADATA).is_file()


def check_writable(folder: Path, *, replace: bool) -> None:
    """Raise if saving would mix with other files, or replace a federation without being asked."""
    if is_saved(folder):
        if not replace:
            raise UnskewError(f"{folder}: holds a saved federation; replace it with --force")
    elif folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UnskewError(f"{folder}: exists already; choose a folder that is new or empty")


def write(federation: "Federation", folder: Path) -> None:
    """Write a federation into a folder, replacing a federation that is already there.

    The metadata file is removed first and written last, so that the incomplete folder of an
    interrupted write is not mistaken for a federation. Until then another file marks the folder as
    one that may be written to again. A folder that holds anything else is refused.
    """
    check_folder(folder, (_METADATA, _UNFINISHED), "format", "saved federation")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _UNFINISHED).write_text(json.dumps({"format": FORMAT}))
    (folder / _METADATA).unlink(missing_ok=True)
    for name in _PARTS:
        columns: Columns = getattr(federation, name)
        _write_array(folder / f"{name}_x.npy", columns.x)
        _write_array(folder / f"{name}_y.npy", columns.y)
        _write_array(folder / f"{name}_offsets.npy", columns.offsets)
    if federation.client_names is None:
        (folder / f"{_NAMES}.npy").unlink(missing_ok=True)
    else:
        _write_array(folder / f"{_NAMES}.npy", federation.client_names)
    metadata = {
        "format": FORMAT,
        "name": federation.name,
        "classes": federation.classes,
        "class_names": federation.class_names,
        "vocabulary": federation.vocabulary,
        "feature_names": federation.feature_names,
        "report": federation.report.to_dict() if federation.report else None,
        "preprocessing": federation.preprocessing.to_json() if federation.preprocessing else None,
    }
    (folder / _UNFINISHED).write_text(json.dumps(metadata))
    (folder / _UNFINISHED).replace(folder / _METADATA)


def read(folder: Path, *, mmap: bool) -> dict[str, Any]:
    """Read the fields of a federation; with ``mmap`` samples stay on disk until they are used."""
    from unskew.partition.report import PartitionReport  # noqa: PLC0415 (imports scipy)

    if not is_saved(folder):
        raise UnskewError(f"{folder}: holds no saved federation (no {_METADATA})")
    try:
        metadata = json.loads((folder / _METADATA).read_text(encoding="utf-8"))
        if metadata["format"] != FORMAT:
            raise UnskewError(
                f"{folder}: format {metadata['format']} is not supported (expected {FORMAT})"
            )
        fields: dict[str, Any] = {name: _read_columns(folder, name, mmap) for name in _PARTS}
        if (folder / f"{_NAMES}.npy").exists():
            fields[_NAMES] = _read_array(folder / f"{_NAMES}.npy", mmap)
        fields |= {name: metadata[name] for name in ("name", "classes")}
        fields |= {name: _tuple(metadata[name]) for name in ("class_names", "vocabulary")}
        fields["feature_names"] = _tuple(metadata.get("feature_names"))
        fields["report"] = (
            PartitionReport.from_dict(metadata["report"]) if metadata["report"] else None
        )
        if metadata.get("preprocessing") is not None:
            fields["preprocessing"] = Preprocessing.from_json(metadata["preprocessing"])
        if fields["report"] is not None:
            is_regression = fields["train"].y.dtype.kind == "f"
            fields["report"].check(
                len(fields["train"]), BINS if is_regression else fields["classes"]
            )
    except UnskewError as error:
        raise UnskewError(f"{folder}: is damaged: {error}") from None
    except Exception as error:  # numpy and json raise many types on damaged bytes
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UnskewError(f"{folder}: is damaged ({reason}); save the federation again") from None
    return fields


def _read_columns(folder: Path, name: str, mmap: bool) -> Columns:
    x, y, offsets = (
        _read_array(folder / f"{name}_{column}.npy", mmap) for column in ("x", "y", "offsets")
    )
    return Columns(x, y, offsets)


def _read_array(path: Path, mmap: bool) -> Array:
    if not path.is_file():  # also a pipe, which would never end
        raise UnskewError(f"{path.name} is not a file")
    # A plain view of the mapping, because slicing a numpy.memmap is several times slower.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what is wrong is an error below
        array = np.load(path, mmap_mode="r" if mmap else None, allow_pickle=False)
    if not isinstance(array, np.ndarray) or array.ndim == 0:
        raise UnskewError(f"{path.name} is not an array with one row per entry")
    return np.asarray(array)


def _write_array(path: Path, array: Array) -> None:
    """Write to a new file, then replace the old one, which the array may be mapped from."""
    part = path.with_name(f"{path.name}.part")
    with part.open("wb") as file:
        np.save(file, array, allow_pickle=False)
    part.replace(path)


def _tuple(values: list[str] | None) -> tuple[str, ...] | None:
    if values is not None and not isinstance(values, list):
        raise UnskewError(f"names must be a list (got {values!r})")
    return None if values is None else tuple(values)
