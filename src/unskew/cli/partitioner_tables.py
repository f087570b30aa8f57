"""The tables of recipes and of a federation's diagnosis."""

from dataclasses import MISSING, fields
from inspect import getdoc
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from unskew.partition.registry import PARTITIONERS, describe
from unskew.skew.diagnosis import DEFINITIONS, Diagnosis
from unskew.utils.specs import lookup

Row = dict[str, Any]


def skew_rows(name: str | None = None) -> list[Row]:
    """Return the recipes, or one, with what they do and the defaults of their options."""
    chosen = PARTITIONERS if name is None else {name: lookup(PARTITIONERS, name, "skew")}
    return [
        {
            "name": name,
            "what": describe(name),
            "details": getdoc(recipe),
            "options": {
                option.name: None if option.default is MISSING else option.default
                for option in fields(recipe)  # type: ignore[arg-type]
            },
        }
        for name, recipe in chosen.items()
    ]


def skews_table(rows: list[Row]) -> Table:
    """Lay the recipes out for a person."""
    table = Table("skew", "what it does", "options and their defaults", box=SIMPLE_HEAD)
    for row in rows:
        table.add_row(row["name"], row["what"], _options(row) or "-")
    table.columns[0].no_wrap = True
    return table


def skew_text(row: Row) -> Text:
    """Tell all about one recipe; a paragraph's lines join, so that they wrap anew."""
    paragraphs = row["details"].replace("``", "").split("\n\n")
    told = [" ".join(paragraph.split()) for paragraph in paragraphs]
    options = f"options: {_options(row) or 'none'}"
    return Text("\n\n".join([row["name"], *told, options]))


def _options(row: Row) -> str:
    return ", ".join(f"{key}={_text(value)}" for key, value in row["options"].items())


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
