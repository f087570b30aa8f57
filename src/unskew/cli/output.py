"""Printing for people and for programs."""

import json
from typing import Annotated

import typer

from unskew.plain import plain

Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs to read.")]
Target = Annotated[
    float | None,
    typer.Option(
        help="Accuracy whose cost is told.", show_default="one that all reach who are near the best"
    ),
]


def print_rich(renderable: object) -> None:
    """Print a table or any other thing that rich can draw."""
    from rich.console import Console  # noqa: PLC0415 (help needs none of it)

    Console().print(renderable)


def print_json(value: object) -> None:
    """Print a value as JSON; numbers that are none become null."""
    typer.echo(json.dumps(plain(value), indent=2, default=str))
