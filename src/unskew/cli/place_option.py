"""The option that says where runs are executed: --on."""

from typing import Annotated

import typer

PlaceOption = Annotated[
    str | None,
    typer.Option(
        help="Where runs are executed: local, ray (at RAY_ADDRESS, or started here), "
        "dask:tcp://HOST:PORT or slurm:partition=NAME,time=2h,pack=4. A cluster needs --out on "
        "storage that all its machines share (docs/cluster.md).",
        show_default="local",
    ),
]
