"""``unskew watch``: follow runs live."""

import time
from pathlib import Path
from typing import Annotated

import typer

from unskew.cli.output import console, print_rich


def watch_runs(
    runs: Annotated[
        list[Path], typer.Argument(help="Folders of runs or comparisons.", show_default=False)
    ],
    every: Annotated[float, typer.Option(help="Seconds between updates.", min=0.1)] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Show the current state and exit.")] = False,
    tracker: Annotated[
        str | None,
        typer.Option(
            help="Forward metrics to tensorboard, mlflow or wandb; append :FOLDER for its folder."
        ),
    ] = None,
) -> None:
    """Follow runs in progress: their round, metrics, accuracy curve and remaining time.

    The runs may be in another terminal. The command exits when no run is in progress, or with
    Ctrl-C, which does not affect the runs. A run whose process has ended before its last round is
    shown as stopped. Trackers work offline; upload wandb runs with wandb
    sync.

    Example:  [bold]unskew watch runs/digits --tracker tensorboard:boards[/bold]
    """
    from rich.live import Live  # noqa: PLC0415

    from unskew.report.watch import Watch  # noqa: PLC0415
    from unskew.runs.tail import Tail  # noqa: PLC0415
    from unskew.runs.trackers import Tracker, open_tracker  # noqa: PLC0415

    def opened(tail: Tail) -> Tracker:
        return open_tracker(tracker or "", tail.run)

    with Watch(runs, opened if tracker else None) as watch:
        table = watch.update()
        if once or watch.is_done:
            print_rich(table)
            return
        with Live(table, console=console(), auto_refresh=False) as live:
            while not watch.is_done:
                time.sleep(every)
                live.update(watch.update(), refresh=True)
