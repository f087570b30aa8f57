"""Read samples from files: folders of images, CSV and Parquet tables."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from unskew.data.columns import Array
from unskew.data.read_images import decode, list_images
from unskew.data.read_tables import RawTable, TableLike
from unskew.data.targets import TaskName, table_targets
from unskew.errors import UnskewError

_HINT = (
    "set --label-column, --client-column and --features, or label, client and features in Python"
)


@dataclass(frozen=True, eq=False)
class FileSamples:
    """The samples of a folder: features, integer labels and the client of each.

    ``client`` is None if the files name no clients; ``class_names`` is empty if the labels are
    integers or the targets numbers.
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


@dataclass(frozen=True, eq=False)
class TableSamples:
    """The samples of a table: its feature columns, integer labels and the client of each row."""

    table: RawTable
    features: list[str]
    y: Array
    client: Array | None
    class_names: tuple[str, ...]

    def labels_like(self, other: "TableSamples") -> Array:
        """Return the labels as those of another table, which has the names of the classes."""
        if bool(self.class_names) != bool(other.class_names):
            raise UnskewError(f"{self.table.where}: its labels are not those of the training table")
        if not self.class_names:
            return self.y
        unknown = [name for name in self.class_names if name not in other.class_names]
        if unknown:
            raise UnskewError(f"{self.table.where}: no training row has the label {unknown[0]!r}")
        return np.array([other.class_names.index(name) for name in self.class_names])[self.y]


def read_table(
    table: TableLike,
    *,
    label: str,
    client: str | None = None,
    features: Sequence[str] | None = None,
    task: TaskName | None = None,
    what: str = "table",
) -> TableSamples:
    """Read a table; the arguments are those of :meth:`Federation.from_table`."""
    raw = RawTable.of(table, what)
    roles = [label] if client is None else [label, client]
    raw.check_has([*roles, *(features or ())], _HINT)
    labels = table_targets(raw, label, task)
    owners = None if client is None else raw.ids(client)
    chosen = [n for n in raw.names if n not in roles] if features is None else list(features)
    if not chosen:
        raise UnskewError(f"{raw.where}: has no columns left for features")
    _check_roles(raw.where, label, client, chosen)
    class_names: list[str] = []
    if labels.dtype.kind == "U":
        names, labels = np.unique(labels, return_inverse=True)
        class_names = names.tolist()
    return TableSamples(raw, chosen, labels, owners, tuple(class_names))


def _check_roles(where: str, label: str, client: str | None, features: Sequence[str]) -> None:
    """Reject a column with two roles: a feature that is the label leaves nothing to learn."""
    roles = [label, *([] if client is None else [client]), *features]
    for name in roles:
        if roles.count(name) > 1:
            raise UnskewError(
                f"{where}: column {name!r} is named twice among label, client and features; name "
                "it once"
            )


def _height_width(size: int | tuple[int, int] | None) -> tuple[int, int] | None:
    if size is None:
        return None
    height, width = (size, size) if isinstance(size, int) else size
    if min(height, width) < 1:
        raise UnskewError(f"size must be at least 1 pixel (got {size})")
    return height, width
