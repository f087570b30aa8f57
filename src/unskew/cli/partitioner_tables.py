"""The tables of partitioners and of a federation's diagnosis."""

from dataclasses import MISSING, fields
from inspect import getdoc
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table as RichTable
from rich.text import Text

from unskew.partition.registry import PARTITIONERS, describe
from unskew.skew.diagnosis import DEFINITIONS, Diagnosis
from unskew.utils.specs import lookup

Row = dict[str, Any]


def partitioner_rows(name: str | None = None) -> list[Row]:
    """Return all partitioners, or one, with a description and the defaults of their options."""
    chosen = PARTITIONERS if name is None else {name: lookup(PARTITIONERS, name, "partitioner")}
    return [
        {
            "name": name,
            "what": describe(name),
            "details": getdoc(cls),
            "options": {
                option.name: None if option.default is MISSING else option.default
                for option in fields(cls)  # type: ignore[arg-type]
            },
        }
        for name, cls in chosen.items()
    ]


def partitioners_table(rows: list[Row]) -> RichTable:
    """Return a table of the partitioners."""
    table = RichTable("partitioner", "what it does", "options and their defaults", box=SIMPLE_HEAD)
    for row in rows:
        table.add_row(row["name"], row["what"], _options(row) or "-")
    table.columns[0].no_wrap = True
    return table


def partitioner_text(row: Row) -> Text:
    """Describe one partitioner; the lines of a paragraph are joined, so that they wrap."""
    paragraphs = row["details"].replace("``", "").split("\n\n")
    joined = [" ".join(paragraph.split()) for paragraph in paragraphs]
    options = f"options: {_options(row) or 'none'}"
    return Text("\n\n".join([row["name"], *joined, options]))


def _options(row: Row) -> str:
    return ", ".join(f"{key}={_text(value)}" for key, value in row["options"].items())


def diagnosis_table(diagnosis: Diagnosis) -> RichTable:
    """Return a table of the measures of a diagnosis with their meaning."""
    table = RichTable("measure", "value", "what it means", box=SIMPLE_HEAD)
    for name, text in diagnosis.texts().items():
        table.add_row(name, text, DEFINITIONS[name])
    table.columns[1].justify = "right"
    return table


def _text(value: object) -> str:
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)
