"""The federation: the samples of all clients in one columnar store; a client is a slice of it.

Features, labels and client offsets are three plain arrays, in memory or memory-mapped from a
folder of ``.npy`` files. Access to a client copies nothing, so a million small clients need little
more memory than their samples.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from unskew.data import checks, storage
from unskew.data.columns import Array, Columns
from unskew.data.holdout import held_out_columns
from unskew.data.html import federation_html
from unskew.data.huggingface import huggingface_federation
from unskew.data.invariants import check_federation
from unskew.data.names import printable_names
from unskew.data.preprocessing.fitted import Preprocessing
from unskew.data.preprocessing.spec import NoPrepare, Prepare
from unskew.data.read_items import read_items
from unskew.data.read_once import read_once
from unskew.data.read_tables import TableLike
from unskew.data.readers import FileSamples, read_folder
from unskew.data.tables import table_federation, text_federation
from unskew.data.targets import (
    BINS,
    TaskName,
    as_targets,
    center_and_scale,
    check_task,
    in_bins,
    sums_of,
)
from unskew.errors import UnskewError
from unskew.utils.printable import printable

if TYPE_CHECKING:
    from torch.utils.data import Dataset

    from unskew.partition.report import PartitionReport


@dataclass(frozen=True, eq=False)
class Federation:
    """Clients and their data.

    ``train`` and ``test`` hold each client's samples (``test`` may be empty). ``common`` is the
    common test set, which belongs to no client; it is stored as a single "client".
    """

    train: Columns
    test: Columns
    common: Columns
    classes: int
    name: str = "custom"
    client_names: Array | None = None
    class_names: tuple[str, ...] | None = None
    vocabulary: tuple[str, ...] | None = None
    feature_names: tuple[str, ...] | None = None
    report: "PartitionReport | None" = field(default=None)
    preprocessing: Preprocessing | None = None
    """How raw columns or texts became the features; None if they were numbers already."""
    target_units: tuple[float, float] | None = None
    """The mean and standard deviation of regression targets, if this process knows them from
    elsewhere than its samples."""

    has_samples: ClassVar[bool] = True
    """Whether this process holds the samples; false if only remote clients do."""

    def __post_init__(self) -> None:
        """Make names printable, wherever they come from: they end up in tables and pages."""
        names, classes = self.client_names, self.class_names
        if isinstance(self.name, str):
            object.__setattr__(self, "name", printable(self.name))
        if isinstance(names, np.ndarray) and names.dtype.kind == "U":
            object.__setattr__(self, "client_names", printable_names(names))
        if classes is not None and all(isinstance(each, str) for each in classes):
            object.__setattr__(self, "class_names", tuple(map(printable, classes)))

    def __len__(self) -> int:
        return len(self.train)

    def __repr__(self) -> str:
        return (
            f"Federation({self.name!r}, clients={len(self)}, train={self.train.samples}, "
            f"test={self.test.samples}, common={self.common.samples}, "
            f"shape={self.shape}, "
            + ("regression)" if self.is_regression else f"classes={self.classes})")
        )

    def _repr_html_(self) -> str:
        return federation_html(self)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample's features."""
        return tuple(self.train.x.shape[1:])

    @property
    def is_regression(self) -> bool:
        """Whether the targets are numbers to predict, not classes; there is then one output."""
        return self.train.y.dtype.kind == "f"

    @property
    def has_one_target(self) -> bool:
        """Whether all training samples have the same target, so that there is nothing to learn."""
        return self.train.samples > 0 and bool(np.ptp(self.train.y) == 0)

    @property
    def task(self) -> TaskName:
        """What is predicted: a number, one of two classes, or one of several."""
        if self.is_regression:
            return "regression"
        return "binary" if self.classes == 2 else "multiclass"

    @cached_property
    def target_center_and_scale(self) -> tuple[float, float]:
        """The mean and standard deviation of regression targets in training."""
        if self.target_units is not None:
            return self.target_units
        return center_and_scale(self.train.sizes.tolist(), sums_of(self.train))

    def with_target_bins(self) -> "Federation":
        """Return a regression with quantile bins of its target as classes, for measures of skew."""
        if not self.is_regression:
            return self
        y = in_bins(self.train.y)
        empty = Columns.empty_like(self.train)
        return replace(
            self,
            train=replace(self.train, y=y),
            test=replace(empty, y=y[:0]),
            common=Columns.whole(self.train.x[:0], y[:0]),
            classes=BINS,
            class_names=tuple(f"bin {i + 1}" for i in range(BINS)),
        )

    @property
    def nbytes(self) -> int:
        """The size of all arrays in bytes."""
        return self.train.nbytes + self.test.nbytes + self.common.nbytes

    @cached_property
    def fingerprint(self) -> str:
        """A hash of all samples and their clients; equal for federations that train identically."""
        digest = hashlib.sha256(str(self.classes).encode())
        for part in (self.train, self.test, self.common):
            for array in (part.x, part.y, part.offsets):
                digest.update(f"{array.dtype.str}{array.shape}".encode())
                digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()[:32]

    @classmethod
    def from_arrays(
        cls,
        x: ArrayLike,
        y: ArrayLike,
        client: ArrayLike | None = None,
        *,
        common: tuple[ArrayLike, ArrayLike] | None = None,
        holdout: float = 0.0,
        seed: int = 0,
        classes: int | None = None,
        tokens: bool = False,
        task: TaskName | None = None,
        name: str = "custom",
    ) -> "Federation":
        """Build a federation from features, targets and the client of each sample.

        ``client`` may be any array of ids, numbers or names; without it all samples belong to one
        client. ``holdout`` is the share of each client's samples that becomes its local test set;
        ``common`` is a pair (x, y) of test samples that belong to no client. With ``tokens`` the
        features are indices into a vocabulary, not quantities. If ``x`` holds texts, they become
        tokens of a vocabulary that is built from the clients' word counts (``docs/text.md``).

        Targets are integer labels, or the numbers of a regression: floating-point numbers with more
        than 20 distinct values. ``task`` sets ``regression``, ``binary`` or ``multiclass`` instead.
        """
        if checks.are_texts(x):
            options = {"holdout": holdout, "seed": seed, "classes": classes, "name": name}
            options["task"] = task
            texts = text_federation(cls.from_arrays, x, y, client, common, options)
            check_federation(texts)
            return texts
        features, labels = checks.features(x, "x", tokens=tokens), as_targets(y, "y", task)
        names, owners = checks.owners(client, len(labels))
        if len(features) != len(labels) or len(owners) != len(labels):
            raise UnskewError(
                "x, y and client must have one row per sample: "
                f"{len(features)}, {len(labels)} and {len(owners)}"
            )
        if not len(labels):
            raise UnskewError("x must hold at least one sample")
        train = Columns.grouped(features, labels, owners, int(owners.max()) + 1)
        common_test = Columns.whole(*_common(common, train, tokens=tokens))
        is_regression = labels.dtype.kind == "f"
        found = 1
        if not is_regression:
            found += max(int(part.y.max(initial=0)) for part in (train, common_test))
        elif classes is not None:
            raise UnskewError("classes: the target is a quantity, which has none; remove it")
        check_task(task, found)
        if isinstance(classes, int) and classes < found:
            raise UnskewError(f"classes must be at least {found}: labels go up to {found - 1}")
        federation = cls(
            train=train,
            test=Columns.empty_like(train),
            common=common_test,
            classes=found if classes is None else classes,
            name=name,
            client_names=names,
        )
        check_federation(federation)
        return federation.held_out(holdout, seed) if holdout else federation

    @classmethod
    def from_dataset(
        cls,
        dataset: "Dataset[Any]",
        client: ArrayLike | None = None,
        *,
        features: str | None = None,
        label: str | None = None,
        **options: Any,
    ) -> "Federation":
        """Build a federation from a torch ``Dataset`` of (features, target) pairs or of mappings.

        Of mappings, ``features`` and ``label`` name the keys; usual ones such as ``image`` and
        ``label`` are found. PIL images become bytes, channels x height x width. Each item is read
        once: random transforms are not repeated per batch, and a warning says so. ``options`` are
        those of :meth:`from_arrays`.
        """
        x, y = read_items(dataset, features, label)  # type: ignore[arg-type]
        return cls.from_arrays(x, y, client, **options)

    @classmethod
    def from_huggingface(
        cls,
        dataset: Any,
        client: Any = None,
        *,
        label: str | None = None,
        features: str | Sequence[str] | None = None,
        **options: Any,
    ) -> "Federation":
        """Build a federation from a ``datasets.Dataset`` of Hugging Face.

        ``client`` is the name of the column of clients, an array of ids, or a partitioner of
        flwr-datasets, whose partitions are the clients. ``label`` and ``features`` name columns;
        without them, usual names such as ``image`` and ``label`` are looked for, then all other
        columns are features. Of a ``DatasetDict``, ``train`` is divided among clients and ``test``
        is the common test set. ``options`` are those of :meth:`from_arrays`.
        """
        federation, names = huggingface_federation(
            cls.from_arrays, dataset, client, label, features, options
        )
        if names is None or len(names) != federation.classes:
            return federation
        return replace(federation, class_names=names)

    @classmethod
    def from_folder(
        cls,
        path: str | Path,
        *,
        size: int | tuple[int, int] | None = None,
        color: bool | None = None,
        **options: Any,
    ) -> "Federation":
        """Read images from ``path/<client>/<class>/``, or ``path/<class>/`` as one client.

        ``size`` (one number, or height and width) resizes the images, which must otherwise all
        have the same size. ``color`` converts them to RGB or to grey; by default they are grey if
        all files are. Clients, classes and images are sorted by name. ``options`` are those of
        :meth:`from_arrays`.
        """
        samples = read_once(
            lambda: read_folder(path, size=size, color=color), ("x", "y"), path, size, color
        )
        return cls._from_files(samples, options)

    @classmethod
    def from_table(
        cls,
        table: TableLike,
        *,
        label: str,
        client: str | None = None,
        features: Sequence[str] | None = None,
        prepare: str | Prepare | NoPrepare = "federated",
        columns: Mapping[str, Any] | str | None = None,
        common: TableLike | None = None,
        task: TaskName | None = None,
        **options: Any,
    ) -> "Federation":
        """Read a CSV file with a header line, a Parquet file, or a DataFrame, one row per sample.

        ``label`` and ``client`` name columns; the features are the columns ``features``, or all
        remaining ones. Labels that are not integers become classes in sorted order, except numbers
        with a fraction and more than 20 distinct values, which are quantities (a regression);
        ``task`` says otherwise.

        Numbers, categories, booleans, dates and gaps become features as ``prepare`` says:
        ``federated`` (statistics that clients send), ``pooled``, ``local`` or ``none``, with
        options such as ``federated:scale=robust`` (``docs/tables.md``). Statistics are those of
        training samples. ``columns`` says what a column holds where it should not be inferred:
        a kind, a range or categories, ``{"ward": "category", "age": (0, 120)}``. ``common`` is a
        table of test samples that belong to no client. The other ``options`` are those of
        :meth:`from_arrays`.
        """
        federation = table_federation(
            cls.from_arrays,
            table,
            label=label,
            client=client,
            features=features,
            prepare=prepare,
            columns=columns,
            common=common,
            options={**options, "task": task},
        )
        check_federation(federation)
        return federation

    @classmethod
    def _from_files(cls, samples: FileSamples, options: dict[str, Any]) -> "Federation":
        federation = cls.from_arrays(
            samples.x, samples.y, samples.client, **{"name": samples.name, **options}
        )
        # With the option ``classes`` there may be classes without samples, whose names are unknown.
        if len(samples.class_names) != federation.classes or federation.is_regression:
            return federation
        return replace(federation, class_names=samples.class_names)

    def held_out(self, share: float, seed: int = 0) -> "Federation":
        """Move ``share`` of each client's training samples to its local test set.

        The number of test samples is rounded down, so that even a client with one sample trains.
        """
        if not isinstance(share, int | float) or not 0 <= share < 1:
            raise UnskewError(f"holdout must be at least 0 and less than 1 (got {share})")
        if self.test.samples:
            raise UnskewError("holdout: the clients already have test samples; use a holdout of 0")
        train, test = held_out_columns(self.train, share, seed)
        report = None if self.report is None else replace(self.report, cut=True)
        return replace(self, train=train, test=test, report=report)

    def save(self, folder: str | Path) -> Path:
        """Write the federation to a folder of ``.npy`` files that :meth:`open` can memory-map.

        A federation that is there is replaced; a folder that holds anything else is refused.
        """
        storage.write(self, Path(folder))
        return Path(folder)

    @classmethod
    def open(cls, folder: str | Path, *, mmap: bool = True) -> "Federation":
        """Open a saved federation; with ``mmap`` samples stay on disk.

        The same is checked as by :meth:`from_arrays`, block by block.
        """
        opened = cls(**storage.read(Path(folder), mmap=mmap))
        try:
            check_federation(opened)
        except UnskewError as error:
            raise UnskewError(f"{folder}: is damaged: {error}") from None
        return opened


def _common(
    common: tuple[ArrayLike, ArrayLike] | None, train: Columns, *, tokens: bool
) -> tuple[Array, Array]:
    """Return the common test samples, which must have the shape of the training samples."""
    if common is None:
        return train.x[:0], train.y[:0]
    features, targets = checks.pair(common)
    x = checks.features(features, "common[0]", tokens=tokens)
    y = as_targets(targets, "common[1]", "regression" if train.y.dtype.kind == "f" else None)
    if y.dtype.kind != train.y.dtype.kind and "f" in (y.dtype.kind, train.y.dtype.kind):
        raise UnskewError("common[1] must hold classes as y does; set task if they are numbers")
    if x.shape[1:] != train.x.shape[1:]:
        raise UnskewError(
            f"common: samples must have the shape {train.x.shape[1:]} of x (got {x.shape[1:]})"
        )
    return x.astype(train.x.dtype, copy=False), y
