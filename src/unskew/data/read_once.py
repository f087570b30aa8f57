"""Files of samples that are read once for several federations, such as those of several seeds."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, TypeVar

T = TypeVar("T")

_kept: ContextVar[dict[str, object] | None] = ContextVar("kept", default=None)


@contextmanager
def reading_once() -> Iterator[None]:
    """Keep what is read inside this context in memory until its end."""
    token = _kept.set({})
    try:
        yield
    finally:
        _kept.reset(token)


def read_once(read: Callable[[], T], arrays: Sequence[str], *key: object) -> T:
    """Return what ``read`` returns; inside :func:`reading_once` it is called once for a key.

    ``arrays`` are the fields of it that a federation may use as they are. They are copied from
    what is kept, so that whoever changes a federation changes no other one.
    """
    kept = _kept.get()
    if kept is None:
        return read()
    name = repr(key)
    if name not in kept:
        kept[name] = read()
    found: Any = kept[name]
    copies: T = replace(found, **{field: getattr(found, field).copy() for field in arrays})
    return copies
