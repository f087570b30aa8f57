"""The options of ``unskew compare`` that add seeds until methods are decided."""

from typing import Annotated, Any

import typer

from unskew.errors import UnskewError

Decide = Annotated[
    bool,
    typer.Option(
        "--decide",
        help="Add seeds in waves, after the first --seeds, until every method is better than, "
        "worse than or equivalent to the baseline.",
    ),
]
MaxSeeds = Annotated[
    int | None, typer.Option(help="The most seeds that --decide trains.", show_default="30")
]
Budget = Annotated[
    str | None,
    typer.Option(help="Stop before a wave of --decide that would exceed a time such as 20m or 2h."),
]
Best = Annotated[
    bool, typer.Option("--best", help="With --decide: until the best method is known too.")
]


def deciding_options(
    decide: bool, max_seeds: int | None, budget: str | None, best: bool
) -> bool | dict[str, Any]:
    """Return the argument ``decide`` of :func:`unskew.compare`."""
    given = {"max_seeds": max_seeds, "budget": budget, "best": best or None}
    options = {name: value for name, value in given.items() if value is not None}
    if options and not decide:
        option = next(iter(options)).replace("_", "-")
        raise UnskewError(f"--{option}: has no effect without --decide; add --decide")
    return options if decide and options else decide
