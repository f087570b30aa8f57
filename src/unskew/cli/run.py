"""``unskew run``: train one method as configured in a TOML file."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unskew.cli.compute_options import Device, Memory, Precision, compute_options
from unskew.cli.output import Debug, Json, exit_if_untrained, print_json, print_rich
from unskew.cli.place_option import PlaceOption

if TYPE_CHECKING:
    from unskew.runs.run import Run


def run_config(
    config: Annotated[Path, typer.Argument(help="A TOML file like the example above.")],
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", help="Override a field, such as train.lr=0.1; may be repeated."),
    ] = None,
    device: Device = None,
    memory: Memory = None,
    precision: Precision = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the run; overrides out in the file.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume from the last checkpoint.")
    ] = False,
    on: PlaceOption = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Train one method as configured in a TOML file.

    A complete configuration:

        method = "fedprox:mu=0.01"
        model = "mlp"
        out = "runs/first"
        \\[data]
        name = "digits"
        skew = "dirichlet:alpha=0.1"
        clients = 20
        \\[train]
        rounds = 50
        participation = 0.5
        lr = 0.1

    Example:  [bold]unskew run first.toml --set train.lr=0.05 --out runs/second[/bold]
    """
    del debug
    from unskew.data.load import open_data  # noqa: PLC0415
    from unskew.experiments.config import read_config  # noqa: PLC0415
    from unskew.experiments.training import train  # noqa: PLC0415

    compute = compute_options(device, memory, precision)
    chosen = [f"train.{name}={value}" for name, value in compute.items()]
    parsed = read_config(config, [*(changes or ()), *chosen])
    folder = out or parsed.out
    run = train(
        open_data(parsed.data, parsed.train.seed),
        parsed.method,
        model=parsed.model,
        out=folder,
        resume=resume,
        on=on or parsed.on,
        settings=parsed.train,
    )
    _print_run(run, as_json=json)
    exit_if_untrained([run])


def _print_run(run: "Run", *, as_json: bool) -> None:
    if as_json:
        print_json(_run_json(run))
        return
    print_rich(run.table())
    cost = run.cost
    typer.echo(
        f"{cost.rounds} rounds, {cost.bytes_up / 1e6:.2f} MB up, "
        f"{cost.bytes_down / 1e6:.2f} MB down"
        + (f"; written to {run.folder}" if run.folder else "")
    )


def _run_json(run: "Run") -> dict[str, Any]:
    measured = [row for row in run.metrics if "global" in row or "local" in row]
    last = measured[-1] if measured else {}
    return {
        "method": run.method,
        "model": run.network,
        "data": run.data,
        "seed": run.seed,
        "rounds": run.rounds,
        "failed_rounds": run.failed_rounds,
        "cost": asdict(run.cost),
        "levels": {
            k: last[k] for k in ("global", "local", "personal") if k in last and run.has_model(k)
        },
        "findings": run.metadata.get("findings", []),
        "remarks": run.remarks,
        "folder": str(run.folder) if run.folder else None,
    }
