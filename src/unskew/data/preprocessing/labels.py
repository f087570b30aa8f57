"""The classes of all clients: every client sends the labels that it has."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.errors import UnskewError


@dataclass(frozen=True)
class Classes:
    """The number of classes, and their names in sorted order if labels are not numbers."""

    count: int
    names: tuple[str, ...] | None = None

    def to_json(self) -> int | list[str]:
        """Return what is sent: the names, or the number."""
        return self.count if self.names is None else list(self.names)

    @staticmethod
    def from_json(plain: Any) -> "Classes":
        """Read what was sent."""
        if isinstance(plain, list) and plain and all(isinstance(name, str) for name in plain):
            return Classes(len(plain), tuple(plain))
        if type(plain) is int and plain > 0:
            return Classes(plain)
        raise UnskewError("classes: must be a number or a list of names")

    def lacks(self, labels: NDArray[Any]) -> bool:
        """Return whether some label is of none of the classes."""
        if self.names is None:
            return labels.dtype.kind not in "iu" or int(labels.max(initial=0)) >= self.count
        return bool(set(labels.astype(str).tolist()) - set(self.names))

    def numbers_of(self, labels: NDArray[Any]) -> NDArray[np.int64]:
        """Return the number of each label's class."""
        if self.names is None:
            return labels.astype(np.int64)
        distinct, index = np.unique(labels.astype(str), return_inverse=True)
        places = {name: place for place, name in enumerate(self.names)}
        return np.array([places[name] for name in distinct.tolist()], np.int64)[index]


def describe_labels(labels: NDArray[Any]) -> list[Any]:
    """Return the distinct labels that a client has: whole numbers or texts, in sorted order."""
    return list(np.unique(labels).tolist())


def agree_on_classes(messages: Sequence[Sequence[Any]]) -> Classes:
    """Return the classes of all clients: texts if any client has any."""
    labels = {label for message in messages for label in message}
    if all(isinstance(label, int) for label in labels):
        return Classes(max(labels, default=0) + 1)
    names = tuple(sorted(str(label) for label in labels))
    return Classes(len(names), names)
