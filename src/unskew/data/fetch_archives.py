"""Read files from package archives in memory, without unpacking them to disk.

A member's name is only compared, never used as a path, so an archive cannot write to any path.
"""

import gzip
import io
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath
from typing import IO

from unskew.errors import UnskewError

MAX_FILE_BYTES = 200_000_000
"""No file of a data set is larger than this; a larger member is rejected."""

_DAMAGED = (tarfile.TarError, OSError, EOFError, zlib.error, lzma.LZMAError)


def members(archive: IO[bytes], names: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    """Yield (file name, content) of the named files of a tar stream, in any of its folders.

    Links, devices and folders are skipped. A missing file is an error.
    """
    missing = set(names)
    try:
        with tarfile.open(fileobj=archive, mode="r|*") as tar:
            for member in tar:
                name = PurePosixPath(member.name).name
                if name in missing and member.isreg():
                    missing.discard(name)
                    yield name, _content(tar, member)
    except _DAMAGED as error:
        raise UnskewError(f"archive: is damaged or truncated ({error}); fetch it again") from None
    if missing:
        raise UnskewError(f"archive: has no file {min(missing)!r}; it is not the expected package")


def member_at(archive: IO[bytes], path: str) -> bytes:
    """Return the file whose path ends like this, in a zip file or a tar stream."""
    ending = PurePosixPath(path).parts
    start = archive.read(4)
    archive.seek(0)
    try:
        if start == b"PK\x03\x04":
            with zipfile.ZipFile(archive) as file:
                for info in file.infolist():
                    if PurePosixPath(info.filename).parts[-len(ending) :] == ending:
                        _check_size(info.filename, info.file_size)
                        return file.read(info)
        else:
            with tarfile.open(fileobj=archive, mode="r|*") as tar:
                for member in tar:
                    name = PurePosixPath(member.name)
                    if name.parts[-len(ending) :] == ending and member.isreg():
                        return _content(tar, member)
    except (*_DAMAGED, zipfile.BadZipFile) as error:
        raise UnskewError(f"archive: is damaged or truncated ({error}); fetch it again") from None
    raise UnskewError(f"archive: has no file {path!r}; it is not the expected package")


def gunzip(content: bytes, name: str) -> bytes:
    """Decompress gzip content, and reject a file that would become too large."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
            plain = file.read(MAX_FILE_BYTES + 1)
    except _DAMAGED as error:
        raise UnskewError(f"{name}: is damaged or truncated ({error}); fetch it again") from None
    if len(plain) > MAX_FILE_BYTES:
        raise UnskewError(f"{name}: is larger than any file of a data set")
    return plain


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    _check_size(member.name, member.size)
    file = tar.extractfile(member)
    return file.read() if file else b""


def _check_size(name: str, size: int) -> None:
    if size > MAX_FILE_BYTES:
        raise UnskewError(f"{name}: is larger than any file of a data set ({size})")
