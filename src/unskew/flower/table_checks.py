"""A node's own checks of its raw table: what it refuses to send, with a text for its admin.

The reasons name columns, rows and the form of a cell ("9,9" for 12,5), never a cell's value.
"""

from collections.abc import Iterable, Mapping

import numpy as np

from unskew.data.preprocessing.cells import Column
from unskew.data.preprocessing.declared import Declared
from unskew.data.preprocessing.identifying import form_of, identifying
from unskew.data.preprocessing.kinds import LARGEST, ColumnKind, Evidence, would_reveal
from unskew.data.preprocessing.names import column_list
from unskew.data.preprocessing.protocol import Schema
from unskew.flower.wire import Refusal


def refuse_identifying(columns: Mapping[str, Column], declared: Schema) -> None:
    """Raise a refusal that lists columns that identify rows, but for those that it declares."""
    kinds: dict[str, ColumnKind] = {
        name: Evidence.of(column).kind() for name, column in columns.items() if name not in declared
    }
    found = identifying(columns, kinds)
    if found:
        raise Refusal(
            f"{_listed(found)}; correct the cells, leave the columns out (features of its "
            "NodeTable) or, if they are no ids, declare their kinds in its policy"
        )


def refuse_other_columns(names: Iterable[str], columns: Mapping[str, Column]) -> None:
    """Raise a refusal that lists the columns that the server asks for and the table lacks."""
    missing = [name for name in names if name not in columns]
    if missing:
        raise Refusal(
            f"its table has no column {column_list(missing)}, which the server asks for; it has "
            f"{column_list(columns)}"
        )


def refuse_unlike(columns: Mapping[str, Column], schema: Schema, declared: Schema) -> None:
    """Raise a refusal that lists the columns that are not what the server says that they hold."""
    found = {
        name: problem
        for name, asked in schema.items()
        if (problem := _problem(columns[name], asked, declared.get(name))) is not None
    }
    if found:
        raise Refusal(
            f"{_listed(found)}; correct these cells, or declare the kinds of columns in its policy"
        )


def refuse_other_kinds(schema: Schema, declared: Schema) -> None:
    """Raise a refusal if the server says something else about a column than the site declares."""
    found = {
        name: f"the server says {_said(asked)}, and its policy {_said(declared[name])}"
        for name, asked in schema.items()
        if name in declared and not _agree(asked, declared[name])
    }
    if found:
        raise Refusal(_listed(found))


def _agree(asked: Declared, own: Declared) -> bool:
    """Return whether a server says of a column what the site does; it may leave out the range."""
    levels = own.levels is None or asked.levels is None or asked.levels == own.levels
    return (
        asked.kind == own.kind
        and levels
        and (own.bounds is None or asked.bounds in (None, own.bounds))
    )


def _said(column: Declared) -> str:
    return column.kind + (f" {column.low:g}..{column.high:g}" if column.bounds else "")


def _problem(column: Column, asked: Declared, declared: Declared | None) -> str | None:
    evidence = Evidence.of(column)
    own = evidence.kind()
    if declared is None and would_reveal(own, asked.kind):
        return f"holds {own}s, and as {asked.kind} its values would leave the node"
    return _unreadable(column, asked.kind)


def _unreadable(column: Column, kind: ColumnKind) -> str | None:
    """Return how many cells are not of a kind, and what the first one looks like."""
    readers = {"number": column.numbers, "date": column.dates, "boolean": column.booleans}
    if kind not in readers:
        return None
    values, present = readers[kind](), column.is_present()
    wrong = np.flatnonzero(present & (np.isnan(values) | (np.abs(values) > LARGEST)))
    if not len(wrong):
        return None
    first = int(wrong[0])
    if np.isnan(values[first]):
        form = f"looks like {form_of(str(column.texts()[first]))!r}"
    else:
        form = f"is infinite or beyond {LARGEST:g}"
    return f"{len(wrong)} of {int(present.sum())} cells are not {kind}s: row {first + 1} {form}"


def _listed(found: Mapping[str, str]) -> str:
    return "; ".join(f"column {name!r}: {why}" for name, why in found.items())
