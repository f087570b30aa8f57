"""``unskew flower``: write a Flower app, and try it on a federation on this machine."""

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from unskew.cli.output import Json
from unskew.errors import UnskewError

app = typer.Typer(
    no_args_is_help=True, help="Run methods on a real Flower federation: write an app, try it."
)


@app.command("new")
def new_app(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder to make.")],
    method: Annotated[
        str, typer.Option(help="A method with options (unskew methods), such as fedprox:mu=0.1.")
    ] = "fedavg",
    data: Annotated[str, typer.Option(help="A source (unskew data list).")] = "digits",
    model: Annotated[
        str | None, typer.Option(help="A network (unskew models); default: one for the data.")
    ] = None,
    clients: Annotated[int, typer.Option(min=1, help="How many nodes it is dealt out to.")] = 4,
    skew: Annotated[
        str, typer.Option(help="A partitioner's spec string (see unskew data partitioners).")
    ] = "dirichlet:alpha=0.5",
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of training.")] = 5,
) -> None:
    """Write a complete Flower app: a server, a client, what they agree on, and a README.

    The app deals a source out to its nodes, so that it runs at once. For a real federation,
    change one function: what a node's samples are. Nothing is overwritten.

    Example:  [bold]unskew flower new hospitals --method ida --data digits[/bold]

    then:  [bold]unskew flower up hospitals --nodes 4 --tls --check-parity[/bold]
    """
    from unskew.flower.scaffolding import write_app  # noqa: PLC0415

    written = write_app(
        folder, method=method, data=data, skew=skew, model=model, clients=clients, rounds=rounds
    )
    for path in written:
        typer.echo(str(path))
    typer.echo(f"try it: unskew flower up {folder} --nodes {clients} --tls --check-parity")


@app.command("sends")
def list_what_is_sent(
    methods: Annotated[
        list[str] | None,
        typer.Argument(metavar="[METHOD]...", help="Methods with options; default: all."),
    ] = None,
    json: Json = False,
) -> None:
    """Tell what methods send from nodes to server and back, and what stays on the node.

    Found out by playing each on a toy federation; docs/deploy.md says what a curious server could
    learn from it. A name, counts of samples and a loss are sent by all of them.

    Example:  [bold]unskew flower sends ida feddisco feddisk[/bold]
    """
    from unskew.cli.tables import show_rows  # noqa: PLC0415
    from unskew.flower.traffic_preview import sends  # noqa: PLC0415
    from unskew.methods.common.registry import METHODS  # noqa: PLC0415

    rows = [sends(method).row for method in methods or sorted(METHODS)]
    show_rows(rows, "what is sent", json=json)


@app.command("up")
def run_app(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a Flower app.")],
    nodes: Annotated[
        int | None, typer.Option(min=1, help="How many SuperNodes; default: what the app says.")
    ] = None,
    tls: Annotated[
        bool, typer.Option("--tls", help="Encrypt, and let only registered nodes in.")
    ] = False,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Rounds of training; default: what the app says.")
    ] = None,
    parity: Annotated[
        bool,
        typer.Option(
            "--check-parity",
            help="Repeat the run in one process and compare; exit 1 if it differs.",
        ),
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="The run's folder; default: the next below DIR/runs.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the last checkpoint in --out.")
    ] = False,
    timeout: Annotated[
        float, typer.Option(min=1, help="Seconds after which the whole try is given up.")
    ] = 1800.0,
) -> None:
    """Run a Flower app on a federation of its own on this machine, and take it down again.

    Starts a SuperLink and SuperNodes on free ports of 127.0.0.1, with certificates and keys made
    for the occasion, registers the nodes, runs the app and shows its rounds as they come.
    Whatever happens, Ctrl-C included, no process is left behind. Logs stay in the run's folder.

    A real federation needs the same programs on several machines: see docs/deploy.md.

    Example:  [bold]unskew flower up hospitals --nodes 4 --tls --rounds 3 --check-parity[/bold]
    """
    if find_spec("flwr") is None:
        raise UnskewError('flower: it is not installed; pip install "unskew[flower]"')
    from unskew.cli.flower_up import Try, play  # noqa: PLC0415

    holds = play(
        Try(
            app=folder,
            nodes=nodes,
            tls=tls,
            rounds=rounds,
            parity=parity,
            out=out,
            resume=resume,
            timeout=timeout,
        )
    )
    if not holds:
        raise typer.Exit(1)
