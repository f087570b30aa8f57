"""Texts from files and folders, made safe to print: names may hold anything.

Control characters (such as a terminal's escape sequences), marks that reverse the direction of
text, and bytes of file names that are not UTF-8 are shown as escapes: ``\\x1b``, ``\\udcff``.
"""

import re

import numpy as np
from numpy.typing import NDArray

_UNSAFE_RANGES = (
    (0x00, 0x1F), (0x7F, 0x9F), (0x200E, 0x200F), (0x2028, 0x202E), (0x2066, 0x2069),
    (0xD800, 0xDFFF),
)  # fmt: skip

_UNSAFE = re.compile("[" + "".join(f"\\u{a:04x}-\\u{b:04x}" for a, b in _UNSAFE_RANGES) + "]")


def printable(text: str, *, keep: str = "") -> str:
    """Return a text with unsafe characters as escapes, except those to ``keep``."""
    if text.isprintable():
        return text
    return _UNSAFE.sub(lambda match: match[0] if match[0] in keep else _escape(match[0]), text)


def printable_names(names: NDArray[np.str_]) -> NDArray[np.str_]:
    """Return an array of texts with unsafe characters as escapes; an array without any as it is."""
    if not names.size or not names.dtype.itemsize:
        return names
    native = names.astype(names.dtype.newbyteorder("="), copy=False)
    codes = np.ascontiguousarray(native).view(np.uint32)
    unsafe = np.zeros(codes.shape, bool)
    for first, last in _UNSAFE_RANGES:
        # Shorter texts are padded with zeros.
        unsafe |= (codes >= max(first, 1)) & (codes <= last)
    return np.array([printable(name) for name in native.tolist()]) if unsafe.any() else native


def encoded(text: str) -> bytes:
    """Return a text as UTF-8, in which what cannot be encoded is an escape."""
    return text.encode("utf-8", "backslashreplace")


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
