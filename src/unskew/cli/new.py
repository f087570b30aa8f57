"""``unskew new``: write the first version of a method."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    no_args_is_help=True,
    help="Write the first version of a method, with its test.",
    rich_markup_mode="rich",
)


class MethodKind(StrEnum):
    """The group of hooks that a method implements."""

    CLIENT = "client"
    SERVER = "server"
    PERSONAL = "personal"
    SETUP = "setup"


@app.command("method")
def new_method(
    name: Annotated[
        str, typer.Argument(help="The name of its class, such as GradNorm: letters and digits.")
    ],
    kind: Annotated[
        MethodKind,
        typer.Option(
            help="What it changes: local training (client), aggregation (server), what stays on "
            "clients (personal), or who takes part, on which data and network (setup)."
        ),
    ] = MethodKind.CLIENT,
    package: Annotated[
        bool,
        typer.Option("--package", help="Add it to the package, in the root of a clone of unskew."),
    ] = False,
) -> None:
    """Write a method that works, with a test that passes, to be changed into yours.

    It writes two files into the current folder: gradnorm.py with the class GradNorm, and its test.
    The method is used by its file and class, and composes like any other:

    Example:  [bold]unskew new method GradNorm[/bold]

    then:  [bold]unskew compare --methods fedavg,gradnorm.py:GradNorm:mu=0.5+ida[/bold]

    With --package, it adds the method to the clone of unskew in the current folder: its file,
    registry entry, test and page, and its rows in the tables of the documentation. The quick tests
    pass right away.

    Example:  [bold]unskew new method FairAvg --kind server --package[/bold]

    The four kinds are the groups of hooks that docs/add-a-method.md explains. Existing files are
    never overwritten.
    """
    from unskew.cli.method_scaffold import new_files, next_steps, write_files  # noqa: PLC0415

    root = Path()
    for line in write_files(root, new_files(root, name, kind, package=package)):
        typer.echo(line)
    typer.echo(next_steps(name, package=package))
