"""Phrases for tables, messages and reports."""


def plural(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 round``, ``2 rounds``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
