"""The tables of recipes and of a federation's diagnosis."""

from dataclasses import MISSING, fields
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from unskew.skew.diagnosis import DEFINITIONS, Diagnosis
from unskew.skew.table import SKEWS, describe

Row = dict[str, Any]


def skew_rows() -> list[Row]:
    """Return the recipes with what they do and the defaults of their options."""
    return [
        {
            "name": name,
            "what": describe(name),
            "options": {
                option.name: None if option.default is MISSING else option.default
                for option in fields(recipe)  # type: ignore[arg-type]
            },
        }
        for name, recipe in SKEWS.items()
    ]


def skews_table(rows: list[Row]) -> Table:
    """Lay the recipes out for a person."""
    table = Table("skew", "what it does", "options and their defaults", box=SIMPLE_HEAD)
    for row in rows:
        options = ", ".join(f"{key}={_text(value)}" for key, value in row["options"].items())
        table.add_row(row["name"], row["what"], options or "-")
    table.columns[0].no_wrap = True
    return table


def diagnosis_table(diagnosis: Diagnosis) -> Table:
    """Lay the numbers of a diagnosis out, each with what it means."""
    table = Table("measure", "value", "what it means", box=SIMPLE_HEAD)
    for name, text in diagnosis.texts().items():
        table.add_row(name, text, DEFINITIONS[name])
    table.columns[1].justify = "right"
    return table


def _text(value: object) -> str:
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)
