"""The progress of one run or of many, with the latest metrics and the remaining time."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from unskew.engine.progress_bars import Bars, Lines, open_bars, surface_for
from unskew.engine.time_estimate import TimeEstimate
from unskew.utils.wording import duration, plural

RoundCallback = Callable[[int, Mapping[str, Any]], None]
"""Called after each round with its number and its metrics."""

_WORTH_A_LINE = 30.0
"""Where there are no bars, the estimate is printed if it is at least this many seconds."""

_SETTLED_ROUNDS, _SETTLED_SECONDS = 60, 10.0
"""The estimate is printed after so many rounds, so much time, or a complete run.

A run's first rounds are slower than the others, because steps are traced in them.
"""

_MUCH_LONGER = 1.5
"""The estimate is printed again once it has grown by this factor."""


@contextmanager
def show_progress(
    progress: bool | RoundCallback | None, label: str, rounds: int, done: int
) -> Iterator[RoundCallback]:
    """Provide the caller's callback, one that updates a progress bar, or one that does nothing.

    ``None`` shows a bar on a terminal and in a notebook.
    """
    if callable(progress):
        yield progress
        return
    with open_bars(surface_for(progress)) as bars:
        if not bars.is_live:
            yield _ignore
            return
        bar, estimate = bars.add(label, rounds, done), TimeEstimate(rounds - done)

        def on_round(round_: int, metrics: Mapping[str, Any]) -> None:
            estimate.finish_round()
            bars.update(bar, round_, _joined(_metrics_text(metrics), _left_text(estimate)))

        yield on_round


class ProgressDisplay:
    """The progress of many runs: a bar for all of them, and a bar for each active one.

    ``runs`` and ``rounds`` are the expected numbers of runs and of rounds per run, and
    ``total_rounds`` those of all runs and stages together, if they are known.
    """

    def __init__(
        self, bars: Bars | None, runs: int, rounds: int, total_rounds: int | None = None
    ) -> None:
        self._bars: Bars = bars or Lines()
        self._runs, self._rounds, self._finished, self._skipped = runs, rounds, 0, 0
        self._active: dict[str, _ActiveRun] = {}
        self._knows_total = total_rounds is not None
        self._estimate = TimeEstimate(runs * rounds if total_rounds is None else total_rounds)
        self._announced: float | None = None
        self._all = self._bars.add("runs", runs)
        self._decided: int | None = None

    def expect(self, runs: int, rounds: int) -> None:
        """Expect further runs, which have so many rounds together."""
        self._runs += runs
        self._estimate.expect(rounds)
        self._bars.resize(self._all, self._runs)

    def skip(self, runs: int, rounds: int) -> None:
        """Leave runs out of the estimate that are finished already, and only read."""
        self._skipped += runs
        if self._knows_total:
            self._estimate.expect(-rounds)

    def show_decided(self, done: int, total: int, text: str) -> None:
        """Show how many of the comparison's questions are answered, and which are undecided."""
        if self._decided is None:
            self._decided = self._bars.add("decided", total)
        self._bars.update(self._decided, done, text)
        if not self._bars.is_live:
            self.say(f"decided: {done}/{total}, {text}")

    def start(self, label: str, rounds: int | None = None) -> RoundCallback:
        """Show a run and return its callback; ``rounds`` overrides the expected number of rounds.

        It counts the rounds of all stages of the run, and is 0 for a run that is only read.
        """
        planned = self._rounds if rounds is None else rounds
        if not self._knows_total:
            self._estimate.expect(planned - self._rounds)
        run = self._active[label] = _ActiveRun(self._bars.add(label, planned), planned)

        def on_round(round_: int, metrics: Mapping[str, Any]) -> None:
            skipped = run.advance(round_, metrics.get("stage")) - 1
            self._estimate.expect(-skipped)
            self._estimate.finish_round()
            self._bars.update(run.bar, run.done, _joined(run.stage_text, _metrics_text(metrics)))
            self._show_estimate()

        return on_round

    def finish(self, label: str) -> None:
        """Remove a run's bar and count the run as done."""
        run = self._active.pop(label, None)
        if run is not None:
            self._estimate.expect(run.done - run.planned)  # it may have stopped early
            self._bars.remove(run.bar)
        self._finished += 1
        self._bars.update(self._all, self._finished, _left_text(self._estimate))

    def say(self, line: str) -> None:
        """Show a line that stays."""
        self._bars.say(line)

    def _show_estimate(self) -> None:
        left = self._estimate.seconds_left
        if self._bars.is_live:
            self._bars.update(self._all, self._finished, _left_text(self._estimate))
        elif left is not None and self._is_settled():
            self._print_estimate(left, left + self._estimate.elapsed)

    def _is_settled(self) -> bool:
        enough = self._estimate.executed >= _SETTLED_ROUNDS
        return (
            enough or self._finished > self._skipped or self._estimate.elapsed >= _SETTLED_SECONDS
        )

    def _print_estimate(self, left: float, total: float) -> None:
        if self._announced is None and total >= _WORTH_A_LINE:
            runs = plural(self._runs - self._skipped, "run")
            self.say(
                f"{runs}: about {duration(total)} in total, if all rounds take as long as the "
                "first ones"
            )
            self._announced = total
        elif self._announced is not None and total > _MUCH_LONGER * self._announced:
            self.say(f"slower than expected: about {duration(left)} left")
            self._announced = total


