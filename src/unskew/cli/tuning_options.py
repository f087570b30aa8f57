"""The tuning options of ``unskew compare``."""

from typing import Annotated, Any

import typer

from unskew.errors import UnskewError

Tune = Annotated[
    bool,
    typer.Option("--tune", help="First tune each method's learning rate and options."),
]
TuneLr = Annotated[
    str | None,
    typer.Option(
        help="Learning rates to try, such as 0.01,0.05,0.1.",
        show_default="a quarter of --lr, --lr, four times --lr",
    ),
]
TuneTrials = Annotated[
    int | None, typer.Option(help="Number of trials per method.", show_default="6")
]
TuneRounds = Annotated[
    int | None, typer.Option(help="Rounds per trial.", show_default="a quarter of --rounds")
]


def tuning_options(
    tune: bool, lr: str | None, trials: int | None, rounds: int | None
) -> bool | dict[str, Any]:
    """Return the argument ``tune`` of :func:`unskew.compare`."""
    given = {"lr": None if lr is None else _learning_rates(lr), "trials": trials, "rounds": rounds}
    options = {name: value for name, value in given.items() if value is not None}
    if options and not tune:
        raise UnskewError(f"--tune-{next(iter(options))}: has no effect without --tune; add --tune")
    return options if tune and options else tune


def _learning_rates(text: str) -> list[float]:
    try:
        return [float(piece) for piece in text.split(",") if piece.strip()]
    except ValueError:
        raise UnskewError(f"--tune-lr: must be comma-separated numbers (got {text!r})") from None
