"""The options of commands that open data: how files of one's own are read and held out."""

from typing import Annotated

import typer

Holdout = Annotated[
    float | None,
    typer.Option(
        help="Share of its samples each client keeps as a test.",
        show_default="0.2 of a source, none of files",
    ),
]
LabelColumn = Annotated[str, typer.Option(help="Of a table: the column to predict.")]
ClientColumn = Annotated[
    str | None, typer.Option(help="Of a table: the column that names the client.")
]
Features = Annotated[
    str | None,
    typer.Option(
        help="Of a table: the columns to predict from, such as age,pulse.", show_default="the rest"
    ),
]
Size = Annotated[int | None, typer.Option(help="Of a folder of images: resize to so many pixels.")]


def column_names(text: str | None) -> list[str] | None:
    """Read names with commas between."""
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]
