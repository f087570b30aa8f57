"""What ``unskew flower up`` does: run an app on a temporary federation and print its rounds."""

import shlex
import signal
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

import typer

from unskew.cli.output import echo_error, exit_if_untrained
from unskew.errors import UnskewError
from unskew.flower.loopback.apps import Config, read_app_config, with_changes
from unskew.flower.loopback.federation import EndedRun, Loopback
from unskew.flower.loopback.programs import last_error
from unskew.runs.file_names import NODES, RUN, SERVER_LOGS
from unskew.runs.json_files import read_json_object
from unskew.runs.read import read_run
from unskew.runs.tail import Tail
from unskew.stats.metric import ACCURACY

_COLUMNS = ("stage", "round", "nodes", "train loss")
_WIDTHS = (10, 5, 7, 10)
_WIDTH = 8
"""The smallest width of the columns that follow: levels of evaluation, and seconds."""


@dataclass(frozen=True)
class UpOptions:
    """The options of the command; None means the value from the app."""

    app: Path
    nodes: int | None
    tls: bool
    rounds: int | None
    check_parity: bool
    out: Path | None
    resume: bool
    timeout: float


def run_and_check(options: UpOptions) -> bool:
    """Run the app; return False if the parity check was requested and failed."""
    if options.resume and options.out is None:
        raise UnskewError("--resume: give --out, the folder of the run to resume")
    out = options.out or _next_folder(options.app / "runs")
    config = _config(options, out)
    nodes = config["nodes"]
    typer.echo(
        f"{nodes} nodes, {'TLS and node keys' if options.tls else 'no TLS'}; logs: {out}/logs"
    )
    with (
        _sigterm_as_interrupt(),
        TemporaryDirectory(prefix="unskew-flower-") as folder,
        Loopback(Path(folder), nodes, tls=options.tls, out=out) as federation,
    ):
        changes = _changed_values(config, options.app)
        ended = federation.run(options.app, changes, options.timeout, RoundPrinter(out).print_new)
    _require_completed(ended, out)
    if not (out / RUN).is_file():
        raise UnskewError(
            f"{out}: the run has completed, but its server app recorded nothing here; give "
            'out=context.run_config["out"] to its Strategy'
        )
    for line in _lines_of_nodes(ended):
        echo_error(line)
    exit_if_untrained([read_run(out, tables=False)])
    typer.echo(f"run: {out}   ({shlex.join(['unskew', 'report', str(out)])} writes a report)")
    if not options.check_parity:
        return True
    from unskew.flower.loopback.parity import check_parity  # noqa: PLC0415

    parity = check_parity(options.app, config, out)
    typer.echo(str(parity))
    return parity.holds


def _config(options: UpOptions, out: Path) -> Config:
    config = read_app_config(options.app)
    given = {"nodes": options.nodes, "train.rounds": options.rounds}
    changes: Config = {key: value for key, value in given.items() if value is not None}
    changes |= {"nodes": changes.get("nodes", config.get("nodes"))}
    changes |= {"out": str(out.resolve()), "resume": options.resume}
    return with_changes(config, changes, options.app)


def _changed_values(config: Config, app: Path) -> Config:
    """Return the values that differ from those in the app, which are passed to Flower."""
    unchanged = read_app_config(app)
    return {key: value for key, value in config.items() if unchanged[key] != value}


def _next_folder(parent: Path) -> Path:
    number = 1
    while (parent / str(number)).exists():
        number += 1
    return parent / str(number)


def _require_completed(ended: EndedRun, out: Path) -> None:
    if ended.completed:
        return
    logs, reason = out / SERVER_LOGS, last_error(ended.log)
    if reason is None:
        lines = ended.log.splitlines()[-15:]
        start = f"the run ended as {ended.status}; logs are in {logs}, the last lines:"
    else:
        lines = []
        start = f"the run ended as {ended.status}: {reason}; logs are in {logs}"
    lines += _lines_of_nodes(ended)
    raise UnskewError("\n".join([start, *(f"    {line}" for line in lines)]))


def _lines_of_nodes(ended: EndedRun) -> list[str]:
    """Return the last error of every node that had one, nodes with the same error in one line."""
    nodes: dict[str, list[str]] = {}
    for name, error in ended.node_errors.items():
        nodes.setdefault(error, []).append(name)
    return [f"{', '.join(names)}: {error}" for error, names in nodes.items()]


class RoundPrinter:
    """Prints one line per round of a run as the rounds are recorded."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._tail = folder, Tail(folder)
        self._levels: dict[str, str] = {}
        """The levels that are shown, with their headers; empty before the first round."""

    def print_new(self) -> None:
        """Print the rounds that have ended since the last call."""
        for row in self._tail.read():
            if not self._levels:
                for why in self._left_out():
                    typer.echo(f"without node {why}")
                self._levels = self._headers()
                typer.echo(self._line((*_COLUMNS, *self._levels.values(), "seconds")))
            typer.echo(self._line(_cells(row, self._levels)))
            for note in _notes(row):
                typer.echo(f"  {note}")

    def _headers(self) -> dict[str, str]:
        """Return the levels of evaluation, and their headers: with the metric unless accuracy."""
        run = self._tail.run if (self._folder / RUN).is_file() else None
        levels = ["global", "local"]
        if run is not None and run.has_personal_models:
            levels.append("personal")
        metric = "" if run is None or run.metric == ACCURACY else f" {run.metric.name}"
        return {level: level + metric for level in levels}

    def _line(self, cells: tuple[str, ...]) -> str:
        widths = [*_WIDTHS, *(max(_WIDTH, len(each)) for each in self._levels.values()), _WIDTH]
        first, *others = zip(cells, widths, strict=True)
        return "  ".join([first[0].ljust(first[1]), *(text.rjust(width) for text, width in others)])

    def _left_out(self) -> list[str]:
        """Return the nodes that were refused before the first round, with the reasons."""
        path = self._folder / NODES
        found = read_json_object(path).get("left_out") if path.is_file() else None
        return [str(why) for why in found] if isinstance(found, list) else []


def _cells(row: Mapping[str, Any], levels: Iterable[str]) -> tuple[str, ...]:
    unused = len(row.get("missing", {})) + len(row.get("rejected", {}))
    loss = row["train_loss"]
    return (
        row["stage"],
        str(row["round"]),
        f"{row['clients'] - unused}/{row['clients']}",
        "-" if loss is None else f"{loss:.4f}",
        *(_accuracy(row.get(level)) for level in levels),
        f"{row['seconds']:.1f}",
    )


def _accuracy(level: Mapping[str, Any] | None) -> str:
    if level is None:
        return "-"
    name = next(iter(level), "loss")  # the metric that is judged
    value = level.get(name)
    if value is None:
        return "-"
    return f"{value:.2%}" if name == "accuracy" else f"{value:.4f}"


def _notes(row: Mapping[str, Any]) -> list[str]:
    reasons = [f"missing {why}" for why in row.get("missing", {}).values()]
    reasons += [f"rejected {why}" for why in row.get("rejected", {}).values()]
    absent = ", ".join(row.get("not_evaluated", []))
    reasons += [f"local and personal means are without {absent}"] if absent else []
    return reasons + ([row["kept_model"]] if "kept_model" in row else [])


@contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    """Treat SIGTERM like Ctrl-C, so that no process is left running."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        del number, frame
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
