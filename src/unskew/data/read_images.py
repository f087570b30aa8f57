"""Find and decode the images of a folder in a fixed order."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from unskew.errors import UnskewError

if TYPE_CHECKING:
    from PIL.Image import Image

_SUFFIXES = frozenset(
    (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm")
)
_GREY_MODES = ("1", "L", "LA")
_DEEP_MODES = ("I", "F")  # Pillow would clip these at 255 silently


@dataclass(frozen=True)
class ImageFile:
    """One image, and the client and class that its folders name."""

    path: Path
    client: str | None
    label: str


def list_images(root: Path) -> list[ImageFile]:
    """List the images of a folder by client, class and file name."""
    if not root.is_dir():
        raise UnskewError(f"{root}: is not a folder")
    flat = [ImageFile(p, None, label.name) for label in _folders(root) for p in _files(label)]
    deep = [
        ImageFile(p, client.name, label.name)
        for client in _folders(root)
        for label in _folders(client)
        for p in _files(label)
    ]
    if flat and deep:
        raise UnskewError(
            f"{root}: mixes {flat[0].path.relative_to(root)} and {deep[0].path.relative_to(root)}; "
            "use either <client>/<class>/ or <class>/ for all images"
        )
    if not flat and not deep:
        raise UnskewError(f"{root}: has no images in <client>/<class>/ or <class>/ folders")
    return flat or deep


def decode(
    paths: Sequence[Path], size: tuple[int, int] | None, color: bool | None
) -> NDArray[np.uint8]:
    """Decode images to samples x channels x height x width.

    Headers are read first, so that an image of another size is reported before any decoding.
    """
    headers = [_header(path) for path in paths]
    height, width = size or _common_size(paths, [shape for shape, _ in headers])
    if color is None:
        color = any(mode not in _GREY_MODES for _, mode in headers)
    pixels = np.empty((len(paths), 3 if color else 1, height, width), np.uint8)
    for row, path in zip(pixels, paths, strict=True):
        with _opened(path) as image:
            plain = image.convert("RGB" if color else "L")
            if plain.size != (width, height):
                plain = plain.resize((width, height))
            row[:] = np.atleast_3d(np.asarray(plain)).transpose(2, 0, 1)
    return pixels


def _folders(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))


def _files(folder: Path) -> list[Path]:
    return sorted(
        p
        for p in folder.iterdir()
        if p.suffix.lower() in _SUFFIXES and not p.name.startswith(".") and p.is_file()
    )


def _header(path: Path) -> tuple[tuple[int, int], str]:
    with _opened(path) as image:
        shape, mode = (image.height, image.width), image.mode
    if mode.startswith(_DEEP_MODES):
        raise UnskewError(f"{path}: has more than 8 bits per pixel; convert it to 8 bits")
    return shape, mode


def _common_size(paths: Sequence[Path], shapes: Sequence[tuple[int, int]]) -> tuple[int, int]:
    for path, shape in zip(paths, shapes, strict=True):
        if shape != shapes[0]:
            raise UnskewError(
                f"images differ in size: {paths[0]} is {_size_text(shapes[0])}, "
                f"{path} is {_size_text(shape)}; set size to resize them"
            )
    return shapes[0]


def _size_text(shape: tuple[int, int]) -> str:
    return f"{shape[0]}x{shape[1]}"


@contextmanager
def _opened(path: Path) -> "Iterator[Image]":
    from PIL import Image  # noqa: PLC0415 (slow to import)

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path) as image:
                yield image
    except UnskewError:
        raise
    except Exception as error:  # Pillow's decoders raise many types on damaged bytes
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UnskewError(f"{path}: cannot be read as an image ({reason})") from None
