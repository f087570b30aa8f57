"""``unskew flower``: write a Flower app, run it on this machine, and predict on a node."""

import shlex
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from unskew.cli.output import Json
from unskew.errors import UnskewError
from unskew.utils.wording import plural

app = typer.Typer(
    no_args_is_help=True,
    help="Write a Flower app, run it on a federation on this machine, predict on a node.",
)

_REQUIRED = ("flwr", "psutil", "trustme")
"""The packages of the extra ``flower``."""


@app.command("new")
def new_app(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder to create.")],
    method: Annotated[
        str, typer.Option(help="A method with options (unskew methods), such as fedprox:mu=0.1.")
    ] = "fedavg",
    data: Annotated[str, typer.Option(help="A dataset (unskew data list).")] = "digits",
    model: Annotated[
        str | None, typer.Option(help="A network (unskew models); default: one for the data.")
    ] = None,
    clients: Annotated[int, typer.Option(min=1, help="Number of nodes.")] = 4,
    skew: Annotated[
        str, typer.Option(help="A partitioner's spec string (see unskew data partitioners).")
    ] = "dirichlet:alpha=0.5",
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of training.")] = 5,
) -> None:
    """Write a complete Flower app: a server, a client, what they share, and a README.

    The app partitions a dataset among its nodes, so that it runs without changes. For a real
    federation, change one function: the one that returns a node's samples. Existing files are
    never overwritten.

    Example:  [bold]unskew flower new hospitals --method ida --data digits[/bold]

    then:  [bold]unskew flower up hospitals --nodes 4 --tls --check-parity[/bold]
    """
    from unskew.flower.scaffolding import write_app  # noqa: PLC0415

    written = write_app(
        folder, method=method, data=data, skew=skew, model=model, clients=clients, rounds=rounds
    )
    for path in written:
        typer.echo(str(path))
    app = shlex.quote(str(folder))
    typer.echo(f"try it: unskew flower up {app} --nodes {clients} --tls --check-parity")


@app.command("sends")
def list_traffic(
    methods: Annotated[
        list[str] | None,
        typer.Argument(metavar="[METHOD]...", help="Methods with options; default: all."),
    ] = None,
    prepare: Annotated[
        str | None,
        typer.Option(
            help="List what the preprocessing of raw tables sends instead, such as "
            "federated:scale=robust or federated:epsilon=1."
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            help="List shapes and bytes of every message, for a dataset (unskew data list) or a "
            "saved federation."
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="With --data, a network; default: one for the data.")
    ] = None,
    json: Json = False,
) -> None:
    """List what methods send between nodes and server, and what stays on the node.

    Each method is run on a toy federation. docs/deploy.md explains what a curious server could
    learn from it. All methods also send the node's name, its numbers of samples and a loss.

    With --data, list shapes, bytes and epsilon of every message, as a node's log has them.
    With --prepare, list what nodes with raw tables send before the first round.

    Example:  [bold]unskew flower sends scaffold --data digits --model mlp[/bold]

    Example:  [bold]unskew flower sends --prepare federated[/bold]
    """
    from unskew.cli.tables import show_rows  # noqa: PLC0415

    if prepare is not None:
        from unskew.flower.preprocessing_preview import preview_preprocessing  # noqa: PLC0415

        if methods or data or model:
            raise UnskewError("prepare: list methods or a preprocessing, not both")
        show_rows(preview_preprocessing(prepare), "what the preprocessing sends", json=json)
        return
    from unskew.flower.traffic_preview import preview_traffic  # noqa: PLC0415
    from unskew.methods import METHODS  # noqa: PLC0415

    if (data is None and model is not None) or (data is not None and not methods):
        raise UnskewError("sends: shapes and bytes need both METHOD and --data")
    if data is not None:
        show_rows(_messages(methods or [], data, model), "what leaves a node", json=json)
        return
    rows = [preview_traffic(method).row for method in methods or sorted(METHODS)]
    show_rows(rows, "what is sent", json=json)
    if not json:
        typer.echo(
            "nodes with raw tables also send statistics: unskew flower sends --prepare federated"
        )


def _messages(methods: list[str], data: str, model: str | None) -> list[dict[str, str | int]]:
    """Return a row for every form of a message that methods send."""
    from unskew.data.config import DataConfig  # noqa: PLC0415
    from unskew.data.load import open_data  # noqa: PLC0415
    from unskew.flower.traffic_preview import preview_messages  # noqa: PLC0415

    federation = open_data(DataConfig(name=data), seed=0)
    return [row for each in methods for row in preview_messages(each, federation, model)]


