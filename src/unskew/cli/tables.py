"""``unskew models``: the networks there are, with their options."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from unskew.cli.output import Json, print_json, print_rich


def list_models(json: Json = False) -> None:
    """List the networks, with their options. Any torch module works too, from Python.

    Example:  [bold]unskew compare --data cifar10 --model resnet18:norm=group[/bold]
    """
    from unskew.models import MODELS  # noqa: PLC0415

    rows = [
        {
            "name": name,
            "summary": cls.summary,
            "takes": cls.takes,
            "trained for": cls.aim,
            "options": options_of(cls),
        }
        for name, cls in MODELS.items()
    ]
    show_rows(rows, "models", json=json)


def options_of(cls: type[Any]) -> dict[str, Any]:
    """Return a dataclass's options and their defaults."""
    return {field.name: field.default for field in fields(cls) if field.init}


def show_rows(rows: Sequence[Mapping[str, Any]], title: str, *, json: bool) -> None:
    """Print a table, or its rows as JSON."""
    if json:
        print_json(rows)
        return
    from rich.table import Table  # noqa: PLC0415

    table = Table(title=title)
    for column in rows[0]:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(_cell(value) for value in row.values()))
    print_rich(table)


def _cell(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}={default}" for key, default in value.items())
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)
