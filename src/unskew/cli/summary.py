"""``unskew summary``: several comparisons, methods over federations."""

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from unskew.cli.output import Json, print_json, print_rich


def summarize_comparisons(
    runs: Annotated[
        list[Path],
        typer.Argument(
            help="Folders of comparisons, or folders that hold several of them.",
            show_default=False,
        ),
    ],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Path of the page.")] = None,
    margin: Annotated[
        float | None,
        typer.Option(
            help="The smallest gain that matters, in points (for losses: per cent).",
            min=0,
            show_default="that of the comparisons",
        ),
    ] = None,
    figures: Annotated[
        Path | None,
        typer.Option(help="Write the figures (PNG, SVG, CSV) and the tables to this folder."),
    ] = None,
    json: Json = False,
) -> None:
    """Summarise several comparisons: which methods help, and on what kind of federation?

    Every comparison is a federation: some data with some skew. Shows each method's mean gain over
    FedAvg with its 95 % interval, how much gains differ between federations, and the probability
    that the method helps on a new one. With four or more federations, methods are ranked and the
    ranks compared with their critical difference. A second table has the answer of every
    federation.

    Example:

    [bold]unskew compare --skew dirichlet:alpha=0.1 --out runs/dirichlet[/bold]

    [bold]unskew compare --skew n-classes:n=2 --out runs/two-classes[/bold]

    [bold]unskew compare --skew noise:level=1 --out runs/noise[/bold]

    [bold]unskew summary runs -o summary.html[/bold]
    """
    from unskew.report.comparisons.page import export_summary, write_summary  # noqa: PLC0415
    from unskew.report.comparisons.summary import summarize  # noqa: PLC0415

    summary = summarize(runs, margin=margin)
    if json:
        print_json(summary.to_dict())
    else:
        print_rich(summary.answers())
        print_rich(summary.table())
    if out is not None:
        page = write_summary(out, summary, command=shlex.join(["unskew", *sys.argv[1:]]))
        typer.echo(f"page: {page}", err=json)
    if figures is not None:
        files = export_summary(figures, summary)
        typer.echo(f"figures and tables: {len(files)} files in {figures}", err=json)