@app.command("ledger")
def show_ledger(
    state: Annotated[
        Path | None,
        typer.Argument(
            metavar="[STATE]",
            help="A node's state folder; default: $UNSKEW_STATE or ~/.unskew/flower.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """List what a node's private releases have cost, and what is left of its budget.

    The ledger belongs to the node's samples: all runs spend from the same budget. The epsilon of
    the row "all" is less than the sum of the others, since releases are composed.

    Example:  [bold]unskew flower ledger /var/lib/unskew[/bold]
    """
    from unskew.cli.tables import show_rows  # noqa: PLC0415
    from unskew.flower.ledger_table import in_words, ledger_rows, shown  # noqa: PLC0415
    from unskew.flower.node_files import default_state  # noqa: PLC0415

    folder = state or default_state()
    rows = ledger_rows(folder)
    if json:
        show_rows(rows, "", json=True)
        return
    if rows:
        show_rows([shown(row) for row in rows], f"ledger of {folder}", json=False)
    lines = in_words(rows) or [f"{folder}: no private release has left this node"]
    typer.echo("\n".join(lines))


@app.command("up")
def run_app(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a Flower app.")],
    nodes: Annotated[
        int | None, typer.Option(min=1, help="Number of SuperNodes; default: from the app.")
    ] = None,
    tls: Annotated[
        bool, typer.Option("--tls", help="Encrypt, and accept only registered nodes.")
    ] = False,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Rounds of training; default: from the app.")
    ] = None,
    check_parity: Annotated[
        bool,
        typer.Option(
            "--check-parity",
            help="Repeat the run in one process and compare; exit 1 if it differs.",
        ),
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="The run's folder; default: the next number in DIR/runs.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue from the last checkpoint in --out.")
    ] = False,
    timeout: Annotated[
        float, typer.Option(min=1, help="Seconds after which the run is stopped.")
    ] = 1800.0,
) -> None:
    """Run a Flower app on a temporary federation on this machine.

    Starts a SuperLink and SuperNodes on free ports of 127.0.0.1 with temporary certificates and
    keys, registers the nodes, runs the app and prints every round as it ends. All processes are
    stopped at the end, also after Ctrl-C and errors. Logs stay in the run's folder.

    A real federation needs the same programs on several machines: see docs/deploy.md.

    Example:  [bold]unskew flower up hospitals --nodes 4 --tls --rounds 3 --check-parity[/bold]
    """
    _require(*_REQUIRED)
    from unskew.cli.flower_up import UpOptions, run_and_check  # noqa: PLC0415

    succeeded = run_and_check(
        UpOptions(
            app=folder,
            nodes=nodes,
            tls=tls,
            rounds=rounds,
            check_parity=check_parity,
            out=out,
            resume=resume,
            timeout=timeout,
        )
    )
    if not succeeded:
        raise typer.Exit(1)


@app.command("predict")
def predict(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="Rows: a CSV or Parquet file; .npy for a model of arrays."
        ),
    ],
    state: Annotated[
        Path | None,
        typer.Option(help="The node's state folder; default: $UNSKEW_STATE or ~/.unskew/flower."),
    ] = None,
    node: Annotated[
        str | None, typer.Option(help="The node's name, if several share the folder.")
    ] = None,
    run: Annotated[
        str | None, typer.Option(help="The id of a run; default: the one that ended last.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write the table to this CSV file.")] = None,
    json: Json = False,
) -> None:
    """Predict rows on a node's machine, with the model that the node uses itself.

    When a run ends, every node keeps that model in its state folder: its personal model where the
    method has one, else the global model, with the preprocessing of its table. Nothing is sent.

    Example:  [bold]unskew flower predict patients.csv --state ./state --out risks.csv[/bold]
    """
    _require("flwr")
    from unskew.cli.tables import show_rows  # noqa: PLC0415
    from unskew.flower.kept_model import (  # noqa: PLC0415
        find_model,
        predict_rows,
        predictor_of,
        write_rows,
    )

    path, kept = find_model(state, node, run)
    rows = predict_rows(predictor_of(path, kept), file)
    if out is None:
        show_rows(rows, f"predictions by {kept}", json=json)
    else:
        write_rows(rows, out)
        typer.echo(f"{out}: {plural(len(rows), 'row')}, by {kept}")


def _require(*packages: str) -> None:
    """Raise if packages of the extra are not installed."""
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        raise UnskewError(
            f"flower: missing packages: {', '.join(missing)}; they are in the extra flower: "
            'pip install "unskew[flower]"'
        )
