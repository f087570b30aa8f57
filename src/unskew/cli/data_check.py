"""``unskew data check``: what is wrong or doubtful about data, before anything is trained."""

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
from unskew.cli.output import Json, print_json


def check_data(
    name: DataName,
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
    json: Json = False,
) -> None:
    """Check data before training: what is wrong or doubtful, and what to do.

    Finds NaN and infinite values, quantities taken for classes, columns on unlike scales, a client
    whose features are on another scale than the others', a single client, clients without test
    samples or with one class, empty classes, numbers to predict that are constant or in other
    units at a client, channels-last images, constant columns, and test samples that are training
    samples too. Errors end the command with code 1. Every comparison and
    run starts with the same check.

    Example:  [bold]unskew data check visits.csv --label-column ill --client-column site \\
    --holdout 0.2[/bold]
    """
    from unskew.data.load import open_data  # noqa: PLC0415
    from unskew.data.quality.check import check  # noqa: PLC0415

    config = data_config(name, locals())
    found = check(open_data(config, seed))
    if json:
        print_json(found.to_dict())
    else:
        typer.echo(str(found))
    if not found.ok:
        raise typer.Exit(1)
