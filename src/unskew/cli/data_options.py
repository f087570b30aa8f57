"""The options of commands that open data: how files are read and test samples held out."""

from typing import Annotated

import typer

Holdout = Annotated[
    float | None,
    typer.Option(
        help="Share of each client's samples that becomes its local test set.",
        show_default="0.2 for a data source, 0 for files",
    ),
]
LabelColumn = Annotated[str, typer.Option(help="Tables: the column to predict.")]
ClientColumn = Annotated[str | None, typer.Option(help="Tables: the column that names the client.")]
Features = Annotated[
    str | None,
    typer.Option(
        help="Tables: the feature columns, such as age,pulse.",
        show_default="all other columns",
    ),
]
Size = Annotated[
    int | None, typer.Option(help="Folders of images: resize images to this many pixels per side.")
]


def column_names(text: str | None) -> list[str] | None:
    """Split a comma-separated list of names."""
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]
