"""The classes of all clients: every client sends the labels that it has."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.errors import UnskewError

_MAX_LISTED = 5


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


def spelled_otherwise(labels: Mapping[int, Sequence[Any]]) -> dict[int, str]:
    """Return the clients whose labels seem to be spelled otherwise than those of most clients.

    Those are labels that differ from one of more clients only in case, spaces or punctuation, and
    several texts none of which another client has, where most clients share some.
    """
    held = Counter(label for each in labels.values() for label in set(each))
    usual: dict[str, str] = {}
    for label in sorted(map(str, held), key=lambda text: held[text]):
        usual[_plain(label)] = label  # the label of most clients is the last one
    found = {}
    for client, own in labels.items():
        others = [each for each in own if isinstance(each, str) and usual[_plain(each)] != each]
        rarer = [each for each in others if held[usual[_plain(each)]] > held[each]]
        if rarer:
            found[client] = f"its label {rarer[0]!r} is spelled {usual[_plain(rarer[0])]!r} by most"
    texts = {k: own for k, own in labels.items() if all(isinstance(each, str) for each in own)}
    alone = [k for k, own in texts.items() if len(own) > 1 and all(held[o] == 1 for o in own)]
    shared = sorted(str(label) for label, count in held.items() if count > 1)
    if 2 * len(alone) < len(labels):
        said = ", ".join(map(repr, shared[:_MAX_LISTED]))
        for client in alone:
            found.setdefault(client, f"no other client has any of its labels; most have {said}")
    return found


def _plain(label: str) -> str:
    """Return a label without case, spaces and punctuation; a sign alone is kept."""
    return "".join(filter(str.isalnum, label.casefold())) or label
