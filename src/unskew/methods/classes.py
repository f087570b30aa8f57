"""How many classes a network tells apart, read off its layout."""

from unskew.errors import UnskewError
from unskew.layout import Kind, Layout


def class_count(layout: Layout) -> int:
    """Return the number of rows of the head: one a class."""
    heads = [entry for entry in layout if entry.kind is Kind.HEAD]
    if not heads:
        raise UnskewError("the network has no linear head, so its classes are not known")
    return heads[-1].shape[0]
