"""Refuse decompression bombs: small files that would fill the memory."""

from pathlib import Path

from unskew.errors import UnskewError

_HARMLESS_BYTES = 2**30
_MAX_RATIO = 200
"""Real samples are compressed by a factor of ten or so."""


def check_expansion(path: Path, stored: int, expanded: int, max_ratio: int = _MAX_RATIO) -> None:
    """Raise if a file would become more than a gigabyte and much larger than it is stored."""
    if expanded > _HARMLESS_BYTES and expanded > max_ratio * max(stored, 1):
        raise UnskewError(
            f"{path}: would expand from {stored / 1e6:,.1f} MB to {expanded / 1e6:,.0f} MB, which "
            "no data set does; it is refused"
        )
