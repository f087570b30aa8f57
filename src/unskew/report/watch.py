"""Live view of runs: a table of their latest metrics, which trackers receive too."""

import math
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from unskew.runs.file_names import METRICS
from unskew.runs.read import run_folders
from unskew.runs.run import TASK, level_of_clients
from unskew.runs.schema import check_row
from unskew.runs.tail import Tail
from unskew.runs.trackers import Tracker
from unskew.utils.tables import Table

_BARS = "▁▂▃▄▅▆▇█"
_WIDTH = 24
"""The number of characters of a run's curve in the table."""


class Watch:
    """Follows the runs in folders and their subfolders, including runs that start later."""

    def __init__(
        self, paths: Sequence[Path], open_tracker: Callable[[Tail], Tracker] | None = None
    ) -> None:
        self._paths = paths
        self._open = open_tracker
        self._tails: dict[Path, Tail] = {}
        self._trackers: dict[Path, Tracker] = {}
        self._stack = ExitStack()

    def __enter__(self) -> "Watch":
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    @property
    def is_done(self) -> bool:
        """Whether no run is in progress: each is done, or its process has ended."""
        return all(tail.is_done or tail.is_stopped for tail in self._tails.values())

    def update(self) -> Table:
        """Read new rounds, pass them to the trackers, and return the current table."""
        for folder in (folder for path in self._paths for folder in run_folders(path)):
            tail = self._tails.setdefault(folder, Tail(folder))
            before = len(tail.rows)
            new = tail.read()
            for row in new:
                check_row(row, folder / METRICS)
            if self._open is not None:
                self._track(tail, new, first=len(tail.rows) - len(new) if new else before)
        rows = [_cells(tail) for tail in self._tails.values()]
        return Table(_COLUMNS, rows, title=time.strftime("%H:%M:%S"))

    def _track(self, tail: Tail, new: Sequence[dict[str, object]], first: int) -> None:
        if tail.folder not in self._trackers:
            assert self._open is not None
            tracker = self._open(tail)
            self._stack.callback(tracker.close)
            self._trackers[tail.folder] = tracker
        for step, row in enumerate(new, first + 1):
            self._trackers[tail.folder].log(step, row)


_COLUMNS = ("run", "round", "left", "train loss", "metric", "worst client", "curve", "MB sent")


def _cells(tail: Tail) -> list[str]:
    run, metric = tail.run, tail.run.metric
    last = tail.rows[-1] if tail.rows else None
    if last is None:
        first = next(iter(tail.stages))
        left = "stopped" if tail.is_stopped else "-"
        return [f"{run.method}, seed {run.seed}", _round_text(tail, first, 0), left, *["-"] * 5]
    level = run.level
    prefix = "" if level == "global" else f"{level} "
    loss, cost = last["train_loss"], run.cost
    return [
        f"{run.method}, seed {run.seed}",
        _round_text(tail, last["stage"], last["round"]),
        _left(tail),
        "-" if loss is None else f"{loss:.4f}",
        f"{prefix}{metric.name} {metric.text(run.last(level, metric.name))}",
        metric.text(run.last(level_of_clients(level), metric.worst)),
        spark(run.curve(level, metric.name)[1]),
        f"{(cost.bytes_up + cost.bytes_down) / 1e6:.2f}",
    ]


def spark(values: Sequence[float]) -> str:
    """Draw the end of a curve with block characters; missing values are spaces."""
    shown = list(values[-_WIDTH:])
    known = [value for value in shown if not math.isnan(value)]
    if not known:
        return ""
    low, span = min(known), (max(known) - min(known)) or 1.0
    return "".join(
        " " if math.isnan(value) else _BARS[round((value - low) / span * (len(_BARS) - 1))]
        for value in shown
    )


def _round_text(tail: Tail, stage: str, round_: int) -> str:
    """Return the round, the rounds of its stage, and the stage if it is not the task."""
    rounds = tail.stages.get(stage)
    text = f"{round_}/{'?' if rounds is None else rounds}"
    return text if stage == TASK else f"{text} ({stage})"


def _left(tail: Tail) -> str:
    """Return how long the stage will take, with a plus if other stages follow it."""
    if tail.is_done:
        return "done"
    if tail.is_stopped:
        return "stopped"
    stages, last = tail.stages, tail.rows[-1]
    rows = [row for row in tail.rows[-20:] if row["stage"] == last["stage"]]
    seconds = sum(float(row.get("seconds", 0)) for row in rows) / len(rows)
    left = max(0, stages.get(last["stage"], last["round"]) - last["round"])
    return _duration(left * seconds) + ("+" if last["stage"] != list(stages)[-1] else "")


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
