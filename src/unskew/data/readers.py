"""Read a federation from what people have on disk: folders of images, CSV and Parquet tables."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from unskew.data.federation import Federation
from unskew.data.read_images import decode, list_images
from unskew.data.read_tables import Table
from unskew.errors import UnskewError


def from_folder(
    path: str | Path,
    *,
    size: int | tuple[int, int] | None = None,
    color: bool | None = None,
    **options: Any,
) -> Federation:
    """Do what :meth:`Federation.from_folder` says."""
    root = Path(path)
    images = list_images(root)
    pixels = decode([image.path for image in images], _height_width(size), color)
    class_names, labels = np.unique([image.label for image in images], return_inverse=True)
    clients = [image.client for image in images]
    federation = Federation.from_arrays(
        pixels,
        labels,
        None if clients[0] is None else np.array(clients),
        **{"name": root.resolve().name, **options},
    )
    return _named(federation, class_names.tolist())


def from_table(
    path: str | Path,
    *,
    label: str,
    client: str | None = None,
    features: Sequence[str] | None = None,
    **options: Any,
) -> Federation:
    """Do what :meth:`Federation.from_table` says."""
    table = Table(Path(path))
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
    federation = Federation.from_arrays(x, labels, owners, **{"name": table.file.stem, **options})
    return _named(federation, class_names)


def _check_roles(path: str | Path, label: str, client: str | None, features: Sequence[str]) -> None:
    """Refuse a column in two roles: a feature that is the label leaves nothing to learn."""
    roles = [label, *([] if client is None else [client]), *features]
    for name in roles:
        if roles.count(name) > 1:
            raise UnskewError(
                f"{path}: column {name!r} is named twice among label, client and features; each "
                "has one role"
            )


def _height_width(size: int | tuple[int, int] | None) -> tuple[int, int] | None:
    if size is None:
        return None
    height, width = (size, size) if isinstance(size, int) else size
    if min(height, width) < 1:
        raise UnskewError(f"size must be at least 1 pixel (got {size})")
    return height, width


def _named(federation: Federation, class_names: Sequence[str]) -> Federation:
    """Name the classes, unless there are others that nobody here has a sample of."""
    if len(class_names) != federation.classes:
        return federation
    return replace(federation, class_names=tuple(class_names))
