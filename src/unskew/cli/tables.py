"""Tables of methods, networks and their options."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from unskew.cli.option_docs import meanings_of
from unskew.cli.output import print_json, print_rich

if TYPE_CHECKING:
    from rich.console import Group


def options_of(cls: type[Any]) -> dict[str, Any]:
    """Return a dataclass's options and their defaults."""
    return {field.name: field.default for field in fields(cls) if field.init}


def with_meanings(row: dict[str, Any], cls: type[Any]) -> dict[str, Any]:
    """Add the meaning of each option, which is parsed from the source code of the class."""
    known = meanings_of(cls)
    return row | {"meanings": {option: known.get(option, "") for option in options_of(cls)}}


def show_rows(rows: Sequence[Mapping[str, Any]], title: str, *, json: bool) -> None:
    """Print a table, or its rows as JSON."""
    if json:
        print_json(rows)
        return
    from rich.table import Table as RichTable  # noqa: PLC0415

    table = RichTable(title=title)
    for column in rows[0]:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(_cell(value) for value in row.values()))
    print_rich(table)


def details(
    title: str, entries: Mapping[str, str], row: Mapping[str, Any] | None = None
) -> "Group":
    """Describe one thing: one line per entry, then one line per option of the row, if given."""
    from rich.console import Group  # noqa: PLC0415
    from rich.table import Table as RichTable  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = RichTable(show_header=False, box=None)
    for key, value in entries.items():
        table.add_row(key, value)
    if row is not None:
        table.add_row("options", "" if row["options"] else "none")
        for key, value in row["options"].items():
            table.add_row(f"  {key}={in_words(value)}", row["meanings"][key])
    table.columns[0].no_wrap = True
    return Group(Text(title, style="italic"), table, "")


def in_words(value: object) -> str:
    """Format a value for a person."""
    if value is None:
        return "none"
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


def _cell(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}={default}" for key, default in value.items())
    return in_words(value)
