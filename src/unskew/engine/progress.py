"""Showing how far training is: one bar with the latest figures, on a terminal."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

Watcher = Callable[[int, Mapping[str, Any]], None]
"""Called after each round with its number and its metrics."""


@contextmanager
def show_progress(
    progress: bool | Watcher | None, label: str, rounds: int, done: int
) -> Iterator[Watcher]:
    """Provide the watcher asked for: the caller's own, a bar, or none.

    ``None`` shows a bar when standard error is a terminal.
    """
    if callable(progress):
        yield progress
    elif not _shown(progress):
        yield _ignore
    else:
        with _bar() as bar:
            task = bar.add_task(label, total=rounds, completed=done, figures="")
            yield lambda round_, metrics: bar.update(
                task, completed=round_, figures=_figures(metrics)
            )


class Board:
    """One display for many runs: how many are done, and a line for each that is played."""

    def __init__(self, bar: "Progress | None", runs: int, rounds: int) -> None:
        self._bar, self._rounds = bar, rounds
        self._lines: dict[str, TaskID] = {}
        if bar is not None:
            self._all = bar.add_task("runs", total=runs, figures="")

    def start(self, label: str, rounds: int | None = None) -> Watcher:
        """Show a run, and return its watcher; ``rounds`` is its own number, if it has one."""
        bar = self._bar
        if bar is None:
            return _ignore
        line = bar.add_task(label, total=rounds or self._rounds, figures="")
        self._lines[label] = line
        return lambda round_, metrics: bar.update(line, completed=round_, figures=_figures(metrics))

    def finish(self, label: str) -> None:
        """Take a run's line away and count it as done."""
        if self._bar is not None:
            self._bar.remove_task(self._lines.pop(label))
            self._bar.advance(self._all)


@contextmanager
def show_progress_of_many(progress: bool | None, runs: int, rounds: int) -> Iterator[Board]:
    """Provide the board for many runs of so many rounds each, shown or not as asked."""
    if not _shown(progress):
        yield Board(None, runs, rounds)
        return
    with _bar() as bar:
        yield Board(bar, runs, rounds)


def _shown(progress: bool | None) -> bool:
    return sys.stderr.isatty() if progress is None else progress


def _bar() -> "Progress":
    from rich.console import Console  # noqa: PLC0415 (only when something is shown)
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[figures]}"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )


def _figures(metrics: Mapping[str, Any]) -> str:
    loss = metrics["train_loss"]
    figures = [] if loss is None else [f"loss {loss:.3f}"]
    common = metrics.get("global", {})
    if "accuracy" in common:
        figures.append(f"accuracy {100 * common['accuracy']:.1f} %")
    elif "loss" in common:
        figures.append(f"test loss {common['loss']:.4g}")
    return "  ".join(figures)


def _ignore(round_: int, metrics: Mapping[str, Any]) -> None:
    del round_, metrics
