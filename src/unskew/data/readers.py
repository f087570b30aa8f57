"""Read samples from files: folders of images, CSV and Parquet tables."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from unskew.data.columns import Array
from unskew.data.read_images import decode, list_images
from unskew.data.read_tables import TableFile
from unskew.errors import UnskewError


@dataclass(frozen=True, eq=False)
class FileSamples:
    """The samples of a folder or table: features, integer labels and the client of each.

    ``client`` is None if the files name no clients; ``class_names`` is empty if the labels are
    integers.
    """

    name: str
    x: Array
    y: Array
    client: Array | None
    class_names: tuple[str, ...]


def read_folder(
    path: str | Path, *, size: int | tuple[int, int] | None = None, color: bool | None = None
) -> FileSamples:
    """Read a folder of images; the arguments are those of :meth:`Federation.from_folder`."""
    root = Path(path)
    images = list_images(root)
    pixels = decode([image.path for image in images], _height_width(size), color)
    class_names, labels = np.unique([image.label for image in images], return_inverse=True)
    clients = [image.client for image in images]
    return FileSamples(
        name=root.resolve().name,
        x=pixels,
        y=labels,
        client=None if clients[0] is None else np.array(clients),
        class_names=tuple(class_names.tolist()),
    )


def read_table(
    path: str | Path,
    *,
    label: str,
    client: str | None = None,
    features: Sequence[str] | None = None,
) -> FileSamples:
    """Read a table; the arguments are those of :meth:`Federation.from_table`."""
    table = TableFile(Path(path))
    labels = table.ids(label)
    owners = None if client is None else table.ids(client)
    if features is None:
        features = [name for name in table.names if name not in (label, client)]
    if not features:
        raise UnskewError(f"{path}: has no columns left for features")
    _check_roles(path, label, client, features)
    x = np.stack([table.numbers(name) for name in features], axis=1)
    class_names: list[str] = []
    if labels.dtype.kind == "U":
        names, labels = np.unique(labels, return_inverse=True)
        class_names = names.tolist()
    return FileSamples(
        name=table.file.stem, x=x, y=labels, client=owners, class_names=tuple(class_names)
    )


def _check_roles(path: str | Path, label: str, client: str | None, features: Sequence[str]) -> None:
    """Reject a column with two roles: a feature that is the label leaves nothing to learn."""
    roles = [label, *([] if client is None else [client]), *features]
    for name in roles:
        if roles.count(name) > 1:
            raise UnskewError(
                f"{path}: column {name!r} is named twice among label, client and features; name "
                "it once"
            )


def _height_width(size: int | tuple[int, int] | None) -> tuple[int, int] | None:
    if size is None:
        return None
    height, width = (size, size) if isinstance(size, int) else size
    if min(height, width) < 1:
        raise UnskewError(f"size must be at least 1 pixel (got {size})")
    return height, width
