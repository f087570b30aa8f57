"""An immutable map from integers to values.

:meth:`IntMap.updated` returns a new map that shares unchanged parts with the old one, so that the
memory for the map of a round depends on the entries it changed, not on the size of the map.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Generic, TypeVar

_BITS = 5
_WIDTH = 1 << _BITS
_EMPTY: tuple[Any, ...] = (None,) * _WIDTH

V = TypeVar("V")


class IntMap(Mapping[int, V], Generic[V]):
    """A tree of tuples; five bits of the key select the branch at each level."""

    def __init__(self) -> None:
        self._root, self._height, self._length = _EMPTY, 0, 0

    def updated(self, changes: Mapping[int, V]) -> "IntMap[V]":
        """Return the map with these entries added or replaced; keys must not be negative."""
        new: IntMap[V] = IntMap()
        new._root, new._height = self._root, self._height
        new._length = self._length + sum(key not in self for key in changes)
        for key, value in changes.items():
            while key >> (_BITS * (new._height + 1)):
                new._root, new._height = (new._root, *_EMPTY[1:]), new._height + 1
            new._root = _inserted(new._root, new._height, key, value)
        return new

    def __getitem__(self, key: int) -> V:
        node = self._root
        if key >= 0 and not key >> (_BITS * (self._height + 1)):
            for level in range(self._height, 0, -1):
                node = node[_branch(key, level)] or _EMPTY
            value: V | None = node[_branch(key, 0)]
            if value is not None:
                return value
        raise KeyError(key)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[int]:
        """Iterate over the keys in ascending order."""
        return _keys(self._root, self._height, 0)


def _branch(key: int, level: int) -> int:
    return (key >> (_BITS * level)) & (_WIDTH - 1)


def _inserted(node: tuple[Any, ...] | None, level: int, key: int, value: Any) -> tuple[Any, ...]:
    branches = list(node or _EMPTY)
    index = _branch(key, level)
    branches[index] = value if level == 0 else _inserted(branches[index], level - 1, key, value)
    return tuple(branches)


def _keys(node: tuple[Any, ...], level: int, start: int) -> Iterator[int]:
    for index, branch in enumerate(node):
        key = start + (index << (_BITS * level))
        if branch is not None and level == 0:
            yield key
        elif branch is not None:
            yield from _keys(branch, level - 1, key)
