"""The options of ``unskew compare`` that ask for a search, and what they mean."""

from typing import Annotated, Any

import typer

from unskew.errors import UnskewError

Tune = Annotated[
    bool,
    typer.Option("--tune", help="First search each method's learning rate and published options."),
]
TuneLr = Annotated[
    str | None,
    typer.Option(
        help="Learning rates to try, such as 0.01,0.05,0.1; default: --lr, a quarter of it, "
        "four times it."
    ),
]
TuneTrials = Annotated[
    int | None, typer.Option(help="Settings each method tries.", show_default="6")
]
TuneRounds = Annotated[
    int | None, typer.Option(help="Rounds a trial.", show_default="a quarter of --rounds")
]


def tuning_options(
    tune: bool, lr: str | None, trials: int | None, rounds: int | None
) -> bool | dict[str, Any]:
    """Return what ``compare`` takes as ``tune``."""
    given = {"lr": None if lr is None else _rates(lr), "trials": trials, "rounds": rounds}
    wanted = {name: value for name, value in given.items() if value is not None}
    if wanted and not tune:
        raise UnskewError(f"--tune-{next(iter(wanted))}: belongs to a search; give --tune too")
    return wanted if tune and wanted else tune


def _rates(text: str) -> list[float]:
    try:
        return [float(piece) for piece in text.split(",") if piece.strip()]
    except ValueError:
        raise UnskewError(f"--tune-lr: write numbers with commas between (got {text!r})") from None
