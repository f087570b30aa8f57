"""The options of commands that open data: which data, its clients, and how files are read."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from unskew.data.config import DataConfig

DataName = Annotated[
    str,
    typer.Argument(
        help="A data source, a CSV or Parquet file, an .npz file of arrays, a folder of images, or "
        "a saved federation."
    ),
]
Skew = Annotated[
    str | None,
    typer.Option(
        help="Sources: a partitioner's spec string (see unskew data partitioners).",
        show_default="iid; natural if a file or table names clients",
    ),
]
Clients = Annotated[
    int | None,
    typer.Option(help="Sources: number of clients.", show_default="10 for most partitioners"),
]
PartitionSeed = Annotated[int, typer.Option(min=0, help="Seed of the partition and of holdout.")]
Holdout = Annotated[
    float | None,
    typer.Option(
        help="Share of each client's samples that becomes its local test set.",
        show_default="0.2 for a data source, 0 for files",
    ),
]
LabelColumn = Annotated[str, typer.Option(help="Tables: the column to predict.")]
ClientColumn = Annotated[str | None, typer.Option(help="Tables: the column that names the client.")]
Task = Annotated[
    Literal["regression", "binary", "multiclass"] | None,
    typer.Option(
        help="Tables: what the column to predict is.",
        show_default="regression for fractions with over 20 distinct values, else classes",
    ),
]
Features = Annotated[
    str | None,
    typer.Option(
        help="Tables: the feature columns, such as age,pulse.",
        show_default="all other columns",
    ),
]
Prepare = Annotated[
    str,
    typer.Option(
        help="Tables: how columns become features: federated (statistics that clients send), "
        "pooled, local or none, with options such as federated:scale=robust.",
    ),
]
ColumnKinds = Annotated[
    str | None,
    typer.Option(
        "--columns",
        help="Tables: what columns hold, such as ward=category,age=0..120,sex=f|m,note=text.",
        show_default="inferred from the data",
    ),
]
Size = Annotated[
    int | None, typer.Option(help="Folders of images: resize images to this many pixels per side.")
]


def data_config(name: str, parameters: Mapping[str, Any]) -> "DataConfig":
    """Return the validated options of a command, given all its parameters (``locals()``).

    Those with the name of a field of DataConfig are its options.
    """
    from unskew.data.config import DataConfig  # noqa: PLC0415 (imports numpy)
    from unskew.utils.specs import validated  # noqa: PLC0415

    options = {each: parameters[each] for each in DataConfig.model_fields if each in parameters}
    options |= {
        "name": name,
        "features": _column_names(parameters["features"]),
        "columns": _column_kinds(parameters["columns"]),
    }
    return validated(DataConfig, options)


def _column_names(text: str | None) -> list[str] | None:
    """Split a comma-separated list of names."""
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def _column_kinds(text: str | None) -> dict[str, str] | None:
    """Split a comma-separated list of column=kind; anything else is an error later."""
    if text is None:
        return None
    pairs = (piece.partition("=") for piece in text.split(",") if piece.strip())
    return {name.strip(): kind.strip() for name, _, kind in pairs}
