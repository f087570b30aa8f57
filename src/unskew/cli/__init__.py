"""The command line. Heavy modules are imported inside the commands, so that help is instant."""

import os
import signal
import sys
import threading
import warnings
from io import TextIOWrapper
from typing import Annotated, Any

import typer

from unskew import __version__
from unskew.cli import (
    compare,
    data,
    flower,
    methods,
    models,
    new,
    report,
    run,
    study,
    summary,
    watch,
)
from unskew.cli.commands import complete_commands
from unskew.cli.output import echo_error, echo_failure
from unskew.errors import UnskewError, UnskewWarning

app = typer.Typer(
    name="unskew",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("run")(run.run_config)
app.command("compare")(compare.compare_methods)
app.command("report")(report.report_runs)
app.command("summary")(summary.summarize_comparisons)
app.command("watch")(watch.watch_runs)
app.command("methods")(methods.list_methods)
app.command("models")(models.list_models)
app.add_typer(new.app, name="new")
app.add_typer(data.app, name="data")
app.add_typer(study.app, name="study")
app.add_typer(flower.app, name="flower")
complete_commands(app)


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"unskew {__version__}")
        raise typer.Exit


@app.callback()
def unskew(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Federated learning on skewed data: measure the skew, train methods, and compare them.

    Show the data distribution:  [bold]unskew data show digits --skew dirichlet:alpha=0.1[/bold]

    Find the best method:  [bold]unskew compare --data digits --skew dirichlet:alpha=0.1[/bold]
    """
    del version


def _shorten_warnings() -> None:
    """Print unskew's warnings as one line, without the line of code that raised them."""
    show_other = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *args: Any, **kwargs: Any) -> None:
        if issubclass(category, UnskewWarning):
            echo_error(f"warning: {message}")
        else:
            show_other(message, category, *args, **kwargs)

    warnings.showwarning = show


_INTERRUPTED, _TERMINATED = 130, 143
"""The exit codes after Ctrl-C, with which typer ends the program, and after SIGTERM."""


class _Terminations:
    """Treats SIGTERM like Ctrl-C, so that runs write their checkpoints; counts the signals."""

    def __init__(self) -> None:
        self.count = 0
        self._process = os.getpid()
        self._previous: Any = None

    def __enter__(self) -> "_Terminations":
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGTERM, self._interrupt)
        return self

    def __exit__(self, *error: object) -> None:
        if self._previous is not None:
            signal.signal(signal.SIGTERM, self._previous)

    def _interrupt(self, number: int, frame: object) -> None:
        del number, frame
        if os.getpid() != self._process:  # a worker that has not started yet
            os._exit(_TERMINATED)
        self.count += 1
        if self.count == 1:
            raise KeyboardInterrupt


def main() -> None:
    """Run the command line; invalid input prints one line on stderr and exits with code 2."""
    _shorten_warnings()
    if isinstance(sys.stdout, TextIOWrapper):  # file names need not be UTF-8
        sys.stdout.reconfigure(errors="backslashreplace")
    with _Terminations() as terminations:
        _run(terminations)


def _run(terminations: _Terminations) -> None:
    try:
        app()
    except UnskewError as error:
        echo_failure(error, str(error))
        sys.exit(2)
    except OSError as error:  # for example a full disk, or a file without read permission
        path = "" if error.filename is None else f"{error.filename}: "
        echo_failure(error, f"{path}{error.strerror or error}; files already written were kept")
        sys.exit(2)
    except (MemoryError, OverflowError) as error:
        echo_failure(error, f"out of memory, or a number is too large: {error}")
        sys.exit(2)
    except RuntimeError as error:
        if "allocate memory" not in str(error):
            raise
        echo_failure(error, "not enough memory for this network and batch size")
        sys.exit(2)
    except SystemExit as end:
        if end.code == _INTERRUPTED:
            typer.echo("stopped; continue runs that have a folder with --resume", err=True)
            if terminations.count:
                sys.exit(_TERMINATED)
        raise