class _ActiveRun:
    """A run's bar, and how many of its planned rounds are done, over all stages."""

    def __init__(self, bar: int, planned: int) -> None:
        self.bar, self.planned, self.done = bar, planned, 0
        self._stage: object = None
        self._before_stage = 0

    def advance(self, round_: int, stage: object) -> int:
        """Count a finished round of a stage, and return by how many rounds the run is further.

        It is more than one at the start of a resumed run.
        """
        if stage != self._stage:
            self._stage, self._before_stage = stage, self.done
        before, self.done = self.done, self._before_stage + round_
        return self.done - before

    @property
    def stage_text(self) -> str:
        """The name of a preparatory stage; empty for the task itself."""
        return "" if self._stage in (None, "task") else str(self._stage)


@contextmanager
def show_progress_of_many(
    progress: bool | None,
    runs: int,
    rounds: int,
    *,
    total_rounds: int | None = None,
    lines: bool = False,
) -> Iterator[ProgressDisplay]:
    """Provide the progress display for many runs of ``rounds`` rounds each.

    ``total_rounds`` counts the rounds of all runs and stages. With ``lines``, lines are printed
    where no bars can be shown, such as the estimated time.
    """
    surface = surface_for(progress)
    with open_bars("nothing" if surface == "lines" and not lines else surface) as bars:
        yield ProgressDisplay(bars, runs, rounds, total_rounds)


def _left_text(estimate: TimeEstimate) -> str:
    left = estimate.seconds_left
    return "" if left is None or left < 1 else f"about {duration(left)} left"


def _metrics_text(metrics: Mapping[str, Any]) -> str:
    loss = metrics.get("train_loss")
    parts = [] if loss is None else [f"loss {loss:.3f}"]
    level = "global" if "global" in metrics else "local"
    measured, prefix = metrics.get(level, {}), "local " if level == "local" else ""
    name = next(iter(measured), "loss")  # the metric that is judged
    value = measured.get(name)
    if value is not None:
        shown = f"{100 * value:.1f} %" if name == "accuracy" else f"{value:.4g}"
        parts.append(f"{prefix}{'test loss' if name == 'loss' else name} {shown}")
    return _joined(*parts)


def _joined(*parts: str) -> str:
    return "  ".join(filter(None, parts))


def _ignore(round_: int, metrics: Mapping[str, Any]) -> None:
    del round_, metrics
