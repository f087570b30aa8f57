"""Phrases for tables, messages and reports."""

import re
from collections.abc import Sequence

_SECONDS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def plural(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 round``, ``2 rounds``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def duration(seconds: float) -> str:
    """Return a time with one or two units: ``8 s``, ``3 min``, ``2 h 10 min``."""
    if seconds < 9.95:
        return f"{seconds:.1f} s" if seconds >= 0.05 else "0 s"
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 100:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


def seconds_of(text: str) -> float:
    """Return the seconds of a time such as ``90s``, ``20m`` or ``1h30m``.

    >>> seconds_of("1h30m")
    5400.0
    """
    pieces = re.findall(r"(\d+(?:\.\d+)?)\s*(s|min|m|h|d)(?![a-z])", text.lower())
    if not pieces or re.sub(r"\s", "", text.lower()) != "".join(map("".join, pieces)):
        raise ValueError("must be a time such as 90s, 20m or 1h30m")
    return sum(float(number) * _SECONDS[unit] for number, unit in pieces)


def bytes_of(text: str) -> int:
    """Return the bytes of an amount of memory such as ``512MiB``, ``8GiB`` or ``2 GB``.

    >>> bytes_of("1.5KiB")
    1536
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT])(i?)B", text.strip(), re.IGNORECASE)
    if found is None:
        raise ValueError("must be an amount of memory such as 512MiB or 8GiB")
    number, prefix, binary = found.groups()
    return int(float(number) * (1024 if binary else 1000) ** ("KMGT".index(prefix.upper()) + 1))


def joined(names: Sequence[str], word: str = "and") -> str:
    """Return names as a list: ``a``, ``a and b``, ``a, b and c``."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {word} {names[-1]}"
