"""A map from whole numbers to values that never changes.

:meth:`IntMap.updated` returns a new map that shares all it can with the old one, so that keeping
the map of every round costs what the round changed, however many entries there are.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Generic, TypeVar

_BITS = 5
_WIDTH = 1 << _BITS
_EMPTY: tuple[Any, ...] = (None,) * _WIDTH

V = TypeVar("V")


class IntMap(Mapping[int, V], Generic[V]):
    """A tree of tuples; five bits of the key choose the branch at each level."""

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
            new._root = _put(new._root, new._height, key, value)
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
        """Go through the keys in ascending order."""
        return _keys(self._root, self._height, 0)


def _branch(key: int, level: int) -> int:
    return (key >> (_BITS * level)) & (_WIDTH - 1)


def _put(node: tuple[Any, ...] | None, level: int, key: int, value: Any) -> tuple[Any, ...]:
    branches = list(node or _EMPTY)
    place = _branch(key, level)
    branches[place] = value if level == 0 else _put(branches[place], level - 1, key, value)
    return tuple(branches)


def _keys(node: tuple[Any, ...], level: int, start: int) -> Iterator[int]:
    for place, branch in enumerate(node):
        key = start + (place << (_BITS * level))
        if branch is not None and level == 0:
            yield key
        elif branch is not None:
            yield from _keys(branch, level - 1, key)
