"""Boolean masks over the coordinates of a vector, where None is the common case: all or none."""

from torch import Tensor


def without(mask: Tensor | None, removed: Tensor) -> Tensor | None:
    """Return a mask (None: all) without the removed coordinates; None if all are left."""
    left = ~removed if mask is None else mask & ~removed
    return None if bool(left.all()) else left


def union_of_masks(mask: Tensor | None, added: Tensor) -> Tensor | None:
    """Return a mask (None: none) with the added coordinates; None if it is still empty."""
    return none_if_empty(added if mask is None else mask | added)


def none_if_empty(mask: Tensor) -> Tensor | None:
    """Return a mask, or None if it marks no coordinate."""
    return mask if bool(mask.any()) else None
