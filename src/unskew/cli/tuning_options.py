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
        help="Lowest and highest learning rate to try, such as 0.01,0.5.",
        show_default="an eighth of --lr, eight times --lr",
    ),
]
TuneClip = Annotated[
    str | None,
    typer.Option(help="Clipping norms to try besides none, such as 1,10.", show_default="none"),
]
TuneBudget = Annotated[
    int | None,
    typer.Option(
        help="Rounds of training per method, over all its settings and seeds.",
        show_default="12 times --tune-rounds",
    ),
]
TuneRounds = Annotated[
    int | None,
    typer.Option(
        help="Rounds of a setting that may be chosen.", show_default="a quarter of --rounds"
    ),
]
TuneSeeds = Annotated[
    int | None, typer.Option(help="Seeds of a setting that may be chosen.", show_default="2")
]


def tuning_options(
    tune: bool,
    lr: str | None,
    clip: str | None,
    budget: int | None,
    rounds: int | None,
    seeds: int | None,
) -> bool | dict[str, Any]:
    """Return the argument ``tune`` of :func:`unskew.compare`."""
    given = {
        "lr": None if lr is None else _numbers(lr, "--tune-lr"),
        "clip": None if clip is None else _numbers(clip, "--tune-clip"),
        "budget": budget,
        "rounds": rounds,
        "seeds": seeds,
    }
    options = {name: value for name, value in given.items() if value is not None}
    if options and not tune:
        raise UnskewError(f"--tune-{next(iter(options))}: has no effect without --tune; add --tune")
    return options if tune and options else tune


def _numbers(text: str, option: str) -> list[float]:
    try:
        return [float(piece) for piece in text.split(",") if piece.strip()]
    except ValueError:
        raise UnskewError(f"{option}: must be comma-separated numbers (got {text!r})") from None
