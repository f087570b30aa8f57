"""``unskew methods``: list the methods, or show one in detail."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unskew.cli.collection import without_garbage_collection
from unskew.cli.output import Json, print_json, print_rich
from unskew.cli.tables import details, in_words, options_of, with_meanings

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table as RichTable

    from unskew.composition.method import Method
    from unskew.composition.parts import Part
    from unskew.composition.search_space import Searched

Row = dict[str, Any]


def list_methods(
    name: Annotated[
        str | None,
        typer.Argument(
            help="Show this method, a combination with a plus, or my.py:Class, in detail."
        ),
    ] = None,
    long: Annotated[bool, typer.Option("--long", help="Show every method in detail.")] = False,
    json: Json = False,
) -> None:
    """List the methods: what each does, its paper, its kind, and the accuracy it aims at.

    With a name, also show what the method sends, whether the server needs each client's update
    (which excludes secure aggregation), which runner trains it, which values --tune searches, and
    what its options mean. A method's spec string is name:option=value,option=value.

    Example:  [bold]unskew methods scaffold[/bold]

    Example:  [bold]unskew compare --methods fedavg,fedprox:mu=0.1[/bold]
    """
    with without_garbage_collection():
        from unskew.methods import METHODS, make_method  # noqa: PLC0415

    parts = [METHODS[each]() for each in sorted(METHODS)] if name is None else []
    method = None if name is None else make_method(name)
    if method is None and not long and not json:
        print_rich(_list(parts))
        return
    rows = [_row_of(part) for part in (method.parts if method else parts)]
    if json:
        print_json(rows if method is None or len(rows) == 1 else _composition(method, rows))
    else:
        if method is not None and len(method.parts) > 1:
            entries = _composition(method, rows)
            entries["parts"] = ", ".join(part.name for part in method.parts)
            entries = {key: _declared(value) for key, value in entries.items() if key != "name"}
            print_rich(details(f"{method.spec}: {len(method.parts)} parts", entries))
        for row in rows:
            print_rich(_block(row))


def _row_of(part: "Part") -> Row:
    from unskew.composition.declared import Parts  # noqa: PLC0415

    about = Parts((part,)).about
    row = {
        "name": part.name,
        "title": about.title,
        "paper": about.paper,
        "kind": about.kind,
        "meant for": about.level,
        "adds to": sorted(part.adds),
        "replaces": sorted(part.replaces),
        "sent to clients": about.down,
        "sent to the server": about.up,
        "needs individual updates": about.needs_individual_updates,
        "runner": "processes" if about.only_with_norms else "vectorised",
        "options": {option: getattr(part, option) for option in options_of(type(part))},
        "searched": {option: _searched(values) for option, values in part.grid.items()},
    }
    return with_meanings(row, type(part))


def _searched(values: "Searched") -> list[float | str] | str:
    """Return the values of an option that are searched, or the range they are in."""
    return list(values) if isinstance(values, tuple) else str(values)


def _value(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:g}"


_WIDTHS = {"name": 12, "what it does": 24, "paper": 17, "kind": 9, "meant for": 8}


def _list(parts: "Sequence[Part]") -> "RichTable":
    """Return a table of the methods that fits into 80 columns; cells wrap between words."""
    from rich.box import SIMPLE_HEAD  # noqa: PLC0415
    from rich.table import Table as RichTable  # noqa: PLC0415

    table = RichTable(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for heading, width in _WIDTHS.items():
        table.add_column(heading, width=width)
    for part in parts:
        about = part.about
        table.add_row(part.name, about.title, about.paper, about.kind, about.level)
    table.caption = "unskew methods NAME shows one in detail: its options, messages and runner"
    table.caption_justify = "left"
    return table


def _composition(method: "Method", parts: list[Row]) -> Row:
    """Describe a method of several parts."""
    about = method.about
    return {
        "name": method.spec,
        "meant for": about.level,
        "sent to clients": about.down,
        "sent to the server": about.up,
        "needs individual updates": about.needs_individual_updates,
        "parts": parts,
    }


_RUNNERS = {
    "vectorised": "vectorised for small networks of linear layers, otherwise worker processes",
    "processes": "worker processes, because it is for networks with BatchNorm",
}


_DECLARED = ("sent to clients", "sent to the server", "needs individual updates")


def _declared(value: object) -> str:
    return "not declared" if value is None else in_words(value)


def _block(row: Row) -> "Group":
    """Describe one method with one line per property."""
    searched = "; ".join(
        f"{key}: {values if isinstance(values, str) else ', '.join(map(_value, values))}"
        for key, values in row["searched"].items()
    )
    entries = {
        "paper": row["paper"],
        "kind": _declared(row["kind"]),
        "meant for": f"{row['meant for']} accuracy",
        **{key: ", ".join(row[key]) for key in ("adds to", "replaces") if row[key]},
        **{key: _declared(row[key]) for key in _DECLARED},
        "runner": _RUNNERS[row["runner"]],
        "searched by --tune": f"learning rate; {searched}" if searched else "learning rate",
    }
    return details(f"{row['name']}: {row['title']}", entries, row)
