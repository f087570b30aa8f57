"""The table of data sources, and its rows as plain values for JSON."""

from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table as RichTable

from unskew.data.catalogue import CATALOGUE
from unskew.data.sources import count_rows, count_samples, find
from unskew.errors import UnskewError

Row = dict[str, Any]


def source_rows() -> list[Row]:
    """Return one row per source; the numbers of samples are those of the local file, if any."""
    return [_source_row(name) for name in CATALOGUE]


def sources_table(rows: list[Row]) -> RichTable:
    """Return a table of the sources."""
    table = RichTable("name", "what", "train", "test", "classes", "natural clients", "status")
    table.box, table.padding, table.pad_edge = SIMPLE_HEAD, (0, 1, 0, 0), False
    for row in rows:
        numbers = (f"{row[key]:,}" if row[key] else "-" for key in ("train", "test", "classes"))
        table.add_row(row["name"], row["title"], *numbers, row["groups"], row["status"])
    for column in table.columns[2:5]:
        column.justify = "right"
    for column in (*table.columns[:1], *table.columns[2:5], table.columns[6]):
        column.no_wrap = True
    table.caption = (
        "fetch: download it with unskew data fetch NAME; by hand: the same command names the file "
        "to copy. Natural clients are those of the local file, or of what a fetch brings."
    )
    table.caption_justify = "left"
    return table


def _source_row(name: str) -> Row:
    info, path = CATALOGUE[name], find(name)
    row: Row = {
        "name": name,
        "title": info.title,
        "kind": info.kind,
        "train": info.train,
        "test": info.test,
        "classes": info.classes,
        "groups": info.groups,
        "published_groups": info.groups,
        "licence": info.licence,
        "origin": info.origin,
        "file": info.file,
        "path": path and str(path),
    }
    if info.file is None:
        return row | {"available": True, "status": "built in"}
    if path is None:
        fetched = info.groups if info.fetches_groups or not info.package else "-"
        status = "fetch" if info.package else "by hand"
        return row | {"available": False, "status": status, "groups": fetched}
    try:
        if info.table is not None:
            row["train"], grouped = count_rows(path), True
        else:
            row["train"], row["test"], grouped = count_samples(path)
    except UnskewError:
        return row | {"available": False, "status": "damaged"}
    groups = info.groups if grouped else "-"
    return row | {"available": True, "status": "available", "groups": groups}
