"""Marks on the coordinates of a vector, where None stands for the common case: all, or nothing."""

from torch import Tensor


def without(mask: Tensor | None, less: Tensor) -> Tensor | None:
    """Return a mask (None: everything) with some coordinates taken out; None if all are left."""
    left = ~less if mask is None else mask & ~less
    return None if bool(left.all()) else left


def joined(mask: Tensor | None, more: Tensor) -> Tensor | None:
    """Return a mask (None: nothing) with some coordinates added; None if there are still none."""
    return none_if_empty(more if mask is None else mask | more)


def none_if_empty(mask: Tensor) -> Tensor | None:
    """Return a mask, or None if it marks nothing."""
    return mask if bool(mask.any()) else None
