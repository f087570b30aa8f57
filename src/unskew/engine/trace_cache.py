"""Which calls of a function are worth recording, and the recordings there are."""

from collections import Counter
from collections.abc import Hashable, Sequence

import torch
from torch import Tensor

from unskew.engine.tracing import Function, Trace

_WORTH_RECORDING = 20
"""Calls with the same shapes before they are recorded: making a recording costs about as much
time as so many replays of it save."""
_MOST_RECORDINGS = 64


class TraceCache:
    """Calls functions of tensors; calls whose shapes come again and again are replayed.

    A replay gives the same bits as a call, so it does not matter to a run when recordings are
    made. A function that cannot be recorded is always called.
    """

    def __init__(self) -> None:
        self._seen: Counter[Hashable] = Counter()
        self._recordings: dict[Hashable, Trace | None] = {}

    def of(self, name: Hashable, function: Function) -> Function:
        """Return the function, replayed where it can be; those of one name must do the same."""

        def call(*tensors: Tensor) -> tuple[Tensor, ...]:
            key = name, *[(tensor.shape, tensor.stride(), tensor.dtype) for tensor in tensors]
            recording = self._recordings.get(key)
            if recording is not None:
                return recording(*tensors)
            if self._is_due(key):
                self._recordings[key] = _try_to_record(function, tensors)
            return function(*tensors)

        return call

    def _is_due(self, key: Hashable) -> bool:
        if key in self._recordings or len(self._recordings) == _MOST_RECORDINGS:
            return False
        self._seen[key] += 1
        return self._seen[key] == _WORTH_RECORDING


def _try_to_record(function: Function, tensors: Sequence[Tensor]) -> Trace | None:
    try:
        with torch.random.fork_rng(
            devices=()
        ):  # a function that draws then draws as if never tried
            return Trace(function, tensors)
    except Exception:  # also of torch itself: what it cannot run while recording is just called
        return None
