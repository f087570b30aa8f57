"""How long runs take, estimated from the rounds that are finished."""

import time
from collections.abc import Callable

_MIN_ROUNDS, _MIN_SECONDS = 5, 1.0
"""Fewer rounds, or a shorter time, say little: the first rounds are slower than the others."""


class TimeEstimate:
    """Estimates the remaining time by the rounds per second so far.

    Seconds are those of the clock, so runs that are executed at the same time count correctly. The
    time of the first round is left out, since it includes the start of processes.
    """

    def __init__(self, rounds: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._left, self.executed = rounds, 0
        self._clock = clock
        self._first = self._last = None  # type: float | None

    def expect(self, rounds: int) -> None:
        """Add rounds to those that remain; a negative number removes some."""
        self._left = max(0, self._left + rounds)

    def finish_round(self) -> None:
        """Count one executed round."""
        self.expect(-1)
        self._last = self._clock()
        if self._first is None:
            self._first = self._last
        else:
            self.executed += 1

    @property
    def elapsed(self) -> float:
        """The seconds since the first round was finished."""
        if self._first is None or self._last is None:
            return 0.0
        return self._last - self._first

    @property
    def seconds_left(self) -> float | None:
        """The estimated seconds until the last round is finished; None if it is too early."""
        if self.executed < _MIN_ROUNDS or self.elapsed < _MIN_SECONDS:
            return None
        return self._left * self.elapsed / self.executed
