"""The options that say what a run computes on, and with what precision."""

from typing import Annotated, Any

import typer

Precision = Annotated[
    str | None,
    typer.Option(
        help="float32, bf16, or auto for bf16 where it is faster.", show_default="float32"
    ),
]


def compute_options(precision: str | None) -> dict[str, Any]:
    """Return the settings that were given."""
    given = {"precision": precision}
    return {name: value for name, value in given.items() if value is not None}
