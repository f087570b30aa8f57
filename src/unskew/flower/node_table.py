"""A node's raw table, which becomes features once the nodes have agreed on a preprocessing."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.data.columns import Columns
from unskew.data.federation import Federation
from unskew.data.prepared import row_numbers
from unskew.data.preprocessing.cells import Column
from unskew.data.preprocessing.labels import Classes
from unskew.data.preprocessing.protocol import with_local_statistics
from unskew.data.preprocessing.spec import NoPrepare, Prepare, parse_prepare
from unskew.data.preprocessing.transform import Transform
from unskew.data.read_tables import TableLike
from unskew.data.readers import read_table
from unskew.data.targets import TaskName
from unskew.errors import UnskewError


@dataclass(frozen=True, eq=False)
class NodeTable:
    """The raw table of one node: a CSV or Parquet file, a DataFrame, or rows.

    ``label`` names the column to predict; the features are the columns ``features``, or all
    remaining ones. ``holdout`` is the share of the rows that becomes the node's test set, chosen
    by ``seed``. The node takes part only if the server asks for the same ``prepare``, which says
    what leaves the node (``docs/tables.md``). ``task`` is that of
    :meth:`unskew.Federation.from_table`; nodes with few rows should set it for a regression, which
    is recognised from many distinct numbers.
    """

    table: TableLike
    label: str
    features: Sequence[str] | None = None
    holdout: float = 0.0
    seed: int = 0
    prepare: str = "federated"
    task: TaskName | None = None

    def load(self) -> "RawSamples":
        """Read the table and hold out the test set."""
        chosen = parse_prepare(self.prepare)
        if isinstance(chosen, NoPrepare) or chosen.mode == "pooled":
            raise UnskewError(
                f"prepare: {chosen.spec} is not possible on nodes; use federated or local"
            )
        samples = read_table(self.table, label=self.label, features=self.features, task=self.task)
        placed = Federation.from_arrays(
            row_numbers(len(samples.y)),
            samples.y,
            tokens=True,
            holdout=self.holdout,
            seed=self.seed,
            task=self.task,
        )
        labels = np.array(samples.class_names)[samples.y] if samples.class_names else samples.y
        columns = samples.table.cells(samples.features)
        return RawSamples(placed, columns, np.asarray(labels), chosen)


@dataclass(frozen=True, eq=False)
class RawSamples:
    """A node's rows, divided into training and test, and their columns."""

    placed: Federation
    """A federation of one client whose features are the numbers of the rows."""
    columns: dict[str, Column]
    labels: NDArray[Any]
    prepare: Prepare

    @property
    def names_hash(self) -> str:
        """A hash of the names of the columns, in any order."""
        return hashlib.sha256("\n".join(sorted(self.columns)).encode()).hexdigest()[:16]

    @property
    def fingerprint(self) -> str:
        """A hash of the cells and the labels of all rows, the test set's included."""
        digest = hashlib.sha256()
        labels = Column.of(self.labels)
        for name, column in [*sorted(self.columns.items()), ("", labels)]:
            values = column.values
            digest.update(repr((name, column.stored, values.dtype.str, values.shape)).encode())
            digest.update(values.tobytes())
        return digest.hexdigest()[:32]

    @property
    def largest_request(self) -> int:
        """How many characters a server needs to describe the columns, their categories and words.

        A million for names and declared categories, and more as the node's own options allow.
        """
        categories = self.prepare.max_categories * len(self.columns)
        return 1_000_000 + 100 * self.prepare.words + 200 * categories

    def train_columns(self) -> dict[str, Column]:
        """Return the columns of the training samples."""
        return self._columns_of(self.placed.train)

    def own_transform(self, transform: Transform) -> Transform:
        """Return the transformation of this node, given that of all nodes."""
        if self.prepare.mode != "local":
            return transform
        return with_local_statistics(transform, self.train_columns())

    def prepared(self, transform: Transform, classes: Classes | None) -> Federation:
        """Return the node's samples with the features and classes that all nodes use.

        A regression has no classes.
        """
        transform = self.own_transform(transform)
        lenient = self.prepare.budget is not None
        numbers = None if classes is None else classes.numbers_of(self.labels)
        train, test = (
            Columns.whole(
                transform.apply(self._columns_of(part), where, lenient=lenient),
                part.y if numbers is None else numbers[part.x[:, 0]],
            )
            for part, where in (
                (self.placed.train, "its table"),
                (self.placed.test, "its test samples"),
            )
        )
        return replace(
            self.placed,
            train=train,
            test=test,
            common=Columns.empty_like(train),
            classes=1 if classes is None else classes.count,
            class_names=None if classes is None else classes.names,
            vocabulary=transform.vocabulary,
        )

    def _columns_of(self, part: Columns) -> dict[str, Column]:
        rows = part.x[:, 0].astype(np.int64)
        return {name: column.take(rows) for name, column in self.columns.items()}
