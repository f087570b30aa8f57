"""The plan of a comparison that adds seeds until its question is answered."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Waves:
    """The numbers of seeds at which methods are judged, and what decides the comparison.

    By default that is an answer for every method against the baseline; with ``best`` the best
    method must be known too.
    """

    seeds: tuple[int, ...]
    best: bool = False

    def judged(self, seeds: int) -> int:
        """Return how many of the available seeds are judged: those of the complete waves."""
        return max((size for size in self.seeds if size <= seeds), default=0)
