"""A try of a Flower app, as ``unskew flower up`` shows it."""

import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

import typer

from unskew.errors import UnskewError
from unskew.flower.loopback.apps import Config, changed, read_app_config
from unskew.flower.loopback.federation import Loopback, Outcome
from unskew.runs.tail import Tail

_COLUMNS = ("stage", "round", "nodes", "train loss", "global", "local", "seconds")
_WIDTHS = (10, 5, 7, 10, 8, 8, 8)


@dataclass(frozen=True)
class Try:
    """What was asked for; None means what the app says."""

    app: Path
    nodes: int | None
    tls: bool
    rounds: int | None
    parity: bool
    out: Path | None
    resume: bool
    timeout: float


def play(wanted: Try) -> bool:
    """Play the app; tell whether everything asked for holds."""
    if wanted.resume and wanted.out is None:
        raise UnskewError("--resume: give --out too, the folder of the run to go on with")
    out = wanted.out or _next_folder(wanted.app / "runs")
    config = _config(wanted, out)
    nodes = config["nodes"]
    typer.echo(
        f"{nodes} nodes, {'TLS and node keys' if wanted.tls else 'no TLS'}; logs: {out}/logs"
    )
    with (
        _ended_by_sigterm(),
        TemporaryDirectory(prefix="unskew-flower-") as folder,
        Loopback(Path(folder), nodes, tls=wanted.tls, kept=out) as federation,
    ):
        changes = _differences(config, wanted.app)
        outcome = federation.run(wanted.app, changes, wanted.timeout, Rounds(out).show)
    _complain_unless_completed(outcome, out)
    typer.echo(f"run: {out}   (unskew report {out} makes a page of it)")
    if not wanted.parity:
        return True
    from unskew.flower.loopback.parity import check_parity  # noqa: PLC0415

    parity = check_parity(wanted.app, config, out)
    typer.echo(str(parity))
    return parity.holds


def _config(wanted: Try, out: Path) -> Config:
    given = {"nodes": wanted.nodes, "train.rounds": wanted.rounds}
    changes: Config = {key: value for key, value in given.items() if value is not None}
    changes |= {"out": str(out.resolve()), "resume": wanted.resume}
    return changed(read_app_config(wanted.app), changes, wanted.app)


def _differences(config: Config, app: Path) -> Config:
    """Return what must be told to Flower, which knows the app's own configuration."""
    own = read_app_config(app)
    return {key: value for key, value in config.items() if own[key] != value}


def _next_folder(parent: Path) -> Path:
    number = 1
    while (parent / str(number)).exists():
        number += 1
    return parent / str(number)


def _complain_unless_completed(outcome: Outcome, out: Path) -> None:
    if not outcome.completed:
        words = "\n".join(f"    {line}" for line in outcome.log.splitlines()[-15:])
        raise UnskewError(
            f"the run ended as {outcome.status}; logs are in {out / 'logs'}, its last words:\n"
            + words
        )


class Rounds:
    """The rounds of a run, a line each as they are written down."""

    def __init__(self, folder: Path) -> None:
        self._tail = Tail(folder)
        self._begun = False

    def show(self) -> None:
        """Print the rounds that are new."""
        for row in self._tail.read():
            if not self._begun:
                typer.echo(_line(_COLUMNS))
                self._begun = True
            typer.echo(_line(_cells(row)))
            for note in _notes(row):
                typer.echo(f"  {note}")


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    absent = len(row.get("missing", {})) + len(row.get("rejected", {}))
    loss = row["train_loss"]
    return (
        row["stage"],
        str(row["round"]),
        f"{row['clients'] - absent}/{row['clients']}",
        "-" if loss is None else f"{loss:.4f}",
        _accuracy(row.get("global")),
        _accuracy(row.get("local")),
        f"{row['seconds']:.1f}",
    )


def _accuracy(level: Mapping[str, Any] | None) -> str:
    if level is None:
        return "-"
    accuracy = level.get("accuracy")
    return f"{level['loss']:.4f}" if accuracy is None else f"{accuracy:.2%}"


def _notes(row: Mapping[str, Any]) -> list[str]:
    reasons = [f"missing {why}" for why in row.get("missing", {}).values()]
    reasons += [f"rejected {why}" for why in row.get("rejected", {}).values()]
    return reasons + ([row["kept_model"]] if "kept_model" in row else [])


def _line(cells: tuple[str, ...]) -> str:
    first, *others = zip(cells, _WIDTHS, strict=True)
    return "  ".join([first[0].ljust(first[1]), *(text.rjust(width) for text, width in others)])


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM end the try as Ctrl-C does, so that nothing is left running."""

    def stop(number: int, frame: FrameType | None) -> None:
        del number, frame
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
