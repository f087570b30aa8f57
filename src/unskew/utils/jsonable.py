"""Conversion of values to what standard JSON can represent."""

import math
from typing import Any


def to_jsonable(value: Any) -> Any:
    """Return a value with None in place of NaN and infinities, in lists and mappings too."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: to_jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        # Long lists are numbers, and a call per number would take longer than a small round.
        return [
            item
            if type(item) is int or (type(item) is float and math.isfinite(item))
            else to_jsonable(item)
            for item in value
        ]
    return value
