"""The data of a study's case: a source, optionally subsampled, partitioned over clients."""

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.data.federation import Federation
from unskew.data.load import federate
from unskew.data.sources import Source, source
from unskew.experiments.studies.study import StudyData
from unskew.utils.rng import generator

_source = lru_cache(maxsize=2)(source)


def open_case_data(data: StudyData, seed: int, skew: str | None = None) -> Federation:
    """Partition a case's data with a seed; ``skew`` overrides the case's."""
    whole = _source(data.name)
    federation = federate(
        subsample(whole, data.samples, data.test_samples, seed),
        skew or data.skew or "iid",
        data.clients,
        seed,
        holdout=data.holdout,
        pool=data.pool,
        common=data.common,
    )
    if federation.report is None or (data.samples is None and data.test_samples is None):
        return federation
    return replace(federation, report=replace(federation.report, cut=True))


def subsample(whole: Source, train: int | None, test: int | None, seed: int) -> Source:
    """Keep ``train`` training and ``test`` test samples, drawn at random, in their order."""
    kept = _rows(len(whole.y_train), train, seed, 0)
    kept_test = _rows(len(whole.y_test), test, seed, 1)
    return replace(
        whole,
        x_train=whole.x_train[kept],
        y_train=whole.y_train[kept],
        group_train=None if whole.group_train is None else whole.group_train[kept],
        x_test=whole.x_test[kept_test],
        y_test=whole.y_test[kept_test],
        group_test=None if whole.group_test is None else whole.group_test[kept_test],
    )


def _rows(length: int, count: int | None, seed: int, part: int) -> NDArray[Any] | slice:
    if count is None or count >= length:
        return slice(None)
    drawn = generator(seed, "study samples", part).choice(length, count, replace=False)
    return np.sort(drawn)
