"""Progress bars with the latest metrics, on a terminal."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

RoundCallback = Callable[[int, Mapping[str, Any]], None]
"""Called after each round with its number and its metrics."""


@contextmanager
def show_progress(
    progress: bool | RoundCallback | None, label: str, rounds: int, done: int
) -> Iterator[RoundCallback]:
    """Provide the caller's callback, one that updates a progress bar, or one that does nothing.

    ``None`` shows a bar if standard error is a terminal.
    """
    if callable(progress):
        yield progress
    elif not _is_shown(progress):
        yield _ignore
    else:
        with _bar() as bar:
            task = bar.add_task(label, total=rounds, completed=done, metrics="")
            yield lambda round_, metrics: bar.update(
                task, completed=round_, metrics=_metrics_text(metrics)
            )


class ProgressDisplay:
    """A progress display for many runs: a bar for all of them, and a bar for each active one."""

    def __init__(self, bar: "Progress | None", runs: int, rounds: int) -> None:
        self._bar, self._rounds = bar, rounds
        self._active: dict[str, TaskID] = {}
        if bar is not None:
            self._all = bar.add_task("runs", total=runs, metrics="")

    def start(self, label: str, rounds: int | None = None) -> RoundCallback:
        """Show a run and return its callback; ``rounds`` overrides the default number of rounds."""
        bar = self._bar
        if bar is None:
            return _ignore
        task = bar.add_task(label, total=rounds or self._rounds, metrics="")
        self._active[label] = task
        return lambda round_, metrics: bar.update(
            task, completed=round_, metrics=_metrics_text(metrics)
        )

    def finish(self, label: str) -> None:
        """Remove a run's bar and count the run as done."""
        if self._bar is not None:
            self._bar.remove_task(self._active.pop(label))
            self._bar.advance(self._all)


@contextmanager
def show_progress_of_many(
    progress: bool | None, runs: int, rounds: int
) -> Iterator[ProgressDisplay]:
    """Provide the progress display for many runs of ``rounds`` rounds each."""
    if not _is_shown(progress):
        yield ProgressDisplay(None, runs, rounds)
        return
    with _bar() as bar:
        yield ProgressDisplay(bar, runs, rounds)


def _is_shown(progress: bool | None) -> bool:
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
        TextColumn("{task.fields[metrics]}"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )


def _metrics_text(metrics: Mapping[str, Any]) -> str:
    loss = metrics["train_loss"]
    parts = [] if loss is None else [f"loss {loss:.3f}"]
    common = metrics.get("global", {})
    if "accuracy" in common:
        parts.append(f"accuracy {100 * common['accuracy']:.1f} %")
    elif "loss" in common:
        parts.append(f"test loss {common['loss']:.4g}")
    return "  ".join(parts)


def _ignore(round_: int, metrics: Mapping[str, Any]) -> None:
    del round_, metrics
