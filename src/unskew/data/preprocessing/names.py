"""Names of columns: which are missing, and which the user may have meant."""

from collections.abc import Collection, Iterable
from difflib import get_close_matches

from unskew.errors import UnskewError
from unskew.utils.printable import printable

_MAX_LISTED, _MAX_TEXT = 20, 80
"""How many columns, and how many characters of a name, an error message shows."""


def check_has_columns(
    columns: Collection[str], needed: Iterable[str], where: str, hint: str = ""
) -> None:
    """Raise an error that lists all missing columns, each with the name it may be meant to be."""
    missing = [name for name in dict.fromkeys(needed) if name not in columns]
    if not missing:
        return
    said = []
    for name in missing[:_MAX_LISTED]:
        close = get_close_matches(name, columns, n=1, cutoff=0.6)
        meant = f" (did you mean {printable(close[0])!r}?)" if close else ""
        said.append(f"{printable(name)[:_MAX_TEXT]!r}{meant}")
    noun = "column" if len(missing) == 1 else "columns"
    raise UnskewError(
        f"{where}: has no {noun} {', '.join(said)}; it has: {column_list(columns)}"
        + (f" ({hint})" if hint else "")
    )


def column_list(names: Collection[str]) -> str:
    """Return the first names; a file may have thousands of columns."""
    more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    return ", ".join(printable(name)[:_MAX_TEXT] for name in list(names)[:_MAX_LISTED]) + more
