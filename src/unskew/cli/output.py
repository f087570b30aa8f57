"""Print tables for people and JSON for programs."""

import json
import math
from typing import Annotated

import typer

from unskew.errors import UnskewError
from unskew.utils.jsonable import to_jsonable

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]


def _checked_target(target: float | None) -> float | None:
    if target is not None and not math.isfinite(target):
        raise UnskewError(f"target must be a number (got {target:g})")
    return target


Target = Annotated[
    float | None,
    typer.Option(
        callback=_checked_target,
        help="Target accuracy for the rounds and megabytes columns.",
        show_default="one that all methods near the best reach",
    ),
]


def print_rich(renderable: object) -> None:
    """Print a table or any other rich renderable."""
    from rich.console import Console  # noqa: PLC0415 (slow to import)

    Console().print(renderable)


def print_json(value: object) -> None:
    """Print a value as JSON; NaN and infinity become null."""
    typer.echo(json.dumps(to_jsonable(value), indent=2, default=str))
