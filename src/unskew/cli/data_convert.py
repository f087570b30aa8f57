"""``unskew data convert``: write data of any kind as a saved federation."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

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


def convert_data(
    name: DataName,
    out: Annotated[Path, typer.Argument(help="The folder to write.")],
    skew: Skew = None,
    clients: Clients = None,
    seed: PartitionSeed = 0,
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
    from unskew.data.load import open_data  # noqa: PLC0415
    from unskew.data.quality.check import check  # noqa: PLC0415
    from unskew.data.storage import check_writable  # noqa: PLC0415

    check_writable(out, replace=force)
    config = data_config(name, locals())
    federation = open_data(config, seed)
    federation.save(out)
    typer.echo(repr(federation))
    found = check(federation)
    if found.findings:
        typer.echo(str(found))
    typer.echo(f"written to {out}; use it with --data {shlex.quote(str(out))}")
