"""``unskew data convert``: write data of any kind as a saved federation."""

from pathlib import Path
from typing import Annotated

import typer

from unskew.cli.data_options import (
    ClientColumn,
    ColumnKinds,
    Features,
    Holdout,
    LabelColumn,
    Prepare,
    Size,
    Task,
    column_kinds,
    column_names,
)


def convert_data(
    name: Annotated[
        str,
        typer.Argument(
            help="A CSV or Parquet file, an .npz file of arrays, a folder of images, or a data "
            "source."
        ),
    ],
    out: Annotated[Path, typer.Argument(help="The folder to write.")],
    skew: Annotated[
        str | None,
        typer.Option(
            help="Sources: a partitioner's spec string (see unskew data partitioners).",
            show_default="iid, or natural if the data names clients",
        ),
    ] = None,
    clients: Annotated[
        int | None,
        typer.Option(
            help="Sources: the number of clients.", show_default="10 for most partitioners"
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the partition and of holdout.")] = 0,
    holdout: Holdout = None,
    label_column: LabelColumn = "label",
    task: Task = None,
    client_column: ClientColumn = None,
    features: Features = None,
    prepare: Prepare = "federated",
    columns: ColumnKinds = None,
    size: Size = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a saved federation.")] = False,
) -> None:
    """Convert data to a saved federation, a folder that opens at once and is memory-mapped.

    NAME is a table with a column of clients, a folder of images in <client>/<class>/ or <class>/
    folders, or an .npz file with the arrays x, y and client (and x_test, y_test), or x_train,
    y_train, x_test, y_test (and group_train, group_test). The result is used with --data FOLDER,
    or opened with us.Federation.open. So data that cannot be fetched can be brought in.

    Example:  [bold]unskew data convert visits.csv federation/ --label-column ill \\
    --client-column site --holdout 0.2[/bold]

    Example:  [bold]unskew data convert femnist.npz femnist/ --skew natural[/bold]
    """
    from unskew.data.config import DataConfig  # noqa: PLC0415
    from unskew.data.load import open_data  # noqa: PLC0415
    from unskew.data.quality.check import check  # noqa: PLC0415
    from unskew.data.storage import check_writable  # noqa: PLC0415
    from unskew.utils.specs import validated  # noqa: PLC0415

    check_writable(out, replace=force)
    options = {
        "name": name,
        "skew": skew,
        "clients": clients,
        "holdout": holdout,
        "label_column": label_column,
        "task": task,
        "client_column": client_column,
        "features": column_names(features),
        "prepare": prepare,
        "columns": column_kinds(columns),
        "size": size,
    }
    federation = open_data(validated(DataConfig, options), seed)
    federation.save(out)
    typer.echo(repr(federation))
    found = check(federation)
    if found.findings:
        typer.echo(str(found))
    typer.echo(f"written to {out}; use it with --data {out}")
