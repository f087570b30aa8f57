"""Showing how far training is: one bar with the latest figures, on a terminal."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.progress import Progress

Watcher = Callable[[int, Mapping[str, Any]], None]
"""Called after each round with its number and its metrics."""


@contextmanager
def watching(
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


@contextmanager
def watching_many(progress: bool | None, runs: int) -> Iterator[Callable[[str], Watcher]]:
    """Provide one bar for many runs: a function that turns a run's label into its watcher."""
    if not _shown(progress):
        yield lambda label: _ignore  # noqa: ARG005
        return
    with _bar() as bar:
        task = bar.add_task("", total=runs, figures="")
        started = 0

        def watcher(label: str) -> Watcher:
            nonlocal started
            bar.update(task, completed=started, description=label, figures="")
            started += 1
            return lambda round_, metrics: bar.update(
                task, figures=f"round {round_}  {_figures(metrics)}"
            )

        yield watcher
        bar.update(task, completed=runs)


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
