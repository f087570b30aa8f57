"""The proposals of a search: Optuna's tree-structured Parzen estimator.

Optuna keeps nothing: before every wave it receives all results so far, and these are read from the
folders of the trials, so a search is resumed by repeating it.
"""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from unskew.composition.search_space import LogRange, Searched
from unskew.errors import UnskewError
from unskew.experiments.tuning.choice import TrialResult
from unskew.experiments.tuning.space import Params, Space
from unskew.utils.rng import stream

if TYPE_CHECKING:
    from optuna import Study
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial


def propose(
    space: Space, results: Sequence[TrialResult], seeds: int, count: int, seed: int
) -> list[Params]:
    """Return the next settings, given all results; those with all ``seeds`` may be chosen."""
    study = _make_study(int(stream(seed, f"tuning {space.method.spec}", len(results))) % 2**32)
    distributions = _distributions(space.ranges)
    for result in results:
        study.add_trial(_finished_trial(result, seeds, distributions))
    return [study.ask(distributions).params for _ in range(count)]


def check_installed() -> None:
    """Raise if Optuna is missing."""
    _make_study(0)


def _make_study(seed: int) -> "Study":
    try:
        import optuna  # noqa: PLC0415 (an extra)
    except ModuleNotFoundError as error:
        if error.name != "optuna":
            raise
        raise UnskewError('tune: needs Optuna; pip install "unskew[tune]"') from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=0, multivariate=False)
    return optuna.create_study(direction="maximize", sampler=sampler)


def _finished_trial(
    result: TrialResult, seeds: int, distributions: "dict[str, BaseDistribution]"
) -> "FrozenTrial":
    """Return a result as Optuna sees it.

    A setting that failed, or has not all seeds, was pruned after its rounds: it ranks below the
    others, and among its like those with more rounds come first. One that diverged ranks last, as
    after no round.
    """
    from optuna.trial import TrialState, create_trial  # noqa: PLC0415 (an extra)

    setting: dict[str, Any] = {"params": dict(result.params), "distributions": distributions}
    if result.has_diverged:
        return create_trial(state=TrialState.PRUNED, intermediate_values={0: math.nan}, **setting)
    if result.failures or len(result.measured) < seeds:
        score = {result.rounds: result.score}
        return create_trial(state=TrialState.PRUNED, intermediate_values=score, **setting)
    return create_trial(value=result.score, **setting)


def _distributions(ranges: Mapping[str, Searched]) -> "dict[str, BaseDistribution]":
    from optuna.distributions import (  # noqa: PLC0415 (an extra)
        CategoricalDistribution,
        FloatDistribution,
    )

    return {
        name: FloatDistribution(searched.low, searched.high, log=True)
        if isinstance(searched, LogRange)
        else CategoricalDistribution(searched)
        for name, searched in ranges.items()
    }
