"""The names of test metrics: apps call them differently, and reports need one name."""

import re
from collections.abc import Mapping
from typing import TypeVar

from unskew.flower.wire import SAMPLES

T = TypeVar("T")

_TEST_METRIC = re.compile(r"((eval(uate)?|test|val(id(ation)?)?)[-_])?(?P<metric>acc(uracy)?|loss)")
"""The names that apps use for accuracy and loss on their test samples."""


def with_standard_names(measures: Mapping[str, T]) -> dict[str, T]:
    """Rename test metrics to the names that reports use, accuracy and loss first.

    Apps use names such as ``eval_acc`` or ``test_loss``. The number of samples is left out.
    """
    renamed = {_standard_name(name): values for name, values in measures.items() if name != SAMPLES}
    first = [name for name in ("accuracy", "loss") if name in renamed]
    return {name: renamed[name] for name in dict.fromkeys([*first, *renamed])}


def _standard_name(name: str) -> str:
    match = _TEST_METRIC.fullmatch(name)
    if match is None:
        return name
    return "loss" if match["metric"] == "loss" else "accuracy"
