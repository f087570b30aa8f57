"""``unskew report``: a page about saved runs, and figures for papers."""

from pathlib import Path
from typing import Annotated

import typer

from unskew.cli.judging_options import MetricOption
from unskew.cli.output import Target, print_rich


def report_runs(
    runs: Annotated[
        list[Path], typer.Argument(help="Folders of runs or comparisons.", show_default=False)
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="Path of the page.",
            show_default="report.html in the folder; for several folders, here",
        ),
    ] = None,
    target: Target = None,
    metric: MetricOption = None,
    figures: Annotated[
        Path | None,
        typer.Option(help="Also write each figure (PNG, SVG, CSV) and the table to this folder."),
    ] = None,
    tsne: Annotated[
        bool,
        typer.Option(
            "--tsne",
            help="Also draw a t-SNE map of the clients (5 or more) by their label distributions.",
        ),
    ] = False,
) -> None:
    """Write a page about runs with the ranking of methods, its significance, and all figures.

    The page is a single HTML file that can be read offline and printed.

    Example:  [bold]unskew report runs/digits --figures figures[/bold]

    Example:  [bold]unskew report runs/digits runs/more -o both.html --tsne[/bold]
    """
    from unskew.report.charts.embedding import check_embedding  # noqa: PLC0415
    from unskew.report.page import (  # noqa: PLC0415
        ComparisonRecord,
        default_page,
        read_comparison,
        write_page,
    )
    from unskew.report.tuning_table import tuning_table  # noqa: PLC0415
    from unskew.runs.consistency import differences  # noqa: PLC0415
    from unskew.runs.read import read_runs  # noqa: PLC0415

    known = read_comparison(runs[0]) if len(runs) == 1 else ComparisonRecord()
    found = known.sorted(read_runs(runs), metric)
    target = known.target if target is None else target
    for what, values in differences(found).items():
        typer.echo(
            f"warning: these runs differ in {what} ({', '.join(values)}): do not rank them by "
            "their metrics",
            err=True,
        )
    if tsne:
        check_embedding(found)
    page = out or default_page(runs)
    write_page(page, found, target=target, command=known.command, embedding=tsne)
    tuned = tuning_table(found)
    if tuned is not None:
        print_rich(tuned)
    print_rich(found.table_with_verdict(target))
    verdict = found.verdict()
    if verdict is not None:
        typer.echo(str(verdict))
    typer.echo(f"page: {page}")
    if figures is not None:
        from unskew.report.export import export_figures, export_table  # noqa: PLC0415

        files = export_figures(figures, found, target=target, embedding=tsne)
        files += export_table(figures, found, target=target)
        typer.echo(f"figures and tables: {len(files)} files in {figures}")
