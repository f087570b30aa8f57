"""Print tables for people and JSON for programs."""

import json
import math
import traceback
from collections.abc import Iterable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Annotated

import typer

from unskew.errors import UnskewError
from unskew.utils.jsonable import to_jsonable
from unskew.utils.printable import printable

if TYPE_CHECKING:
    from rich.console import Console

    from unskew.runs.run import Run

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]


_shows_traceback = ContextVar("shows_traceback", default=False)


def _set_traceback(requested: bool) -> bool:
    _shows_traceback.set(requested)
    return requested


Debug = Annotated[
    bool,
    typer.Option(
        "--debug",
        callback=_set_traceback,
        help="Show the traceback of an error, with the lines of your code.",
    ),
]


def _checked_target(target: float | None) -> float | None:
    if target is not None and not math.isfinite(target):
        raise UnskewError(f"target must be a number (got {target:g})")
    return target


Target = Annotated[
    float | None,
    typer.Option(
        callback=_checked_target,
        help="Target accuracy (or metric) for the rounds and megabytes columns.",
        show_default="one that all methods near the best reach",
    ),
]


def console() -> "Console":
    """Return the terminal; names are printed as they are, without markup or emoji codes."""
    from rich.console import Console  # noqa: PLC0415 (slow to import)

    return Console(markup=False, emoji=False)


def print_rich(renderable: object) -> None:
    """Print a table or any other rich renderable."""
    console().print(renderable)


def print_json(value: object) -> None:
    """Print a value as JSON; NaN and infinity become null."""
    typer.echo(json.dumps(to_jsonable(value), indent=2, default=str))


def echo_error(message: str) -> None:
    """Print a message on stderr, with what a terminal would execute as escapes."""
    typer.echo(printable(message, keep="\n\t"), err=True)


def echo_failure(error: BaseException, message: str) -> None:
    """Print why a command failed on stderr, with ``--debug`` after the traceback."""
    if _shows_traceback.get():
        echo_error("".join(traceback.format_exception(error)))
    echo_error(f"error: {message}")


def exit_if_untrained(runs: "Iterable[Run]") -> None:
    """End the program with code 1 if no round of a run changed the model."""
    names = [f"{run.method} (seed {run.seed})" for run in runs if run.is_untrained]
    if names:
        echo_error(
            f"error: no round changed the model of {', '.join(names)}: the training diverged or "
            "too few clients could be used; try a smaller lr, or scale the features"
        )
        raise typer.Exit(1)
