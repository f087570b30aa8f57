"""What nodes report about themselves when a run starts, and which of them are refused.

A node can report anything. What it reports decides how much it counts and how large the network
is, so it is compared with what the other nodes report, and a node that stands out is refused.
"""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unskew.data.quality.targets import LARGEST_TARGETS
from unskew.errors import UnskewError
from unskew.flower.uploads import MAX_COUNT

NodeInfo = dict[str, Any]
"""What a node reports about its samples, see :meth:`unskew.flower.site.Site.info`."""

_TYPES = {"name": str, "samples": int, "tests": int, "shape": list, "dtype": str}
_TYPES |= {"classes": int, "words": int}
_RAW = "columns"
"""In what a node with a raw table reports: a hash of the names of its columns, which change only
if its table does; which columns differ is seen when the node describes them."""
_MAX_TEXT, _MAX_NAME, _MAX_DIMENSIONS = 10_000, 200, 8
_MAX_CLASSES, _MAX_WORDS, _MAX_SAMPLE_SIZE = 100_000, 10_000_000, 100_000_000


def parse_node_info(text: str) -> NodeInfo:
    """Parse what a node reports about its samples; raise a ValueError that says what is wrong."""
    if len(text) > _MAX_TEXT:
        raise ValueError(f"its report has {len(text)} characters; at most {_MAX_TEXT} are read")
    try:
        info = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("its report is not readable JSON") from None
    if not isinstance(info, dict):
        raise ValueError("its report is not a JSON object")
    for key, expected in _TYPES.items():
        if type(info.get(key)) is not expected:
            raise ValueError(f"its report has no {key} of type {expected.__name__}")
    if not 0 < len(info["name"]) <= _MAX_NAME or not info["name"].isprintable():
        raise ValueError(f"its name is not 1 to {_MAX_NAME} printable characters")
    limits = (
        ("samples", 0, MAX_COUNT),
        ("tests", 0, MAX_COUNT),
        ("classes", 1, _MAX_CLASSES),
        ("words", 0, _MAX_WORDS),
    )
    for key, low, high in limits:
        if not low <= info[key] <= high:
            raise ValueError(f"its {key} must be from {low} to {high:,} (got {info[key]:.3g})")
    _check_format(info["shape"], info["dtype"])
    if _RAW in info and (type(info[_RAW]) is not str or len(info[_RAW]) > _MAX_NAME):
        raise ValueError("the hash of its columns is not a short text")
    return {key: info[key] for key in (*_TYPES, _RAW) if key in info} | _target(info)


def is_raw(info: NodeInfo) -> bool:
    """Return whether a node has a raw table, which is prepared before the first round."""
    return _RAW in info


def have_numbers_to_predict(infos: Sequence[NodeInfo]) -> bool:
    """Return whether nodes have the numbers of a regression; raise if only some have."""
    found = {info.get("target") is not None for info in infos}
    if len(found) > 1:
        raise UnskewError("data: some nodes have numbers to predict and others classes; set task")
    return True in found


def _target(info: NodeInfo) -> dict[str, list[float]]:
    """Return the sum of a node's targets and of their squares; nothing if they are classes."""
    target = info.get("target")
    if target is None:
        return {}
    if not isinstance(target, list) or len(target) != 2:
        raise ValueError("its target is not a sum and a sum of squares")
    if not all(isinstance(each, int | float) and math.isfinite(each) for each in target):
        raise ValueError("its target has sums that are not finite numbers")
    total, squares = map(float, target)
    if info["classes"] != 1 or squares * info["samples"] < total * total * (1 - 1e-9):
        raise ValueError("its target has sums that no numbers have")
    return {"target": [total, squares]}


def _check_format(shape: list[Any], dtype: str) -> None:
    if len(shape) > _MAX_DIMENSIONS or any(type(n) is not int or n < 1 for n in shape):
        raise ValueError(f"its shape is not a list of up to {_MAX_DIMENSIONS} positive numbers")
    if math.prod(shape) > _MAX_SAMPLE_SIZE:
        raise ValueError(f"its samples have more than {_MAX_SAMPLE_SIZE:,} numbers each")
    try:
        known = len(dtype) <= _MAX_DIMENSIONS and np.dtype(dtype).kind in "fiub"
    except (TypeError, ValueError):
        known = False
    if not known:
        raise ValueError("the type of its samples is not a number type of NumPy")


@dataclass(frozen=True)
class Admission:
    """Which of the nodes that greet the server take part."""

    size_limit: float | None = 10.0
    """How many times the median number of samples a node may report; None: any number."""
    large_nodes: frozenset[str] = frozenset()
    """The names of nodes that are known to be larger."""
    classes: int | None = None
    """The number of classes, if the run sets it."""

    def refused(self, infos: Mapping[str, NodeInfo]) -> dict[str, str]:
        """Return the nodes that are refused, by name, with the reason."""
        reasons: dict[str, str] = {}
        for name, info in infos.items():
            if self.classes is not None and info["classes"] > self.classes:
                reasons[name] = f"it reports {info['classes']} classes; the run has {self.classes}"
        forms = {name: _form(info) for name, info in infos.items()}
        usual, count = Counter(forms.values()).most_common(1)[0] if forms else (None, 0)
        if 2 * count > len(forms):
            for name, form in forms.items():
                if form != usual:
                    reasons.setdefault(name, f"its samples are {form}; those of most are {usual}")
        rest = {name: info for name, info in infos.items() if name not in reasons}
        samples = {name: info["samples"] for name, info in rest.items()}
        reasons |= self.too_large(samples, "samples", "large_nodes")
        if self.classes is None:
            classes = {name: info["classes"] for name, info in rest.items()}
            reasons |= self.too_large(classes, "classes", "classes")
        return reasons | self._in_other_units(rest)

    def _in_other_units(self, infos: Mapping[str, NodeInfo]) -> dict[str, str]:
        """Return the nodes whose targets are much larger than the median's, with the reason."""
        sizes = {
            name: math.sqrt(info["target"][1] / info["samples"])
            for name, info in infos.items()
            if info.get("target") is not None and info["samples"]
        }
        known = sorted(size for size in sizes.values() if size > 0)
        if self.size_limit is None or not known:
            return {}
        median = known[(len(known) - 1) // 2]
        return {
            name: f"its targets are {size / median:.3g} times as large as the median's; at most "
            f"{LARGEST_TARGETS:g} times is accepted; give all nodes the same units"
            for name, size in sizes.items()
            if size > LARGEST_TARGETS * median and name not in self.large_nodes
        }

    def too_large(self, counts: Mapping[str, int], what: str, option: str) -> dict[str, str]:
        """Return the nodes whose count is too many times the median, with the reason."""
        known = sorted(count for count in counts.values() if count > 0)
        if self.size_limit is None or not known:
            return {}
        median = known[(len(known) - 1) // 2]
        return {
            name: f"it reports {count} {what}, and the median is {median}; at most "
            f"{self.size_limit:g} times the median is accepted; if this is right, set {option}"
            for name, count in counts.items()
            if count > self.size_limit * median and name not in self.large_nodes
        }


def _form(info: NodeInfo) -> str:
    if is_raw(info):
        form = "a raw table"
    else:
        words = f" with {info['words']} words" if info["words"] else ""
        form = f"{tuple(info['shape'])} of {np.dtype(info['dtype']).name}{words}"
    return form + (" and a number to predict" if info.get("target") is not None else "")
