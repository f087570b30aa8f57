"""Names of clients, made safe to print; a federation may have a million."""

import numpy as np
from numpy.typing import NDArray

from unskew.utils.printable import UNSAFE_RANGES, printable


def printable_names(names: NDArray[np.str_]) -> NDArray[np.str_]:
    """Return an array of texts with unsafe characters as escapes; an array without any as it is."""
    if not names.size or not names.dtype.itemsize:
        return names
    native = names.astype(names.dtype.newbyteorder("="), copy=False)
    codes = np.ascontiguousarray(native).view(np.uint32)
    unsafe = np.zeros(codes.shape, bool)
    for first, last in UNSAFE_RANGES:
        # Shorter texts are padded with zeros.
        unsafe |= (codes >= max(first, 1)) & (codes <= last)
    return np.array([printable(name) for name in native.tolist()]) if unsafe.any() else native
