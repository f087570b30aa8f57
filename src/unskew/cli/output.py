"""Printing for people and for programs."""

import json
import math
from typing import Annotated

import typer

from unskew.errors import UnskewError
from unskew.utils.jsonable import to_jsonable

Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs to read.")]


def _checked_target(target: float | None) -> float | None:
    if target is not None and not math.isfinite(target):
        raise UnskewError(f"target must be a number (got {target:g})")
    return target


Target = Annotated[
    float | None,
    typer.Option(
        callback=_checked_target,
        help="Accuracy whose cost is told.",
        show_default="one that all reach who are near the best",
    ),
]


def print_rich(renderable: object) -> None:
    """Print a table or any other thing that rich can draw."""
    from rich.console import Console  # noqa: PLC0415 (help needs none of it)

    Console().print(renderable)


def print_json(value: object) -> None:
    """Print a value as JSON; numbers that are none become null."""
    typer.echo(json.dumps(to_jsonable(value), indent=2, default=str))
