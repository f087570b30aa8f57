"""The traces of a function, and the choice of the calls that are worth tracing."""

from collections import Counter
from collections.abc import Hashable, Sequence

import torch
from torch import Tensor

from unskew.engine.tracing import Function, Trace

_CALLS_BEFORE_TRACING = 20
"""Calls with the same shapes before they are traced: tracing takes about as much time as that many
traced calls save."""
_MAX_TRACES = 64
_MAX_NUMBERS = 2**22
"""With more weights than this in a call, tracing saves little of its time, and needs the memory of
all its tensors at once."""


class TraceCache:
    """Calls functions of tensors, and traces the calls whose shapes repeat often.

    A trace gives the same bits as a call, so a run's results do not depend on when traces are
    made. A function that cannot be traced is always called.
    """

    def __init__(self) -> None:
        self._calls: Counter[Hashable] = Counter()
        self._traces: dict[Hashable, Trace | None] = {}

    def of(self, name: Hashable, function: Function) -> Function:
        """Return the function, traced where possible; equal names must mean equal functions.

        Its first tensor is the weights.
        """

        def call(*tensors: Tensor) -> tuple[Tensor, ...]:
            if tensors[0].numel() > _MAX_NUMBERS:
                return function(*tensors)
            key = name, *[(tensor.shape, tensor.stride(), tensor.dtype) for tensor in tensors]
            trace = self._traces.get(key)
            if trace is not None:
                return trace(*tensors)
            if self._is_due(key):
                self._traces[key] = _try_to_trace(function, tensors)
            return function(*tensors)

        return call

    def _is_due(self, key: Hashable) -> bool:
        if key in self._traces or len(self._traces) == _MAX_TRACES:
            return False
        self._calls[key] += 1
        return self._calls[key] == _CALLS_BEFORE_TRACING


def _try_to_trace(function: Function, tensors: Sequence[Tensor]) -> Trace | None:
    try:
        # Tracing calls the function, which must not advance the random state if it is random.
        with torch.random.fork_rng(devices=()):
            return Trace(function, tensors)
    except Exception:  # torch may raise anything for operations it cannot run while tracing
        return None
