"""The command line. Heavy imports happen inside the commands, so that help is instant."""

import sys
import warnings
from typing import Annotated, Any

import typer

from unskew import __version__
from unskew.cli import compare, data, flower, methods, models, report, run, study, watch
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
app.command("watch")(watch.watch_runs)
app.command("methods")(methods.list_methods)
app.command("models")(models.list_models)
app.add_typer(data.app, name="data")
app.add_typer(study.app, name="study")
app.add_typer(flower.app, name="flower")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"unskew {__version__}")
        raise typer.Exit


@app.callback()
def unskew(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Federated learning on skewed data: measure the skew, train in spite of it, see the cost.

    See who holds what:  [bold]unskew data show digits --skew dirichlet:alpha=0.1[/bold]

    Which method here?  [bold]unskew compare --data digits --skew dirichlet:alpha=0.1[/bold]
    """
    del version


def _say_warnings_plainly() -> None:
    """Print our own warnings as one line; a user has no use for the line of code."""
    others = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        if issubclass(category, UnskewWarning):
            typer.echo(f"warning: {message}", err=True)
        else:
            others(message, category, *place, **more)

    warnings.showwarning = show


_STOPPED = 130
"""The exit code after Ctrl-C, by which typer ends the program itself."""


def main() -> None:
    """Run the command line; bad input ends it with one line on stderr and exit code 2."""
    _say_warnings_plainly()
    try:
        app()
    except UnskewError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(2)
    except OSError as error:  # a disk that is full, a file that may not be read
        where = "" if error.filename is None else f"{error.filename}: "
        typer.echo(f"error: {where}{error.strerror or error}; what was written stays", err=True)
        sys.exit(2)
    except (MemoryError, OverflowError) as error:
        typer.echo(f"error: a number is too large, or memory too small: {error}", err=True)
        sys.exit(2)
    except RuntimeError as error:
        if "allocate memory" not in str(error):
            raise
        typer.echo("error: there is not enough memory for a network or batch so large", err=True)
        sys.exit(2)
    except SystemExit as end:
        if end.code == _STOPPED:
            typer.echo("stopped; what has a folder goes on with --resume", err=True)
        raise
