"""The table of sources, and the rows behind it as plain values for JSON."""

from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from unskew.data.catalogue import CATALOGUE
from unskew.data.sources import contents, find
from unskew.errors import UnskewError

Row = dict[str, Any]


def source_rows() -> list[Row]:
    """Return what is known of each source, and where it is; samples are those of the file here."""
    return [_source_row(name) for name in CATALOGUE]


def sources_table(rows: list[Row]) -> Table:
    """Lay the sources out for a person."""
    table = Table("name", "what", "train", "test", "classes", "natural clients", "get it")
    table.box, table.padding, table.pad_edge = SIMPLE_HEAD, (0, 1, 0, 0), False
    for row in rows:
        numbers = (f"{row['train']:,}", f"{row['test']:,}", str(row["classes"]))
        table.add_row(row["name"], row["title"], *numbers, row["groups"], row["get"])
    for column in table.columns[2:5]:
        column.justify = "right"
    for column in (*table.columns[:1], *table.columns[2:5], table.columns[6]):
        column.no_wrap = True
    table.caption = (
        "fetch: unskew data fetch NAME gets it; by hand: the same command says which file to put "
        "where"
    )
    table.caption_justify = "left"
    return table


def _source_row(name: str) -> Row:
    facts, path = CATALOGUE[name], find(name)
    row: Row = {
        "name": name,
        "title": facts.title,
        "kind": facts.kind,
        "train": facts.train,
        "test": facts.test,
        "classes": facts.classes,
        "groups": facts.groups,
        "licence": facts.licence,
        "origin": facts.origin,
        "file": facts.file,
        "path": path and str(path),
    }
    if facts.file is None:
        return row | {"here": True, "get": "built in"}
    if path is None:
        return row | {"here": False, "get": "fetch" if facts.package else "by hand"}
    try:
        row["train"], row["test"], grouped = contents(path)
    except UnskewError:
        return row | {"here": False, "get": "damaged"}
    return row | {"here": True, "get": "here", "groups": facts.groups if grouped else "-"}
