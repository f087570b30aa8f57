"""What the catalogue says about a data source."""

from dataclasses import dataclass
from typing import Literal

SourceKind = Literal["image", "text", "table"]


@dataclass(frozen=True)
class Package:
    """A package that contains a data set, and the checksum of its samples."""

    manager: Literal["npm", "apt", "pip"]
    name: str
    megabytes: int
    sha256: str
    version: str | None = None
    archive_sha256: str = ""
    """The checksum of the archive itself, which pip verifies before it looks into it."""

    def __str__(self) -> str:
        version = f" {self.version}" if self.version else ""
        return f"{self.manager} package {self.name}{version}"


@dataclass(frozen=True)
class TableRoles:
    """Where a table is in its package, and what its columns are for.

    ``archives`` are the archives in the package that lead to the file ``member``. Labels that are
    integers begin with ``first_label``.
    """

    member: str
    label: str
    client: str
    features: tuple[str, ...]
    first_label: int = 0
    archives: tuple[str, ...] = ()


@dataclass(frozen=True)
class SourceInfo:
    """One source of the catalogue; ``train`` and ``test`` count the samples of the full data set.

    ``file`` is the name of its ``.npz`` or ``.csv``; a source without one comes with unskew's
    dependencies. ``groups`` are its natural clients; ``fetches_groups`` says whether the package
    has them. ``origin`` is where the data was published, for users who have to copy it by hand.
    A table is not divided into training and test samples; ``classes`` is 0 if its target is a
    quantity.
    """

    title: str
    kind: SourceKind
    train: int
    test: int
    classes: int
    groups: str
    licence: str
    origin: str
    file: str | None
    class_names: tuple[str, ...] | None = None
    package: Package | None = None
    fetches_groups: bool = False
    table: TableRoles | None = None
