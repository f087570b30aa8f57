"""The options that say what a run computes on, and with what precision."""

from typing import Annotated, Any

import typer

Device = Annotated[
    str | None,
    typer.Option(
        help="cpu, cuda, cuda:1, mps, or auto for the best available device.", show_default="auto"
    ),
]
Memory = Annotated[
    str | None,
    typer.Option(
        help="Memory for clients that are trained as one matrix, such as 8GiB.",
        show_default="half of a GPU's free memory",
    ),
]
Precision = Annotated[
    str | None,
    typer.Option(
        help="float32, bf16, or auto for bf16 where it is faster.", show_default="float32"
    ),
]


def compute_options(
    device: str | None, memory: str | None, precision: str | None
) -> dict[str, Any]:
    """Return the settings that were given."""
    given = {"device": device, "memory": memory, "precision": precision}
    return {name: value for name, value in given.items() if value is not None}
