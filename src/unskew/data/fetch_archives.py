"""Take files out of package archives, in memory: no archive is ever unpacked onto the disk.

A member's name is only compared, never used as a path, so no archive can write anywhere.
"""

import gzip
import io
import lzma
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath
from typing import IO

from unskew.errors import UnskewError

LARGEST = 200_000_000
"""No file of a data set is larger than this; one that claims to be is not unpacked."""

_DAMAGED = (tarfile.TarError, OSError, EOFError, zlib.error, lzma.LZMAError)


def members(archive: IO[bytes], wanted: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    """Yield (file name, content) of the wanted files of a tar stream, whatever folder they are in.

    Links, devices and folders are passed over. That a wanted file is missing is an error.
    """
    missing = set(wanted)
    try:
        with tarfile.open(fileobj=archive, mode="r|*") as tar:
            for member in tar:
                name = PurePosixPath(member.name).name
                if name in missing and member.isreg():
                    missing.discard(name)
                    yield name, _content(tar, member)
    except _DAMAGED as error:
        raise UnskewError(f"archive: is damaged or cut off ({error}); fetch it again") from None
    if missing:
        raise UnskewError(f"archive: has no file {min(missing)!r}; it is not the package meant")


def gunzip(content: bytes, name: str) -> bytes:
    """Undo gzip, but not for a file that would become absurdly large."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
            plain = file.read(LARGEST + 1)
    except _DAMAGED as error:
        raise UnskewError(f"{name}: is damaged or cut off ({error}); fetch it again") from None
    if len(plain) > LARGEST:
        raise UnskewError(f"{name}: is larger than any file of a data set; it was not unpacked")
    return plain


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    if member.size > LARGEST:
        raise UnskewError(f"{member.name}: is larger than any file of a data set ({member.size})")
    file = tar.extractfile(member)
    return file.read() if file else b""
