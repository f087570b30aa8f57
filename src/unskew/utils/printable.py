"""Texts from files and folders, made safe to print: names may hold anything.

Control characters (such as a terminal's escape sequences), marks that reverse the direction of
text, and bytes of file names that are not UTF-8 are shown as escapes: ``\\x1b``, ``\\udcff``.
"""

import re

UNSAFE_RANGES = (
    (0x00, 0x1F), (0x7F, 0x9F), (0x200E, 0x200F), (0x2028, 0x202E), (0x2066, 0x2069),
    (0xD800, 0xDFFF),
)  # fmt: skip
"""The first and last code points of characters that are not printed."""

_UNSAFE = re.compile("[" + "".join(f"\\u{a:04x}-\\u{b:04x}" for a, b in UNSAFE_RANGES) + "]")


def printable(text: str, *, keep: str = "") -> str:
    """Return a text with unsafe characters as escapes, except those to ``keep``."""
    if text.isprintable():
        return text
    return _UNSAFE.sub(lambda match: match[0] if match[0] in keep else _escape(match[0]), text)


def encoded(text: str) -> bytes:
    """Return a text as UTF-8, in which what cannot be encoded is an escape."""
    return text.encode("utf-8", "backslashreplace")


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
