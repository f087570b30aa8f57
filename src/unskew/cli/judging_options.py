"""Options that say how methods are judged."""

from typing import Annotated, Literal

import typer

JudgeOption = Annotated[
    Literal["mean", "last"],
    typer.Option(
        help="Judge methods by the mean of the last tenth of their evaluations (at least five), or "
        "by the last one."
    ),
]

Margin = Annotated[
    float,
    typer.Option(
        help="Differences up to this many points are equivalent (for losses: per cent).", min=0
    ),
]
