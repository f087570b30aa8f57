"""The search of one method: waves of settings, of which the better ones are trained further.

A wave proposes four settings and trains them for a third of the rounds, the better half of those
so far for all rounds, and the best of these with all seeds. This is successive halving: most of the
budget goes to settings that have shown something. Only settings with all seeds can be chosen. Once
one was unstable, settings with less than half its learning rate go first until one can be chosen:
otherwise a method whose accuracy rises with it until it breaks, as SCAFFOLD's does, would spend its
budget on settings that break.
"""

import math
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass

from unskew.composition.method import Method
from unskew.experiments.tuning.choice import (
    Choice,
    Measured,
    TrialResult,
    best_of,
    safe_lr,
)
from unskew.experiments.tuning.plan import CONTINUED, REPEATED, WAVE, SearchPlan
from unskew.experiments.tuning.sampler import propose
from unskew.experiments.tuning.space import Params, Space, Trial

_START = 8
"""The number of settings before the sampler proposes any: the requested one, then quasi-random
ones."""


@dataclass(frozen=True, eq=False)
class TrialRun:
    """A setting that is to be trained with a seed for so many rounds."""

    trial: Trial
    seed: int
    rounds: int
    is_requested: bool
    """Whether it is the method as it was requested, which must be supported."""


TrialBatches = Generator[list[TrialRun], list[Measured], None]
"""Yields runs to be executed and takes what they showed."""


class MethodSearch:
    """The search of one method."""

    def __init__(self, method: Method, plan: SearchPlan) -> None:
        self._method, self._plan = method, plan
        self._space = Space.of(method, plan)
        self._queue: list[Params] = [
            self._space.requested(plan.start),
            *self._space.quasi_random(_START - 1, plan.seed),
        ]
        """The settings that are tried before the sampler proposes any."""
        self._results: list[TrialResult] = []
        self._spent = 0

    def steps(self) -> Generator[list[TrialRun], list[Measured], Choice]:
        """Run the search: yield batches of runs until the budget is spent, return the choice."""
        plan = self._plan
        while self._spent + plan.wave_cost <= plan.budget:
            if self._results:
                self._extend()
            yield from self._train(self._new_wave(), plan.first_rounds)
            yield from self._train(self._to_continue(), plan.rounds)
            yield from self._repeat(self._to_repeat(REPEATED))
        # What is left of the budget repeats settings that had no turn yet.
        left = (plan.budget - self._spent) // plan.repeat_cost
        yield from self._repeat(self._to_repeat(left))
        return self._choice()

    def _new_wave(self) -> list[TrialResult]:
        """Return new settings: queued ones, then proposals of the sampler; none is tried twice."""
        known, start = {result.trial.text for result in self._results}, len(self._results)
        for params in self._proposals():
            trial = self._space.trial(params)
            if trial.text not in known:
                known.add(trial.text)
                self._results.append(TrialResult(len(self._results), trial, params))
            if len(self._results) == start + WAVE:
                break
        return self._results[start:]

    def _proposals(self) -> Iterator[Params]:
        while self._queue:
            yield self._queue.pop(0)
        seeds, seed = len(self._plan.seeds), self._plan.seed
        yield from propose(self._space, list(self._results), seeds, 2 * WAVE, seed)
        # With few free options, proposals may all have been tried; learning rates never run out.
        yield from self._space.quasi_random(100, len(self._results))

    def _train(self, results: Sequence[TrialResult], rounds: int) -> TrialBatches:
        """Train settings with the first seed."""
        if not results:
            return
        self._spent += sum(rounds - result.rounds for result in results)
        found = yield [self._run(result, self._plan.seed, rounds) for result in results]
        for result, measured in zip(results, found, strict=True):
            result.rounds, result.measured = rounds, [measured]
            result.first = result.first or measured

    def _repeat(self, results: Sequence[TrialResult]) -> TrialBatches:
        """Train settings with the other seeds."""
        if not results:
            return
        seeds = self._plan.seeds[1:]
        self._spent += len(results) * self._plan.repeat_cost
        found = yield [
            self._run(result, seed, self._plan.rounds) for result in results for seed in seeds
        ]
        for i, result in enumerate(results):
            result.measured += found[i * len(seeds) : (i + 1) * len(seeds)]

    def _run(self, result: TrialResult, seed: int, rounds: int) -> TrialRun:
        return TrialRun(result.trial, seed, rounds, is_requested=result.number == 0)

    def _to_continue(self) -> list[TrialResult]:
        """Return the best settings that are in the better half after the first rounds."""
        limit = safe_lr(self._results, len(self._plan.seeds))
        ranked = sorted(self._results, key=lambda each: (each.trial.lr >= limit, _place(each)))
        better = ranked[: -(-len(ranked) // 2)]
        waiting = [each for each in better if each.rounds < self._plan.rounds]
        return [each for each in waiting if not each.has_diverged][:CONTINUED]

    def _to_repeat(self, count: int) -> list[TrialResult]:
        """Return the best settings of all rounds that were trained with the first seed alone."""
        waiting = [
            each
            for each in self._results
            if each.rounds == self._plan.rounds
            and len(each.measured) == 1
            and not each.has_diverged
        ]
        limit = safe_lr(self._results, len(self._plan.seeds))

        def place(result: TrialResult) -> tuple[bool, bool, float]:
            return bool(result.failures), result.trial.lr >= limit, -result.score

        return sorted(waiting, key=place)[:count]

    def _extend(self) -> None:
        """Extend the learning rates if the best one lies at an edge, and try one of the new."""
        best = best_of(self._results, self._plan)
        side = None if best.is_unstable else self._space.edges(best.params).get("lr")
        if side is not None:
            self._space, lr = self._space.extended(side)
            self._queue.insert(0, {**best.params, "lr": lr})

    def _choice(self) -> Choice:
        chosen = best_of(self._results, self._plan)
        return Choice(
            requested=self._method.spec,
            given=self._method.given_spec,
            level=chosen.measured[0].level,
            plan=self._plan,
            results=self._results,
            spent=self._spent,
            lr_range=self._space.lr_range,
            edges=self._space.edges(chosen.params),
        )


def _place(result: TrialResult) -> float:
    """Return a number that is smaller for a setting that was better after the first rounds."""
    return math.inf if result.first is None else -result.first.score
