"""Open an ``.npz`` file of arrays as a federation."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from unskew.data.columns import Array
from unskew.data.federation import Federation
from unskew.data.source_info import SourceInfo
from unskew.data.sources import Source, checked_source, read_npz
from unskew.errors import UnskewError

_LAYOUTS = (
    "x and y (and client, x_test, y_test), or x_train, y_train, x_test and y_test (and "
    "group_train, group_test)"
)


def is_source(arrays: dict[str, Array]) -> bool:
    """Return whether arrays are a source: training and test samples, not yet partitioned."""
    return "x_train" in arrays


def npz_federation(path: Path, arrays: dict[str, Array], holdout: float, seed: int) -> Federation:
    """Build a federation from the arrays ``x``, ``y`` and, if there are any, ``client``.

    ``x_test`` and ``y_test`` are the common test set, and ``class_names`` the names of the classes.
    """
    if "x" not in arrays or "y" not in arrays:
        raise UnskewError(f"{path}: must hold the arrays {_LAYOUTS}")
    common = None
    if "x_test" in arrays and "y_test" in arrays:
        common = arrays["x_test"], arrays["y_test"]
    names = arrays.get("class_names")
    try:
        federation = Federation.from_arrays(
            arrays["x"],
            arrays["y"],
            arrays.get("client"),
            common=common,
            holdout=holdout,
            seed=seed,
            classes=None if names is None else len(names),
            name=path.stem,
        )
    except UnskewError as error:
        raise UnskewError(f"{path}: {error}") from None
    if names is None:
        return federation
    return replace(federation, class_names=tuple(map(str, names.tolist())))


def npz_source(path: Path, arrays: dict[str, Array]) -> Source:
    """Return the arrays as a source: bytes are images, and texts are texts."""
    labels = [arrays[key] for key in ("y_train", "y_test") if key in arrays]
    counted = [int(y.max(initial=0)) + 1 for y in labels if y.dtype.kind in "iu"]
    info = SourceInfo(
        title=path.stem,
        kind="text" if arrays["x_train"].dtype.kind == "U" else "image",
        train=len(arrays["x_train"]),
        test=0,
        classes=max(counted, default=1),
        groups="-",
        licence="",
        origin=str(path),
        file=path.name,
    )
    return checked_source(path.stem, info, path, arrays)


def read_arrays(path: Path) -> dict[str, Array]:
    """Read the arrays of a file that a federation can be made of."""
    arrays = read_npz(path, further=("x", "y", "client"))
    scalars = [name for name, array in arrays.items() if np.ndim(array) == 0]
    if scalars:
        raise UnskewError(f"{path}: {scalars[0]} must have one row per sample")
    return arrays
